package safeio

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

const (
	maxEcho    = 200  // bytes of a value of a file in an error
	maxMessage = 4096 // bytes of an error about a file
)

// Text formats a value that stands in a file, for an error: as %v does, cut
// after 200 bytes.
func Text(v any) string {
	s, ok := v.(string)
	if !ok {
		s = fmt.Sprint(v)
	}
	if short := head(s, maxEcho); len(short) < len(s) {
		return short + "…"
	}
	return s
}

// Quote is Text with quotes, as %q writes them.
func Quote[T ~string | ~[]byte](text T) string {
	if len(text) <= maxEcho {
		return strconv.Quote(string(text))
	}
	return strconv.Quote(head(string(text[:maxEcho+1]), maxEcho)) + "…"
}

// head returns at most n bytes of s, and no part of a character.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for k := range utf8.UTFMax {
		if utf8.RuneStart(s[n-k]) {
			return s[:n-k]
		}
	}
	return s[:n] // no text
}

// Short returns err, whose message is cut in its middle if it has more than
// 4096 bytes: what a message repeats of a file must not fill a log.
func Short(err error) error {
	if err == nil || len(err.Error()) <= maxMessage {
		return err
	}
	return &short{err}
}

type short struct{ err error }

func (s *short) Error() string {
	text := s.err.Error()
	end := text[len(text)-maxMessage/4:]
	for range utf8.UTFMax {
		if !utf8.RuneStart(end[0]) {
			end = end[1:]
		}
	}
	return head(text, maxMessage/2) + " … " + end
}

// Unwrap returns the error with the whole message.
func (s *short) Unwrap() error { return s.err }
