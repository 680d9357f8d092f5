// Package tokenizer makes tokens of texts, and texts of tokens, as the package
// tokenizers of Hugging Face does: WordPiece, byte-level BPE and Unigram from a
// tokenizer.json, or from the vocab.txt, or vocab.json and merges.txt, of older
// checkpoints.
//
//	t, err := tokenizer.Read("bert-base-uncased")
//	e := t.Encode("Hello world!")
//	fmt.Println(e.Tokens, e.IDs, e.Offsets)
//
// Numbers, offsets and decoded texts are equal to those of tokenizers 0.23 for
// text of all kinds; what it does not support is an error of Read. Offsets
// count bytes, as slices of strings do. Bytes that are no UTF-8 are taken for
// U+FFFD. A Tokenizer may be used by any number of goroutines.
package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mezzo-ml/mezzo/keras"
)

// Tokenizer makes tokens of texts.
type Tokenizer struct {
	normalize normalizer // nil: nothing
	split     splitter   // nil: nothing
	model     model
	process   func(t *Tokenizer, special bool, all []*Encoding) *Encoding
	added     func(pair bool) int // number of tokens that process adds
	decode    decoder             // nil: tokens with spaces between

	byID            map[int32]addedToken
	byContent       map[string]int32
	raw, normalized patterns // of added tokens
	options         Options
	filePadID       int32 // of the file; With restores it
	padID           int32
}

// addedToken is a token that is found in a text before it is split.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// ID returns the number of a token.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	if id, ok = t.byContent[token]; !ok {
		id, ok = t.model.id(token)
	}
	return id, ok
}

// Token returns the token of a number, "" if there is none.
func (t *Tokenizer) Token(id int32) string {
	if a, ok := t.byID[id]; ok {
		return a.Content
	}
	s, _ := t.model.content(id)
	return s
}

// VocabularySize returns the number of tokens, with those that were added.
func (t *Tokenizer) VocabularySize() int {
	n := t.model.size()
	for s := range t.byContent {
		if _, ok := t.model.id(s); !ok {
			n++
		}
	}
	return n
}

// Encoding is a text, or a pair of texts, as tokens.
type Encoding struct {
	IDs     []int32
	TypeIDs []int32  // 0 for the first text and, with most tokenizers, 1 for the second
	Tokens  []string // with added tokens as they are in the text, with white space that belongs to them
	Offsets [][2]int // bytes of the text that a token is from; 0 and 0 for tokens that are not from a text
	Text    []int    // 0 for tokens of the first text, 1 for those of the second, -1 for others
	Mask    []int32  // 0 for padding, 1 for others

	source string // of one text, before it is processed
}

// Len returns the number of tokens.
func (e *Encoding) Len() int { return len(e.IDs) }

// add appends a token.
func (e *Encoding) add(id, typeID int32, content string, offsets [2]int, text int, mask int32) {
	e.IDs = append(e.IDs, id)
	e.TypeIDs = append(e.TypeIDs, typeID)
	e.Tokens = append(e.Tokens, content)
	e.Offsets = append(e.Offsets, offsets)
	e.Text = append(e.Text, text)
	e.Mask = append(e.Mask, mask)
}

// append appends the tokens of o, with another type if typeID is not negative.
func (e *Encoding) append(o *Encoding, typeID int32) {
	for i := range o.IDs {
		kind := o.TypeIDs[i]
		if typeID >= 0 {
			kind = typeID
		}
		e.add(o.IDs[i], kind, o.Tokens[i], o.Offsets[i], o.Text[i], o.Mask[i])
	}
}

// cut keeps the first n tokens, or the last ones.
func (e *Encoding) cut(n int, left bool) {
	if n >= e.Len() {
		return
	}
	from, to := 0, max(n, 0)
	if left {
		from, to = e.Len()-to, e.Len()
	}
	e.IDs, e.TypeIDs, e.Tokens = e.IDs[from:to], e.TypeIDs[from:to], e.Tokens[from:to]
	e.Offsets, e.Text, e.Mask = e.Offsets[from:to], e.Text[from:to], e.Mask[from:to]
}

