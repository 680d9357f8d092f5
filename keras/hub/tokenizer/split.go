package tokenizer

import "slices"

// splitter splits the pieces of a text further. first reports whether a piece
// starts at the start of the original text.
type splitter func(pieces []text) []text

// each makes a splitter of a function of one piece.
func each(f func(t text, add func(text))) splitter {
	return func(pieces []text) []text {
		var out []text
		for _, p := range pieces {
			f(p, func(t text) {
				if len(t) > 0 {
					out = append(out, t)
				}
			})
		}
		return out
	}
}

// words splits at white space, which is left out, and around characters of alone.
func words(white, alone *set) splitter {
	return each(func(t text, add func(text)) {
		from := 0
		for i, c := range t {
			switch {
			case white != nil && white.has(c.r):
				add(t[from:i])
				from = i + 1
			case alone != nil && alone.has(c.r):
				add(t[from:i])
				add(t[i : i+1])
				from = i + 1
			}
		}
		add(t[from:])
	})
}

// wordsAndOthers splits as the pattern \w+|[^\w\s]+ does.
func wordsAndOthers() splitter {
	all := sets()
	class := func(r rune) int {
		switch {
		case all.white.has(r):
			return 0
		case all.wordLike.has(r):
			return 1
		}
		return 2
	}
	return each(func(t text, add func(text)) {
		for i := 0; i < len(t); {
			j, c := i, class(t[i].r)
			for j < len(t) && class(t[j].r) == c {
				j++
			}
			if c != 0 {
				add(t[i:j])
			}
			i = j
		}
	})
}

// byteLevel splits as GPT-2 does, and makes a character of each byte.
func byteLevel(addPrefixSpace, useRegex bool) splitter {
	return func(pieces []text) []text {
		var out []text
		for _, t := range pieces {
			if addPrefixSpace && len(t) > 0 && t[0].r != ' ' {
				t = prepend(t, []rune{' '})
			}
			if !useRegex {
				out = append(out, t)
				continue
			}
			for len(t) > 0 {
				n := gpt2Word(t)
				out = append(out, t[:n])
				t = t[n:]
			}
		}
		for i, t := range out {
			out[i] = byteChars(t)
		}
		return out
	}
}

// contractions are pieces of their own after a word.
var contractions = [][]rune{[]rune("'s"), []rune("'t"), []rune("'re"), []rune("'ve"), []rune("'m"), []rune("'ll"), []rune("'d")}

// gpt2Word returns the length of the first match, in a text that is not empty,
// of the pattern
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func gpt2Word(t text) int {
	if t[0].r == '\'' {
		for _, c := range contractions {
			if startsWith(t, c) {
				return len(c)
			}
		}
	}
	all := sets()
	class := func(r rune) int {
		switch {
		case all.letter.has(r):
			return 1
		case all.number.has(r):
			return 2
		case all.white.has(r):
			return 0
		}
		return 3
	}
	run := func(i int) int {
		c := class(t[i].r)
		for i++; i < len(t) && class(t[i].r) == c; i++ {
		}
		return i
	}
	from := 0
	if t[0].r == ' ' && len(t) > 1 {
		from = 1
	}
	if class(t[from].r) != 0 {
		return run(from)
	}
	n := run(0)
	if n < len(t) && n > 1 {
		n-- // the last one belongs to what follows
	}
	return n
}

// byteRunes are the characters that stand for bytes: those that can be seen
// for themselves, and the ones from 256 on for the rest.
var byteRunes, runeBytes = func() (to [256]rune, from map[rune]byte) {
	from = map[rune]byte{}
	next := rune(256)
	for b := range rune(256) {
		if b >= '!' && b <= '~' || b >= 0xa1 && b != 0xad {
			to[b] = b
		} else {
			to[b] = next
			next++
		}
		from[to[b]] = byte(b)
	}
	return to, from
}()

// byteChars makes a character of each byte.
func byteChars(t text) text {
	out := make(text, 0, len(t)+8)
	for _, c := range t {
		for _, b := range []byte(string(c.r)) {
			out = append(out, char{byteRunes[b], c.from, c.to})
		}
	}
	return out
}

// When Metaspace puts its mark before a piece.
const (
	always = "always"
	first  = "first"
	never  = "never"
)

// metaspace marks the starts of words.
func metaspace(mark rune, scheme string, split bool) splitter {
	return func(pieces []text) []text {
		var out []text
		for _, t := range pieces {
			for i, c := range t {
				if c.r == ' ' {
					t[i].r = mark
				}
			}
			if len(t) > 0 && t[0].r != mark && (scheme == always || scheme == first && t[0].from == 0) {
				t = prepend(t, []rune{mark})
			}
			if !split {
				out = append(out, t)
				continue
			}
			from := 0
			for i, c := range t {
				if c.r == mark && i > from {
					out = append(out, t[from:i])
					from = i
				}
			}
			if from < len(t) {
				out = append(out, t[from:])
			}
		}
		return out
	}
}

// What Split does with what separates pieces.
const (
	removed    = "Removed"
	isolated   = "Isolated"
	previous   = "MergedWithPrevious"
	following  = "MergedWithNext"
	contiguous = "Contiguous"
)

// match is a part of a text that matches a pattern, or one between two.
type match struct {
	from, to int
	is       bool
}

// separate splits texts at the matches of a pattern.
func separate(find finder, behavior string, invert bool) splitter {
	return each(func(t text, add func(text)) {
		var all []match
		at := 0
		find.each(t, func(from, to int) {
			if from > at {
				all = append(all, match{at, from, invert})
			}
			all = append(all, match{from, to, !invert})
			at = to
		})
		if at < len(t) {
			all = append(all, match{at, len(t), invert})
		}
		for _, m := range merge(all, behavior) {
			add(t[m.from:m.to])
		}
	})
}

// merge returns the pieces of matches.
func merge(all []match, behavior string) []match {
	switch behavior {
	case removed:
		return slices.DeleteFunc(all, func(m match) bool { return m.is })
	case contiguous:
		var out []match
		for i, m := range all {
			if i > 0 && all[i-1].is == m.is {
				out[len(out)-1].to = m.to
			} else {
				out = append(out, m)
			}
		}
		return out
	case previous:
		var out []match
		for i, m := range all {
			if i > 0 && m.is && !all[i-1].is {
				out[len(out)-1].to = m.to
			} else {
				out = append(out, m)
			}
		}
		return out
	case following:
		var out []match
		for i := len(all) - 1; i >= 0; i-- {
			if m := all[i]; i < len(all)-1 && m.is && !all[i+1].is {
				out[len(out)-1].from = m.from
			} else {
				out = append(out, m)
			}
		}
		slices.Reverse(out)
		return out
	}
	return all
}
