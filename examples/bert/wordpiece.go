package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// wordPiece splits texts into the pieces of words that a vocabulary has (Wu et
// al. 2016), as bert-base-uncased does: small letters without accents.
type wordPiece struct {
	ids     map[string]int32
	longest int // bytes of the longest piece
}

// piece is a token and the bytes of the text that it stands for.
type piece struct {
	id         int32
	start, end int
}

// readVocabulary reads a file with a piece on each line, whose number is its
// token. Pieces that go on with a word start with ##.
func readVocabulary(path string) (*wordPiece, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	w := &wordPiece{ids: map[string]int32{}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		s := strings.TrimRight(lines.Text(), "\r")
		if _, twice := w.ids[s]; twice {
			return nil, fmt.Errorf("%s: line %d repeats %q", path, len(w.ids)+1, s)
		}
		w.ids[s] = int32(len(w.ids))
		w.longest = max(w.longest, len(s))
	}
	return w, lines.Err()
}

// split cuts a text at white space and around punctuation, and each word into
// the longest pieces that there are, from its start on. A word that cannot be
// put together, or one of more than 100 letters, is one [UNK]. The time is
// linear in the length of the text: no piece is longer than the longest of the
// vocabulary.
func (w *wordPiece) split(text string) []piece {
	var all []piece
	start := -1
	flush := func(end int) {
		if start >= 0 {
			all = w.word(all, text, start, end)
			start = -1
		}
	}
	for i, r := range text {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r) || r == utf8.RuneError:
			flush(i)
		case alone(r):
			flush(i)
			all = w.word(all, text, i, i+utf8.RuneLen(r))
		case start < 0:
			start = i
		}
	}
	flush(len(text))
	return all
}

// alone reports runes that are words of their own: punctuation, the symbols
// among ASCII, and Chinese characters.
func alone(r rune) bool {
	if r < utf8.RuneSelf {
		return r > ' ' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	return unicode.IsPunct(r) || unicode.Is(unicode.Han, r)
}

// word appends the pieces of text[start:end].
func (w *wordPiece) word(all []piece, text string, start, end int) []piece {
	letters, from := plain(text[start:end])
	if letters == "" {
		return all
	}
	unknown := append(all, piece{w.ids["[UNK]"], start, end})
	if utf8.RuneCountInString(letters) > 100 {
		return unknown
	}
	for at := 0; at < len(letters); {
		prefix := ""
		if at > 0 {
			prefix = "##"
		}
		to := min(len(letters), at+w.longest)
		for to > at {
			if id, ok := w.ids[prefix+letters[at:to]]; ok {
				all = append(all, piece{id, start + from[at], start + from[to]})
				break
			}
			_, n := utf8.DecodeLastRuneInString(letters[at:to])
			to -= n
		}
		if to == at {
			return unknown
		}
		at = to
	}
	return all
}

// withoutAccent is the table of accents.go.
var withoutAccent = func() map[rune]rune {
	all := []rune(accented)
	m := make(map[rune]rune, len(all)/2)
	for i := 0; i+1 < len(all); i += 2 {
		m[all[i]] = all[i+1]
	}
	return m
}()

// plain makes the letters of a word small and takes their accents off, those
// that are characters of their own too: what Unicode's canonical decomposition
// leaves without nonspacing marks. from has the byte of the word at which what
// is in each byte of the result starts, and after them the word's length.
func plain(word string) (letters string, from []int) {
	var out []byte
	for i, r := range word {
		if r = unicode.ToLower(r); r >= utf8.RuneSelf {
			if base, ok := withoutAccent[r]; ok {
				r = base
			}
			if unicode.Is(unicode.Mn, r) {
				continue
			}
		}
		before := len(out)
		if syllable := r - 0xac00; syllable >= 0 && syllable < 19*21*28 {
			// Hangul decomposes by arithmetic (Unicode, 3.12).
			out = utf8.AppendRune(out, 0x1100+syllable/(21*28))
			out = utf8.AppendRune(out, 0x1161+syllable/28%21)
			if last := syllable % 28; last > 0 {
				out = utf8.AppendRune(out, 0x11a7+last)
			}
		} else {
			out = utf8.AppendRune(out, r)
		}
		for range len(out) - before {
			from = append(from, i)
		}
	}
	return string(out), append(from, len(word))
}
