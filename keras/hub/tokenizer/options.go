package tokenizer

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Options changes what Encode and Batch return.
type Options struct {
	NoSpecialTokens bool // leave out the tokens that mark starts and ends, such as [CLS]

	MaxLength    int    // cut texts so that there are at most so many tokens, special ones included; 0: as they are
	Truncation   string // which text of a pair to cut: "longest_first", the default, "only_first" or "only_second"
	TruncateLeft bool   // cut the starts of texts and not their ends

	PadTo   int    // pad to at least so many tokens; 0: Batch pads to the longest, Encode does not pad
	PadLeft bool   // pad before texts and not after them
	Pad     string // token to pad with; default: that of the file, or [PAD], <pad> or <|endoftext|>, or token 0
}

// truncations are the values of Options.Truncation.
var truncations = []string{"longest_first", "only_first", "only_second"}

// With returns a tokenizer with options in place of those that t has; t stays as it
// is. It returns an error if the vocabulary does not have Pad, for a Truncation other
// than those of [Options], for a negative PadTo or MaxLength, and for a MaxLength that
// has no room for the special tokens of a pair, which are never cut.
func (t *Tokenizer) With(o Options) (*Tokenizer, error) {
	c := *t
	c.options, c.padID = o, t.filePadID
	if o.Pad != "" {
		var ok bool
		if c.padID, ok = t.ID(o.Pad); !ok {
			return nil, optionError("Pad", safeio.Quote(o.Pad), "a token of the vocabulary")
		}
	}
	if o.Truncation != "" && !slices.Contains(truncations, o.Truncation) {
		return nil, optionError("Truncation", safeio.Quote(o.Truncation), fmt.Sprintf("one of %q", truncations))
	}
	if o.PadTo < 0 {
		return nil, optionError("PadTo", o.PadTo, "0 or more")
	}
	if o.MaxLength < 0 {
		return nil, optionError("MaxLength", o.MaxLength, "0 or more")
	}
	if n := max(t.added(false), t.added(true)); o.MaxLength > 0 && !o.NoSpecialTokens && o.MaxLength < n {
		return nil, optionError("MaxLength", o.MaxLength, fmt.Sprintf("0 or at least %d, the number of special tokens around a pair", n))
	}
	return &c, nil
}

func optionError(field string, got any, want string) error {
	return fmt.Errorf("tokenizer: With: %s is %v, want %s", field, got, want)
}

// defaultPad returns the number of the token to pad with that a file does not name.
func (t *Tokenizer) defaultPad() int32 {
	for _, s := range []string{"[PAD]", "<pad>", "<|endoftext|>"} {
		if id, ok := t.ID(s); ok {
			return id
		}
	}
	return 0
}

// setPad makes id the token to pad with, and With's default.
func (t *Tokenizer) setPad(id int32) { t.filePadID, t.padID = id, id }
