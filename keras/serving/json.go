package serving

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
)

// maxDepth bounds lists and objects within one another.
const maxDepth = 16

// scanner reads JSON from left to right, without a tree. encoding/json refuses the
// tokens NaN and Infinity, and takes 30 bytes for each number of a tree.
type scanner struct {
	text      []byte
	at        int
	nonFinite bool // NaN, Infinity and -Infinity are numbers
}

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("JSON, byte %d: %w", s.at, fmt.Errorf(format, args...))
}

// peek passes over white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// found describes the next byte in messages.
func (s *scanner) found() string {
	if c := s.peek(); c != 0 {
		return fmt.Sprintf("%q", rune(c))
	}
	return "the end"
}

// take passes over a byte if it is the next one.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// end is an error if anything follows.
func (s *scanner) end() error {
	if s.peek() != 0 || s.at < len(s.text) {
		return s.errorf("got %s, want the end", s.found())
	}
	return nil
}

// members calls member at the value of each key of an object; it must read it.
func (s *scanner) members(member func(key string) error) error {
	if !s.take('{') {
		return s.errorf("got %s, want an object", s.found())
	}
	if s.take('}') {
		return nil
	}
	for {
		key, err := s.string()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.errorf("got %s, want a colon", s.found())
		}
		if err := member(key); err != nil {
			return err
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.errorf("got %s, want a comma or the end of an object", s.found())
		}
	}
}

// elements calls element at each element of a list; it must read it.
func (s *scanner) elements(element func() error) error {
	if !s.take('[') {
		return s.errorf("got %s, want a list", s.found())
	}
	if s.take(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.errorf("got %s, want a comma or the end of a list", s.found())
		}
	}
}

func (s *scanner) string() (string, error) {
	if s.peek() != '"' {
		return "", s.errorf("got %s, want a string", s.found())
	}
	plain := true
	for i := s.at + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '\\':
			plain = false
			i++
		case c < ' ' || c >= utf8.RuneSelf:
			plain = false
		case c == '"':
			if plain {
				text := string(s.text[s.at+1 : i])
				s.at = i + 1
				return text, nil
			}
			var text string
			if err := json.Unmarshal(s.text[s.at:i+1], &text); err != nil {
				return "", s.errorf("%w", err)
			}
			s.at = i + 1
			return text, nil
		}
	}
	return "", s.errorf("a string has no end")
}

// number returns the text of the next number.
func (s *scanner) number() (string, error) {
	first := s.peek()
	begin := s.at
	word := func(w string) bool {
		ok := s.nonFinite && strings.HasPrefix(string(s.text[s.at:min(len(s.text), s.at+len(w))]), w)
		if ok {
			s.at += len(w)
		}
		return ok
	}
	if first == '-' {
		s.at++
	}
	if first == 'N' && word("NaN") || word("Infinity") {
		return string(s.text[begin:s.at]), nil
	}
	digits := func() bool {
		from := s.at
		for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
			s.at++
		}
		return s.at > from
	}
	is := func(chars string) bool { return s.at < len(s.text) && strings.IndexByte(chars, s.text[s.at]) >= 0 }
	ok := true
	if is("0") {
		s.at++ // and no digit after it
	} else {
		ok = digits()
	}
	if ok && is(".") {
		s.at++
		ok = digits()
	}
	if ok && is("eE") {
		s.at++
		if is("+-") {
			s.at++
		}
		ok = digits()
	}
	if !ok {
		s.at = begin
		return "", s.errorf("got %s, want a number", s.found())
	}
	return string(s.text[begin:s.at]), nil
}

// bool reads true or false.
func (s *scanner) bool() (bool, error) {
	s.peek()
	for _, value := range []bool{true, false} {
		if word := strconv.FormatBool(value); strings.HasPrefix(string(s.text[s.at:min(len(s.text), s.at+len(word))]), word) {
			s.at += len(word)
			return value, nil
		}
	}
	return false, s.errorf("got %s, want true or false", s.found())
}

// skip passes over a value of any kind.
func (s *scanner) skip() error { return s.skipAt(0) }

