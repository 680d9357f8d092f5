package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// processor adds special tokens.
type processor interface {
	// added returns how many tokens process adds.
	added(pair bool) int
	// process changes the parts of an encoding: the texts, one after the other,
	// and special tokens between them. With special false it adds none.
	process(t *Tokenizer, special bool, all []*Encoding) []*Encoding
}

// setProcessors makes what follows after the model.
func (t *Tokenizer) setProcessors(all []processor) {
	t.added = func(pair bool) int {
		n := 0
		for _, p := range all {
			n += p.added(pair)
		}
		return n
	}
	t.process = func(t *Tokenizer, special bool, parts []*Encoding) *Encoding {
		for _, p := range all {
			parts = p.process(t, special, parts)
		}
		out := &Encoding{}
		for _, p := range parts {
			out.append(p, -1)
		}
		return out
	}
}

// special is a special token.
type special struct {
	content string
	id      int32
}

// encoding is the token alone.
func (s special) encoding(typeID int32) *Encoding {
	e := &Encoding{}
	e.add(s.id, typeID, s.content, [2]int{}, -1, 1)
	return e
}

// UnmarshalJSON reads a list of content and number.
func (s *special) UnmarshalJSON(b []byte) error {
	both := []any{&s.content, &s.id}
	if err := json.Unmarshal(b, &both); err != nil || len(both) != 2 {
		return fmt.Errorf("got %s, want a token and its number", safeio.Quote(b))
	}
	return nil
}

// bert is [CLS] text [SEP] pair [SEP].
type bert struct{ cls, sep special }

func (b *bert) added(pair bool) int {
	if pair {
		return 3
	}
	return 2
}

func (b *bert) process(_ *Tokenizer, special bool, all []*Encoding) []*Encoding {
	if !special {
		return all
	}
	out := []*Encoding{b.cls.encoding(0), all[0], b.sep.encoding(0)}
	for _, e := range all[1:] {
		out = append(out, e, b.sep.encoding(1))
	}
	return out
}

// roberta is <s> text </s></s> pair </s>, all of type 0.
type roberta struct {
	cls, sep             special
	trim, addPrefixSpace bool
}

func (r *roberta) added(pair bool) int {
	if pair {
		return 4
	}
	return 2
}

func (r *roberta) process(_ *Tokenizer, special bool, all []*Encoding) []*Encoding {
	for _, e := range all {
		if r.trim {
			trim(e, r.addPrefixSpace)
		}
		clear(e.TypeIDs)
	}
	if !special {
		return all
	}
	out := []*Encoding{r.cls.encoding(0), all[0], r.sep.encoding(0)}
	for _, e := range all[1:] {
		out = append(out, r.sep.encoding(0), e, r.sep.encoding(0))
	}
	return out
}

// byteLevelTrim is the processor ByteLevel.
type byteLevelTrim struct{ trim, addPrefixSpace bool }

func (byteLevelTrim) added(bool) int { return 0 }

func (b byteLevelTrim) process(_ *Tokenizer, _ bool, all []*Encoding) []*Encoding {
	if b.trim {
		for _, e := range all {
			trim(e, b.addPrefixSpace)
		}
	}
	return all
}

// template has a form for one text and one for a pair.
type template struct {
	single, pair []piece
	tokens       map[string]*Encoding
}

// piece is a text or a special token of a template.
type piece struct {
	Sequence *struct {
		ID     string `json:"id"`
		TypeID int32  `json:"type_id"`
	} `json:"Sequence"`
	SpecialToken *struct {
		ID     string `json:"id"`
		TypeID int32  `json:"type_id"`
	} `json:"SpecialToken"`
}

func (m *template) form(pair bool) []piece {
	if pair {
		return m.pair
	}
	return m.single
}

func (m *template) added(pair bool) int {
	n := 0
	for _, p := range m.form(pair) {
		if p.SpecialToken != nil {
			n += m.tokens[p.SpecialToken.ID].Len()
		}
	}
	return n
}

func (m *template) process(_ *Tokenizer, special bool, all []*Encoding) []*Encoding {
	var out []*Encoding
	for _, p := range m.form(len(all) > 1) {
		e := &Encoding{}
		switch {
		case p.Sequence != nil:
			i := 0
			if p.Sequence.ID == "B" {
				i = 1
			}
			e.append(all[i], p.Sequence.TypeID)
			e.source = all[i].source
		case special:
			e.append(m.tokens[p.SpecialToken.ID], p.SpecialToken.TypeID)
		default:
			continue
		}
		out = append(out, e)
	}
	return out
}

func parseProcessor(b json.RawMessage) ([]processor, error) {
	k, err := kind(b)
	if err != nil || k == "" {
		return nil, err
	}
	var c struct {
		Cls            special `json:"cls"`
		Sep            special `json:"sep"`
		TrimOffsets    *bool   `json:"trim_offsets"`
		AddPrefixSpace *bool   `json:"add_prefix_space"`
		Single         []piece `json:"single"`
		Pair           []piece `json:"pair"`
		Tokens         map[string]struct {
			IDs    []int32  `json:"ids"`
			Tokens []string `json:"tokens"`
		} `json:"special_tokens"`
		Processors []json.RawMessage `json:"processors"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	switch k {
	case "Sequence":
		var all []processor
		for _, p := range c.Processors {
			more, err := parseProcessor(p)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
		return all, nil
	case "BertProcessing":
		return []processor{&bert{c.Cls, c.Sep}}, nil
	case "RobertaProcessing":
		return []processor{&roberta{c.Cls, c.Sep, yes(c.TrimOffsets), yes(c.AddPrefixSpace)}}, nil
	case "ByteLevel":
		return []processor{byteLevelTrim{yes(c.TrimOffsets), yes(c.AddPrefixSpace)}}, nil
	case "TemplateProcessing":
		m := &template{single: c.Single, pair: c.Pair, tokens: map[string]*Encoding{}}
		for name, s := range c.Tokens {
			if len(s.IDs) != len(s.Tokens) {
				return nil, fmt.Errorf("special_tokens: %s has %d numbers and %d tokens", safeio.Quote(name), len(s.IDs), len(s.Tokens))
			}
			e := &Encoding{}
			for i, id := range s.IDs {
				e.add(id, 0, s.Tokens[i], [2]int{}, -1, 1)
			}
			m.tokens[name] = e
		}
		for _, p := range append(c.Single[:len(c.Single):len(c.Single)], c.Pair...) {
			switch {
			case p.Sequence != nil && p.SpecialToken == nil && (p.Sequence.ID == "A" || p.Sequence.ID == "B"):
			case p.Sequence == nil && p.SpecialToken != nil && m.tokens[p.SpecialToken.ID] != nil:
			default:
				return nil, errors.New("got a piece that is neither a text nor one of special_tokens")
			}
		}
		for _, p := range c.Single {
			if p.Sequence != nil && p.Sequence.ID == "B" {
				return nil, errors.New("single: got text B")
			}
		}
		return []processor{m}, nil
	}
	return nil, unsupported(k)
}
