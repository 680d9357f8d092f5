package preprocessing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/portablemath"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// lookup is what StringLookup, IntegerLookup and TextVectorization have in
// common: a table of tokens. Indices start with 0 for the mask token, if there
// is one and the mode is int, then come those of tokens out of the vocabulary,
// then the vocabulary.
type lookup[K cmp.Ordered] struct {
	max      int // tokens at most, special ones included; 0: any number
	oov      int // indices for tokens that are not in the vocabulary
	mask     *K
	oovToken K
	words    []K
	idf      []float64
	invert   bool
	mode     string
	pad      bool
}

// maxOOV is the most indices for tokens that are not in a vocabulary: each is one
// of the tokens that a layer lists.
const maxOOV = 1 << 20

// modes are those of lookups.
var modes = []string{"int", "one_hot", "multi_hot", "count", "tf_idf"}

// check wants settings that fit together.
func (l lookup[K]) check() error {
	switch {
	case l.max < 0 || l.max == 1:
		return fmt.Errorf("MaxTokens is %d, want at least 2", l.max)
	case l.pad && l.max == 0:
		return fmt.Errorf("PadToMaxTokens is set and MaxTokens is not, want both")
	case l.oov < 0 || l.oov > maxOOV:
		return fmt.Errorf("NumOOVIndices is %d, want a number from 0 to %d", l.oov, maxOOV)
	case !slices.Contains(modes, l.mode):
		return fmt.Errorf("OutputMode is %q, want one of %q", l.mode, modes)
	case l.invert && l.mode != "int":
		return fmt.Errorf("OutputMode is %q with Invert, want int", l.mode)
	case len(l.idf) > 0 && l.mode != "tf_idf":
		return fmt.Errorf("IDFWeights are given with OutputMode %q, want tf_idf for them", l.mode)
	}
	return nil
}

// dropsMask reports whether places of the mask token count nowhere.
func (l lookup[K]) dropsMask() bool { return l.mask != nil && l.mode != "int" }

// oovStart and start are the first index of a token out of the vocabulary, and
// of one in it.
func (l lookup[K]) oovStart() int {
	if l.mask != nil && l.mode == "int" {
		return 1
	}
	return 0
}

func (l lookup[K]) start() int { return l.oovStart() + l.oov }

// special are the tokens before the vocabulary.
func (l lookup[K]) special() []K {
	var all []K
	if l.oovStart() > 0 {
		all = append(all, *l.mask)
	}
	for range l.oov {
		all = append(all, l.oovToken)
	}
	return all
}

// table is a lookup that has been checked.
type table[K cmp.Ordered] struct {
	tokens []K // without special ones
	index  map[K]int64
	size   int       // of encodings: special tokens, tokens, and what pads them
	idf    []float64 // of that size, for tf_idf
	of     lookup[K] // what it was made of
}

// table checks the settings and the vocabulary, which may start with the
// special tokens.
func (l lookup[K]) table() (*table[K], error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	if len(l.words) == 0 {
		return nil, fmt.Errorf("Vocabulary is empty, want tokens, or Adapt before the layer is used")
	}
	special := l.special()
	t := &table[K]{tokens: l.words, index: make(map[K]int64, len(l.words)), of: l}
	whole := len(l.words) >= len(special) && slices.Equal(l.words[:len(special)], special)
	if whole {
		t.tokens = l.words[len(special):]
	}
	for i, w := range t.tokens {
		if j, twice := t.index[w]; twice {
			return nil, fmt.Errorf("Vocabulary has %s twice, at %d and %d, want each token once", quote(w), int(j)-l.start(), i)
		}
		t.index[w] = int64(l.start() + i)
	}
	for _, s := range []*K{l.mask, &l.oovToken} {
		if s == nil || s == &l.oovToken && !l.invert {
			continue
		}
		if _, found := t.index[*s]; found {
			return nil, fmt.Errorf("Vocabulary has the special token %s among others, want it left out, or %v first", quote(*s), special)
		}
	}
	n := l.start() + len(t.tokens)
	if l.max > 0 && n > l.max {
		return nil, fmt.Errorf("Vocabulary has %d tokens with special ones, want at most MaxTokens, %d", n, l.max)
	}
	t.size = n
	if l.pad {
		t.size = l.max
	}
	if l.mode != "tf_idf" {
		return t, nil
	}
	if len(l.idf) != len(l.words) {
		return nil, fmt.Errorf("IDFWeights has %d numbers, want %d as Vocabulary", len(l.idf), len(l.words))
	}
	if err := support.CheckTable("MaxTokens", t.size); err != nil {
		return nil, err
	}
	t.idf = make([]float64, t.size)
	if at := t.idf; whole {
		copy(at, l.idf)
	} else {
		var mean float64
		for _, v := range l.idf {
			mean += v / float64(len(l.idf))
		}
		for i := range l.start() {
			at[i] = mean // of tokens out of the vocabulary, nothing is known
		}
		copy(at[l.start():], l.idf)
	}
	return t, nil
}