func (s *scanner) skipAt(depth int) (err error) {
	if depth > maxDepth {
		return s.errorf("lists and objects are nested more than %d deep", maxDepth)
	}
	switch c := s.peek(); {
	case c == '{':
		return s.members(func(string) error { return s.skipAt(depth + 1) })
	case c == '[':
		return s.elements(func() error { return s.skipAt(depth + 1) })
	case c == '"':
		_, err = s.string()
	case c == 't' || c == 'f':
		_, err = s.bool()
	case c == 'n':
		if !strings.HasPrefix(string(s.text[s.at:min(len(s.text), s.at+4)]), "null") {
			return s.errorf("got %s, want a value", s.found())
		}
		s.at += 4
	default:
		_, err = s.number()
	}
	return err
}

// elementReader reads numbers, or lists of them, as elements of a type.
type elementReader struct {
	dtype keras.DType
	most  int // elements
	data  []byte
	count int
	// dims are the lengths of the lists by their depth, -1 if no list of that depth
	// has ended. rank is the depth of the numbers, -1 before the first.
	dims []int
	rank int
}

func newElementReader(d keras.DType, most int) *elementReader {
	return &elementReader{dtype: d, most: most, rank: -1}
}

// shape returns the lengths of the lists that were read; all lists of one depth
// have the same.
func (e *elementReader) shape() []int { return e.dims[:max(e.rank, 0)] }

// read reads a value at a depth of lists.
func (e *elementReader) read(s *scanner, depth int) error {
	if s.peek() != '[' {
		if e.rank < 0 {
			e.rank = depth
		}
		if depth != e.rank {
			return s.errorf("a number in %d lists, others in %d", depth, e.rank)
		}
		if e.count++; e.count > e.most {
			return s.errorf("got more than %d elements", e.most)
		}
		return e.element(s)
	}
	if depth == maxDepth {
		return s.errorf("lists are nested more than %d deep", maxDepth)
	}
	if e.rank >= 0 && depth >= e.rank {
		return s.errorf("a list in %d lists, where others have a number", depth)
	}
	if depth == len(e.dims) {
		e.dims = append(e.dims, -1)
	}
	if e.data == nil { // most numbers have more than 7 characters
		e.data = make([]byte, 0, min(e.most, (len(s.text)-s.at)/8+1)*e.dtype.Size())
	}
	n := 0
	at := s.at
	s.at++
	if c := s.peek(); c != '[' && c != ']' {
		return e.numbers(s, depth)
	}
	s.at = at
	if err := s.elements(func() error { n++; return e.read(s, depth+1) }); err != nil {
		return err
	}
	return e.ended(s, depth, n)
}

// numbers reads the rest of a list that begins with a number. Most elements are in
// such lists: it does without the calls of elements.
func (e *elementReader) numbers(s *scanner, depth int) error {
	for n := 1; ; n++ {
		if err := e.read(s, depth+1); err != nil {
			return err
		}
		switch {
		case s.take(','):
		case s.take(']'):
			return e.ended(s, depth, n)
		default:
			return s.errorf("got %s, want a comma or the end of a list", s.found())
		}
	}
}

// ended compares a list of n values at a depth with others there.
func (e *elementReader) ended(s *scanner, depth, n int) error {
	switch {
	case n == 0:
		return s.errorf("an empty list")
	case e.dims[depth] < 0:
		e.dims[depth] = n
	case e.dims[depth] != n:
		return s.errorf("a list of %d values, others at its depth have %d", n, e.dims[depth])
	}
	return nil
}

// element reads one number, true or false.
func (e *elementReader) element(s *scanner) error {
	if e.dtype == dtype.Bool {
		b, err := s.bool()
		e.data = append(e.data, 0)
		if b {
			e.data[len(e.data)-1] = 1
		}
		return err
	}
	s.peek()
	begin := s.at
	if d, ok := s.decimal(); ok && e.fast(d) {
		return nil
	}
	s.at = begin
	text, err := s.number()
	if err != nil {
		return err
	}
	switch e.dtype {
	case dtype.Float32:
		var f float64
		f, err = strconv.ParseFloat(text, 32)
		e.data = binary.LittleEndian.AppendUint32(e.data, math.Float32bits(float32(f)))
	case dtype.Float64:
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		e.data = binary.LittleEndian.AppendUint64(e.data, math.Float64bits(f))
	case dtype.Int32:
		var i int64
		i, err = strconv.ParseInt(text, 10, 32)
		e.data = binary.LittleEndian.AppendUint32(e.data, uint32(i))
	case dtype.Int64:
		var i int64
		i, err = strconv.ParseInt(text, 10, 64)
		e.data = binary.LittleEndian.AppendUint64(e.data, uint64(i))
	case dtype.Uint8:
		var i uint64
		i, err = strconv.ParseUint(text, 10, 8)
		e.data = append(e.data, byte(i))
	case dtype.Int8:
		var i int64
		i, err = strconv.ParseInt(text, 10, 8)
		e.data = append(e.data, byte(i))
	default:
		return fmt.Errorf("%s has no JSON form; send binary data", e.dtype)
	}
	if err != nil {
		s.at = begin
		return s.errorf("got %s, want a number of type %s", quoted(text), e.dtype)
	}
	return nil
}

