package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// decoder changes the contents of tokens into text.
type decoder func(tokens []string) []string

// mapTokens makes a decoder of a function of one token.
func mapTokens(f func(i int, s string) string) decoder {
	return func(tokens []string) []string {
		for i, s := range tokens {
			tokens[i] = f(i, s)
		}
		return tokens
	}
}

// cleanUp takes spaces away before punctuation and contractions of English.
var cleanUp = []string{" .", ".", " ?", "?", " !", "!", " ,", ",", " ' ", "'", " n't", "n't", " 'm", "'m", " do not", " don't", " 's", "'s", " 've", "'ve", " 're", "'re"}

// tidy replaces the pairs one after the other.
func tidy(s string) string {
	for i := 0; i < len(cleanUp); i += 2 {
		s = strings.ReplaceAll(s, cleanUp[i], cleanUp[i+1])
	}
	return s
}

func wordPieceDecoder(prefix string, clean bool) decoder {
	return mapTokens(func(i int, s string) string {
		if i > 0 {
			if rest, ok := strings.CutPrefix(s, prefix); ok {
				s = rest
			} else {
				s = " " + s
			}
		}
		if clean {
			s = tidy(s)
		}
		return s
	})
}

// byteLevelDecoder makes bytes of the characters that stand for them.
func byteLevelDecoder(tokens []string) []string {
	var b []byte
	for _, s := range tokens {
		before := len(b)
		for _, r := range s {
			x, ok := runeBytes[r]
			if !ok {
				b = append(b[:before], s...)
				break
			}
			b = append(b, x)
		}
	}
	return []string{validUTF8(b)}
}

// validUTF8 replaces each longest part of b that begins a character without
// ending it, and each byte that begins none, by U+FFFD.
func validUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			out.Write(b[:n])
			b = b[n:]
			continue
		}
		out.WriteRune(utf8.RuneError)
		b = b[brokenLength(b):]
	}
	return out.String()
}

// brokenLength is the length of the longest start of b that some character
// starts with, where b starts with no whole character; at least 1.
func brokenLength(b []byte) int {
	low, high, more := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		more = 1
	case c >= 0xe0 && c <= 0xef:
		more = 2
		if c == 0xe0 {
			low = 0xa0
		} else if c == 0xed {
			high = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		more = 3
		if c == 0xf0 {
			low = 0x90
		} else if c == 0xf4 {
			high = 0x8f
		}
	}
	n := 1
	for n <= more && n < len(b) && b[n] >= low && b[n] <= high {
		low, high = 0x80, 0xbf
		n++
	}
	return n
}

func metaspaceDecoder(mark rune, scheme string) decoder {
	return mapTokens(func(i int, s string) string {
		return strings.Map(func(r rune) rune {
			switch {
			case r != mark:
				return r
			case i == 0 && scheme != never:
				return -1
			}
			return ' '
		}, s)
	})
}

// bpeDecoder makes a space of the suffix of words.
func bpeDecoder(suffix string) decoder {
	return func(tokens []string) []string {
		for i, s := range tokens {
			with := " "
			if i == len(tokens)-1 {
				with = ""
			}
			tokens[i] = strings.ReplaceAll(s, suffix, with)
		}
		return tokens
	}
}

// byteFallbackDecoder makes characters of tokens such as <0xE2>.
func byteFallbackDecoder(tokens []string) []string {
	var out []string
	var b []byte
	flush := func() {
		if utf8.Valid(b) {
			if len(b) > 0 {
				out = append(out, string(b))
			}
		} else {
			for range b {
				out = append(out, string(utf8.RuneError))
			}
		}
		b = b[:0]
	}
	for _, s := range tokens {
		if x, ok := parseByte(s); ok {
			b = append(b, x)
			continue
		}
		flush()
		out = append(out, s)
	}
	flush()
	return out
}

// parseByte reads a token such as <0xE2>.
func parseByte(s string) (b byte, ok bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	for _, c := range []byte(s[3:5]) {
		d := strings.IndexByte("0123456789abcdef", c|0x20)
		if d < 0 || c < '0' {
			return 0, false
		}
		b = b<<4 | byte(d)
	}
	return b, true
}

// stripDecoder removes a character at the ends of each token, so many times at most.
func stripDecoder(r rune, start, stop int) decoder {
	return mapTokens(func(_ int, s string) string {
		for range start {
			rest, ok := strings.CutPrefix(s, string(r))
			if !ok {
				break
			}
			s = rest
		}
		for range stop {
			rest, ok := strings.CutSuffix(s, string(r))
			if !ok {
				break
			}
			s = rest
		}
		return s
	})
}