// all are the tokens by index.
func (t *table[K]) all() []K { return slices.Concat(t.of.special(), t.tokens) }

// encoding is what a model makes of indices.
func (t *table[K]) encoding(drops bool) encoding {
	return encoding{mode: t.of.mode, n: t.size, drops: drops, idf: t.idf}
}

// find is the index of a token; -1 where its place counts nowhere.
func (t *table[K]) find(w K, oov func(w K, n int) int64) (int64, error) {
	if t.of.mask != nil && w == *t.of.mask {
		if t.of.mode == "int" {
			return 0, nil
		}
		return -1, nil
	}
	if i, ok := t.index[w]; ok {
		return i, nil
	}
	switch t.of.oov {
	case 0:
		return 0, fmt.Errorf("%s is not in the vocabulary, want a token of it, or NumOOVIndices of at least 1", quote(w))
	case 1:
		return int64(t.of.oovStart()), nil
	}
	return int64(t.of.oovStart()) + oov(w, t.of.oov), nil
}

// tables guards the tables that layers keep: Encode may run in the goroutine
// of a Pipeline while another one uses the layer.
var tables sync.Mutex

// cached returns *kept, made again if the settings are no longer those it was
// made of.
func (l lookup[K]) cached(kept **table[K]) (*table[K], error) {
	tables.Lock()
	defer tables.Unlock()
	if t := *kept; t != nil && t.of.same(l) {
		return t, nil
	}
	t, err := l.table()
	if err == nil {
		*kept = t
	}
	return t, err
}

// same compares settings, and slices by where they lie.
func (l lookup[K]) same(m lookup[K]) bool {
	return l.max == m.max && l.oov == m.oov && l.oovToken == m.oovToken && l.invert == m.invert && l.mode == m.mode && l.pad == m.pad &&
		(l.mask == m.mask || l.mask != nil && m.mask != nil && *l.mask == *m.mask) &&
		len(l.words) == len(m.words) && (len(l.words) == 0 || &l.words[0] == &m.words[0]) &&
		len(l.idf) == len(m.idf) && (len(l.idf) == 0 || &l.idf[0] == &m.idf[0])
}

// counts is how often Adapt saw each token, and in how many documents.
type counts[K cmp.Ordered] struct {
	times, documents map[K]int
	rows             int
	seen             map[K]bool // in the current document
}

func newCounts[K cmp.Ordered]() *counts[K] {
	return &counts[K]{times: map[K]int{}, documents: map[K]int{}, seen: map[K]bool{}}
}

// add counts the tokens of a document.
func (c *counts[K]) add(document []K) {
	clear(c.seen)
	c.rows++
	for _, w := range document {
		c.times[w]++
		if !c.seen[w] {
			c.seen[w] = true
			c.documents[w]++
		}
	}
}

// addRows counts tokens of a shape: the last axis is one document, a single
// axis one of a token each.
func (c *counts[K]) addRows(data []K, shape layers.Shape) {
	n := 1
	if len(shape) > 1 {
		n = shape[len(shape)-1]
	}
	for n > 0 && len(data) >= n {
		c.add(data[:n])
		data = data[n:]
	}
}

// vocabulary is the most frequent tokens, of those of one frequency the
// greatest first, and their inverse document frequencies for tf_idf.
func (c *counts[K]) vocabulary(l lookup[K]) (words []K, idf []float64, err error) {
	for w := range c.times {
		if w != l.oovToken && (l.mask == nil || w != *l.mask) {
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return nil, nil, fmt.Errorf("got no tokens, want some")
	}
	slices.SortFunc(words, func(a, b K) int {
		return cmp.Or(cmp.Compare(c.times[b], c.times[a]), cmp.Compare(b, a))
	})
	if l.max > 0 {
		most := l.max - l.start()
		if most < 1 {
			return nil, nil, fmt.Errorf("MaxTokens is %d, want more than the %d special tokens", l.max, l.start())
		}
		words = slices.Clip(words[:min(len(words), most)])
	}
	if l.mode == "tf_idf" {
		for _, w := range words {
			idf = append(idf, portablemath.Log(1+float64(c.rows)/float64(1+c.documents[w])))
		}
	}
	return words, idf, nil
}

// adaptable reports why a layer cannot learn its vocabulary now.
func (l lookup[K]) adaptable(b *layers.Base, adapted bool) error {
	if err := l.check(); err != nil {
		return err
	}
	switch {
	case len(l.words) > 0 && !adapted:
		return fmt.Errorf("Vocabulary is given, want it left out")
	case b.Built():
		return fmt.Errorf("the layer is in use, want Adapt before that")
	}
	return nil
}

func quote[K cmp.Ordered](w K) string {
	if s, ok := any(w).(string); ok {
		return strconv.Quote(s)
	}
	return fmt.Sprint(w)
}