// fast appends a number, unless reading it right takes strconv, or it is an error.
func (e *elementReader) fast(d decimal) bool {
	switch e.dtype {
	case dtype.Float32:
		v, ok := d.float32()
		if ok {
			e.data = binary.LittleEndian.AppendUint32(e.data, math.Float32bits(v))
		}
		return ok
	case dtype.Float64:
		v, ok := d.float64()
		if ok {
			e.data = binary.LittleEndian.AppendUint64(e.data, math.Float64bits(v))
		}
		return ok
	case dtype.Int32:
		v, ok := d.int(math.MinInt32, math.MaxInt32)
		if ok {
			e.data = binary.LittleEndian.AppendUint32(e.data, uint32(v))
		}
		return ok
	case dtype.Int64:
		v, ok := d.int(math.MinInt64, math.MaxInt64)
		if ok {
			e.data = binary.LittleEndian.AppendUint64(e.data, uint64(v))
		}
		return ok
	case dtype.Uint8:
		v, ok := d.int(0, math.MaxUint8)
		if ok = ok && !d.negative; ok { // -0 is no such integer
			e.data = append(e.data, byte(v))
		}
		return ok
	}
	return false
}

// appendText appends a string as JSON has it.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || strings.IndexByte(`"\\<>&`, c) >= 0 {
			text, err := json.Marshal(s)
			if err != nil {
				panic(err) // strings have a form
			}
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// errNonFinite says that JSON cannot have a value.
var errNonFinite = errors.New("it has NaN or infinities, for which JSON has no form; ask for binary data")

// appendElements appends elements as lists of a shape.
func appendElements(b []byte, t Tensor, shape []int, nonFinite bool) ([]byte, error) {
	if t.DType.Is16() {
		return nil, fmt.Errorf("%s has no JSON form; ask for binary data", t.DType)
	}
	b = slices.Grow(b, len(t.Data)*2)
	data, finite := t.Data, true
	one := func() {
		switch t.DType {
		case dtype.Float32:
			f := float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
			finite = finite && f-f == 0
			b = appendFloat(b, f, 32)
		case dtype.Float64:
			f := math.Float64frombits(binary.LittleEndian.Uint64(data))
			finite = finite && f-f == 0
			b = appendFloat(b, f, 64)
		case dtype.Int32:
			b = strconv.AppendInt(b, int64(int32(binary.LittleEndian.Uint32(data))), 10)
		case dtype.Int64:
			b = strconv.AppendInt(b, int64(binary.LittleEndian.Uint64(data)), 10)
		case dtype.Bool:
			b = strconv.AppendBool(b, data[0] != 0)
		default:
			b = strconv.AppendUint(b, uint64(data[0]), 10)
		}
		data = data[t.DType.Size():]
	}
	var list func(shape []int)
	list = func(shape []int) {
		if len(shape) == 0 {
			one()
			return
		}
		b = append(b, '[')
		for i := range shape[0] {
			if i > 0 {
				b = append(b, ',')
			}
			list(shape[1:])
		}
		b = append(b, ']')
	}
	list(shape)
	if !finite && !nonFinite {
		return nil, errNonFinite
	}
	return b, nil
}

// appendFloat appends the shortest text that is read back as f, with a point or an
// exponent, so that clients see a float.
func appendFloat(b []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, "NaN"...)
	case math.IsInf(f, 1):
		return append(b, "Infinity"...)
	case math.IsInf(f, -1):
		return append(b, "-Infinity"...)
	}
	begin := len(b)
	b = strconv.AppendFloat(b, f, 'g', -1, bits)
	if !slices.ContainsFunc(b[begin:], func(c byte) bool { return c == '.' || c == 'e' }) {
		b = append(b, ".0"...)
	}
	return b
}
