package tokenizer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// charsmap is a normalizer of SentencePiece: a trie of what is replaced, a
// double array of bytes, and the replacements.
type charsmap struct {
	units []uint32
	with  []byte // replacements, each with a 0 after it
}

// parseCharsmap reads a precompiled_charsmap: the size of the trie, the trie and
// the replacements.
func parseCharsmap(b []byte) (*charsmap, error) {
	if len(b) == 0 {
		return &charsmap{}, nil
	}
	if len(b) < 4 {
		return nil, fmt.Errorf("precompiled_charsmap: got %d bytes, want 4 or more", len(b))
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if n%4 != 0 || uint64(n) > uint64(len(b)) {
		return nil, fmt.Errorf("precompiled_charsmap: got a trie of %d bytes, want a multiple of 4, and %d at most", n, len(b))
	}
	m := &charsmap{units: make([]uint32, n/4), with: b[n:]}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return m, nil
}

// offset is where the children of a unit are, relative to it.
func offset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// find returns the replacement of the shortest start of s that has one.
func (m *charsmap) find(s string) (with []byte, ok bool) {
	if len(m.units) == 0 {
		return nil, false
	}
	at := offset(m.units[0])
	for _, c := range []byte(s) {
		at ^= uint32(c)
		if c == 0 || int64(at) >= int64(len(m.units)) {
			return nil, false
		}
		unit := m.units[at]
		if unit&(1<<31|0xff) != uint32(c) {
			return nil, false
		}
		at ^= offset(unit)
		if unit>>8&1 == 0 {
			continue
		}
		if int64(at) >= int64(len(m.units)) {
			return nil, false
		}
		from := int64(m.units[at] &^ (1 << 31))
		if from > int64(len(m.with)) {
			return nil, false
		}
		with = m.with[from:]
		if end := bytes.IndexByte(with, 0); end >= 0 {
			with = with[:end]
		}
		return with, utf8.Valid(with)
	}
	return nil, false
}

// laterExtend are characters that continue a grapheme cluster in the tables of
// Unicode that tokenizers has, and that package uniseg does not know.
var laterExtend = parseRanges("897 897 1acf 1add 1ae0 1aeb 10d69 10d6d 10efa 10efc 113b8 113c0 113c2 113c2 113c5 113c5 113c7 113ca 113cc 113d0 " +
	"113d2 113d2 113e1 113e2 11b60 11b67 11f5a 11f5a 1611e 1612f 1e5ee 1e5ef 1e6e3 1e6e3 1e6e6 1e6e6 1e6ee 1e6ef 1e6f5 1e6f5")

// normalize replaces grapheme clusters of less than 6 bytes, and characters.
func (m *charsmap) normalize(t text) text {
	var all []change
	changed := false
	put := func(with []byte, old int) {
		changed = true
		more := utf8.RuneCount(with) - old
		for _, r := range string(with) {
			all = append(all, change{r, 0})
		}
		switch {
		case more > 0:
			for i := len(all) - more; i < len(all); i++ {
				all[i].n = 1
			}
		case more < 0 && len(all) > 0:
			all[len(all)-1].n += more
		}
	}
	known := strings.Map(func(r rune) rune {
		if laterExtend.find(r) {
			return 0x300 // a known one
		}
		return r
	}, t.String())
	for state, rest := -1, t; len(rest) > 0; {
		var cluster string
		cluster, known, _, state = uniseg.FirstGraphemeClusterInString(known, state)
		n := utf8.RuneCountInString(cluster)
		cluster, rest = rest[:n].String(), rest[n:]
		if len(cluster) < 6 {
			if with, ok := m.find(cluster); ok {
				put(with, utf8.RuneCountInString(cluster))
				continue
			}
		}
		for _, r := range cluster {
			if with, ok := m.find(string(r)); ok {
				put(with, 1)
			} else {
				all = append(all, change{r, 0})
			}
		}
	}
	if !changed {
		return t
	}
	return t.transform(all, 0)
}
