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
// al. 2016), as bert-base-uncased does, but for accents, which stay.
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
	unknown := append(all, piece{w.ids["[UNK]"], start, end})
	if utf8.RuneCountInString(text[start:end]) > 100 {
		return unknown
	}
	for at := start; at < end; {
		prefix := ""
		if at > start {
			prefix = "##"
		}
		to := min(end, at+w.longest)
		for to > at {
			if id, ok := w.ids[prefix+strings.ToLower(text[at:to])]; ok {
				all = append(all, piece{id, at, to})
				break
			}
			_, n := utf8.DecodeLastRuneInString(text[at:to])
			to -= n
		}
		if to == at {
			return unknown
		}
		at = to
	}
	return all
}