// pad adds padding up to n tokens.
func (e *Encoding) pad(n int, id int32, content string, left bool) {
	more := n - e.Len()
	if more <= 0 {
		return
	}
	p := &Encoding{}
	for range more {
		p.add(id, 0, content, [2]int{}, -1, 0)
	}
	if left {
		p.append(e, -1)
		*e = *p
		return
	}
	e.append(p, -1)
}

// Encode makes tokens of a text.
func (t *Tokenizer) Encode(s string) *Encoding {
	return t.finish(t.options.PadTo, t.sequence(s, 0))
}

// EncodePair makes tokens of two texts, such as a question and an answer.
func (t *Tokenizer) EncodePair(s, pair string) *Encoding {
	return t.finish(t.options.PadTo, t.sequence(s, 0), t.sequence(pair, 1))
}

// Batch makes tokens of texts, padded to one length: token_ids, segment_ids and
// padding_mask, int32 [texts tokens].
func (t *Tokenizer) Batch(texts ...string) (ids, types, mask *keras.Tensor) {
	all := make([]*Encoding, len(texts))
	for i, s := range texts {
		all[i] = t.finish(0, t.sequence(s, 0))
	}
	return t.tensors(all)
}

// BatchPairs is [Tokenizer.Batch] of pairs of texts.
func (t *Tokenizer) BatchPairs(pairs ...[2]string) (ids, types, mask *keras.Tensor) {
	all := make([]*Encoding, len(pairs))
	for i, p := range pairs {
		all[i] = t.finish(0, t.sequence(p[0], 0), t.sequence(p[1], 1))
	}
	return t.tensors(all)
}

// tensors pads encodings to one length.
func (t *Tokenizer) tensors(all []*Encoding) (ids, types, mask *keras.Tensor) {
	n := max(t.options.PadTo, 1)
	for _, e := range all {
		n = max(n, e.Len())
	}
	var a, b, c []int32
	for _, e := range all {
		e.pad(n, t.padID, t.Token(t.padID), t.options.PadLeft)
		a, b, c = append(a, e.IDs...), append(b, e.TypeIDs...), append(c, e.Mask...)
	}
	return keras.NewTensor(a, len(all), n), keras.NewTensor(b, len(all), n), keras.NewTensor(c, len(all), n)
}

// finish truncates, adds special tokens and pads.
func (t *Tokenizer) finish(padTo int, all ...*Encoding) *Encoding {
	o := t.options
	if o.MaxLength > 0 {
		room := o.MaxLength
		if !o.NoSpecialTokens {
			room -= t.added(len(all) == 2)
		}
		truncate(max(room, 0), o, all)
	}
	e := t.process(t, !o.NoSpecialTokens, all)
	e.pad(padTo, t.padID, t.Token(t.padID), o.PadLeft)
	return e
}

// truncate cuts texts to at most room tokens together.
func truncate(room int, o Options, all []*Encoding) {
	total := 0
	for _, e := range all {
		total += e.Len()
	}
	more := total - room
	switch {
	case more <= 0:
	case len(all) == 1:
		all[0].cut(room, o.TruncateLeft)
	case o.Truncation == "only_first":
		all[0].cut(all[0].Len()-more, o.TruncateLeft)
	case o.Truncation == "only_second":
		all[1].cut(all[1].Len()-more, o.TruncateLeft)
	default: // the longer one, and then both
		short, swapped := min(all[0].Len(), all[1].Len()), all[0].Len() > all[1].Len()
		long := max(short, room-short)
		if short+long > room {
			short = room / 2
			long = short + room%2
		}
		if swapped {
			short, long = long, short
		}
		all[0].cut(short, o.TruncateLeft)
		all[1].cut(long, o.TruncateLeft)
	}
}

