package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// char is a character of a normalized text, and the bytes of the original that
// it stands for. Characters that a normalizer inserts have those of the one
// before them.
type char struct {
	r        rune
	from, to int32
}

// text is a piece of a normalized text.
type text []char

// textOf makes the text of original bytes from start on. Bytes that are no UTF-8 are U+FFFD.
func textOf(s string, start int) text {
	t := make(text, 0, len(s))
	for i, r := range s {
		n := 1
		if r != utf8.RuneError {
			n = utf8.RuneLen(r)
		} else if strings.HasPrefix(s[i:], "\uFFFD") {
			n = 3
		}
		t = append(t, char{r, int32(start + i), int32(start + i + n)})
	}
	return t
}

// String returns the normalized text.
func (t text) String() string {
	var b strings.Builder
	for _, c := range t {
		b.WriteRune(c.r)
	}
	return b.String()
}

// change is a character of a new text: with n = 0 it replaces one of the old
// text, with n < 0 it replaces one and -n characters after it are removed, and
// with n > 0 it is inserted.
type change struct {
	r rune
	n int
}

// transform makes a new text of t. Its first skip characters are removed.
func (t text) transform(changes []change, skip int) text {
	out := make(text, 0, len(changes))
	at := skip
	for _, c := range changes {
		var from, to int32
		if c.n > 0 {
			if at > 0 {
				from, to = t[at-1].from, t[at-1].to
			}
		} else {
			from, to = t[at].from, t[at].to
			at += 1 - c.n
		}
		out = append(out, char{c.r, from, to})
	}
	return out
}

// filter keeps the characters for which keep is true.
func (t text) filter(keep func(r rune) bool) text {
	return slices.DeleteFunc(t, func(c char) bool { return !keep(c.r) })
}

// normalizer changes a text before it is split. It may change t itself.
type normalizer func(t text) text

// lowercase makes letters small. İ is the only one that becomes two characters.
func lowercase(t text) text {
	out := t[:0:0]
	for i, c := range t {
		if c.r == 'İ' {
			if len(out) == 0 {
				out = slices.Clone(t[:i])
			}
			out = append(out, char{'i', c.from, c.to}, char{0x307, c.from, c.to})
			continue
		}
		t[i].r = toLower(c.r)
		if len(out) > 0 {
			out = append(out, t[i])
		}
	}
	if len(out) > 0 {
		return out
	}
	return t
}

// clean removes control characters and makes white space spaces.
func clean(t text) text {
	all := sets()
	t = t.filter(func(r rune) bool { return !all.control.has(r) })
	for i, c := range t {
		if all.white.has(c.r) {
			t[i].r = ' '
		}
	}
	return t
}

// spaceChinese puts Chinese characters between spaces.
func spaceChinese(t text) text {
	all := sets()
	if !slices.ContainsFunc(t, func(c char) bool { return all.chinese.has(c.r) }) {
		return t
	}
	out := make(text, 0, 2*len(t))
	for _, c := range t {
		if all.chinese.has(c.r) {
			space := char{' ', c.from, c.to}
			out = append(out, space, c, space)
		} else {
			out = append(out, c)
		}
	}
	return out
}

// stripAccents takes accents off, as BERT's normalizer does.
func stripAccents(t text) text {
	t = decompose(t, norm.NFD)
	all := sets()
	return t.filter(func(r rune) bool { return !all.nonspacing.has(r) })
}

// form returns a normalizer to a form of Unicode.
func form(f norm.Form) normalizer {
	return func(t text) text {
		switch f {
		case norm.NFC:
			return compose(t, norm.NFD)
		case norm.NFKC:
			return compose(t, norm.NFKD)
		}
		return decompose(t, f)
	}
}

// unknownNormal are characters that tokenizers' tables of Unicode do not have and
// that it does not decompose.
var unknownNormal = parseRanges("32ff 32ff a7f2 a7f4 ab69 ab69 10781 10785 10787 107b0 107b2 107ba 11938 11938 1e030 1e06d 1f16c 1f16c 1fbf0 1fbf9")

// unknownClass are accents that tokenizers' tables of Unicode do not have and that
// it does not put in order.
var unknownClass = parseRanges("7fd 7fd 898 89f 8ca 8d3 9fe 9fe c3c c3c d3b d3c eba eba 1715 1715 1abf 1ace 1df6 1dfa a82c a82c 10d24 10d27 " +
	"10eab 10eac 10efd 10eff 10f46 10f50 10f82 10f85 11070 11070 1133b 1133b 1145e 1145e 11839 1183a 1193d 1193e 11943 11943 119e0 119e0 " +
	"11a34 11a34 11a47 11a47 11a99 11a99 11d42 11d42 11d44 11d45 11d97 11d97 11f41 11f42 16ff0 16ff1 1e08f 1e08f 1e130 1e136 1e2ae 1e2ae " +
	"1e2ec 1e2ef 1e4ec 1e4ef")