// sequence makes tokens of one text, number 0 or 1.
func (t *Tokenizer) sequence(s string, number int) *Encoding {
	e := &Encoding{source: s}
	for _, part := range t.raw.find(textOf(s, 0)) {
		if part.id >= 0 {
			addPiece(e, part, number)
			continue
		}
		piece := part.text
		if t.normalize != nil {
			piece = t.normalize(piece)
		}
		for _, part := range t.normalized.find(piece) {
			if part.id >= 0 {
				addPiece(e, part, number)
				continue
			}
			pieces := []text{part.text}
			if t.split != nil {
				pieces = t.split(pieces)
			}
			for _, p := range pieces {
				if len(p) == 0 {
					continue
				}
				for _, k := range t.model.tokenize(p) {
					e.add(k.id, int32(number), t.Token(k.id), [2]int{int(p[k.from].from), int(p[k.to-1].to)}, number, 1)
				}
			}
		}
	}
	return e
}

// addPiece appends an added token.
func addPiece(e *Encoding, p part, number int) {
	if len(p.text) > 0 {
		e.add(p.id, int32(number), p.text.String(), [2]int{int(p.text[0].from), int(p.text[len(p.text)-1].to)}, number, 1)
	}
}

// Decode makes a text of tokens. skipSpecial leaves special tokens out, such as
// [CLS]. Numbers without a token are left out.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var tokens []string
	for _, id := range ids {
		s := ""
		if a, ok := t.byID[id]; ok {
			if a.Special && skipSpecial {
				continue
			}
			s = a.Content
		} else if s, ok = t.model.content(id); !ok {
			continue
		}
		tokens = append(tokens, s)
	}
	if t.decode == nil {
		return strings.Join(tokens, " ")
	}
	return strings.Join(t.decode(tokens), "")
}

// pattern is an added token as it is found in a text.
type pattern struct {
	content []rune
	token   addedToken
}

// patterns are added tokens by their first characters, longer ones first.
type patterns map[rune][]pattern

func (p patterns) add(content []rune, a addedToken) {
	if len(content) == 0 {
		return
	}
	all := append(p[content[0]], pattern{content, a})
	slices.SortStableFunc(all, func(a, b pattern) int { return len(b.content) - len(a.content) })
	p[content[0]] = all
}

// part is a piece of a text, with the number of an added token or -1.
type part struct {
	text text
	id   int32
}

// find splits a text at added tokens.
func (p patterns) find(t text) []part {
	if len(p) == 0 {
		return []part{{t, -1}}
	}
	var out []part
	at := 0
	white, word := sets().white, sets().wordLike
	for i := 0; i < len(t); {
		all := p[t[i].r]
		k := slices.IndexFunc(all, func(q pattern) bool { return startsWith(t[i:], q.content) })
		if k < 0 {
			i++
			continue
		}
		a := all[k].token
		from, to := i, i+len(all[k].content)
		i = to
		if a.SingleWord && (from > 0 && word.has(t[from-1].r) || to < len(t) && word.has(t[to].r)) {
			continue
		}
		for a.LStrip && from > at && white.has(t[from-1].r) {
			from--
		}
		for a.RStrip && to < len(t) && white.has(t[to].r) {
			to++
		}
		if from > at {
			out = append(out, part{t[at:from], -1})
		}
		out = append(out, part{t[max(from, at):to], a.ID})
		at = to
		i = max(i, to)
	}
	if at < len(t) {
		out = append(out, part{t[at:], -1})
	}
	return out
}

// trim moves the offsets of tokens of a text past the white space at their ends, which
// tokens of byte-level BPE include.
func trim(e *Encoding, addPrefixSpace bool) {
	space := func(r rune) bool { return r == byteRunes[' '] || sets().white.has(r) }
	for i, content := range e.Tokens {
		all := []rune(content)
		leading, trailing := 0, 0
		for leading < len(all) && space(all[leading]) {
			leading++
		}
		for trailing < len(all) && space(all[len(all)-1-trailing]) {
			trailing++
		}
		o := &e.Offsets[i]
		of := e.source
		if leading > 0 {
			if (i == 0 || o[0] == 0) && addPrefixSpace && leading == 1 {
				leading = 0
			}
			for ; leading > 0 && o[0] < o[1]; leading-- {
				_, n := utf8.DecodeRuneInString(of[o[0]:])
				o[0] = min(o[0]+n, o[1])
			}
		}
		for ; trailing > 0 && o[1] > o[0]; trailing-- {
			_, n := utf8.DecodeLastRuneInString(of[:o[1]])
			o[1] = max(o[1]-n, o[0])
		}
	}
}