// changesOf decomposes the characters of t to NFD or NFKD, in canonical order.
func changesOf(t text, f norm.Form) (all []change, classes []uint8) {
	all, classes = make([]change, 0, len(t)), make([]uint8, 0, len(t))
	sorted := 0 // characters before it are in order
	flush := func() {
		if len(all)-sorted > 1 {
			order := make([]int, len(all)-sorted)
			for i := range order {
				order[i] = sorted + i
			}
			slices.SortStableFunc(order, func(a, b int) int { return int(classes[a]) - int(classes[b]) })
			a, c := slices.Clone(all[sorted:]), slices.Clone(classes[sorted:])
			for i, from := range order {
				all[sorted+i], classes[sorted+i] = a[from-sorted], c[from-sorted]
			}
		}
		sorted = len(all)
	}
	add := func(r rune, n int) {
		class := uint8(0)
		if r >= 0x300 && !unknownClass.find(r) {
			var b [utf8.UTFMax]byte
			class = f.Properties(b[:utf8.EncodeRune(b[:], r)]).CCC()
		}
		if class == 0 {
			flush()
			sorted++
		}
		all, classes = append(all, change{r, n}), append(classes, class)
	}
	for _, c := range t {
		r := c.r
		if r < 0xa0 || unknownNormal.find(r) {
			add(r, 0)
			continue
		}
		if s := r - 0xac00; s >= 0 && s < 19*21*28 { // Hangul decomposes by arithmetic (Unicode, 3.12)
			add(0x1100+s/(21*28), 0)
			add(0x1161+s/28%21, 1)
			if last := s % 28; last > 0 {
				add(0x11a7+last, 1)
			}
			continue
		}
		var b [utf8.UTFMax]byte
		d := f.Properties(b[:utf8.EncodeRune(b[:], r)]).Decomposition()
		if len(d) == 0 {
			add(r, 0)
			continue
		}
		n := 0
		for _, r := range string(d) {
			add(r, n)
			n = 1
		}
	}
	flush()
	return all, classes
}

// decompose normalizes to NFD or NFKD.
func decompose(t text, f norm.Form) text {
	if isASCII(t) {
		return t
	}
	all, _ := changesOf(t, f)
	return t.transform(all, 0)
}

func isASCII(t text) bool {
	return !slices.ContainsFunc(t, func(c char) bool { return c.r >= 128 })
}

// compose normalizes to NFC or NFKC by way of the form f.
func compose(t text, f norm.Form) text {
	if isASCII(t) {
		return t
	}
	all, classes := changesOf(t, f)
	out := make([]change, 0, len(all))
	starter := -1    // index in out of the last starter
	last := uint8(0) // class of the last character after it that stayed
	blocked := false // whether something stayed between the starter and the next character
	for i, c := range all {
		if starter >= 0 && (!blocked || last < classes[i] && last != 0) {
			if r, ok := composed(out[starter].r, c.r); ok {
				out[starter] = change{r, out[starter].n + c.n - 1}
				continue
			}
		}
		if classes[i] == 0 {
			starter, blocked = len(out), false
		} else {
			blocked, last = true, classes[i]
		}
		out = append(out, c)
	}
	return t.transform(out, 0)
}

// composed returns the character that a and b are together.
func composed(a, b rune) (rune, bool) {
	if b < 0x300 {
		return 0, false
	}
	var buf [2 * utf8.UTFMax]byte
	s := utf8.AppendRune(utf8.AppendRune(buf[:0], a), b)
	if norm.NFC.PropertiesString(string(b)).BoundaryBefore() {
		return 0, false
	}
	r, n := utf8.DecodeRune(norm.NFC.Bytes(s))
	one := norm.NFC.Bytes(s)
	return r, n == len(one) && r != a
}

// startsWith reports whether t starts with s.
func startsWith(t text, s []rune) bool {
	if len(t) < len(s) {
		return false
	}
	for i, r := range s {
		if t[i].r != r {
			return false
		}
	}
	return true
}

// prepend puts s before a text that is not empty.
func prepend(t text, s []rune) text {
	if len(t) == 0 {
		return t
	}
	out := make(text, 0, len(s)+len(t))
	for _, r := range s {
		out = append(out, char{r, t[0].from, t[0].to})
	}
	return append(out, t...)
}

// strip removes white space at the ends.
func strip(left, right bool) normalizer {
	return func(t text) text {
		white := sets().white
		for left && len(t) > 0 && white.has(t[0].r) {
			t = t[1:]
		}
		for right && len(t) > 0 && white.has(t[len(t)-1].r) {
			t = t[:len(t)-1]
		}
		return t
	}
}
