package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Parse reads the content of a tokenizer.json.
func Parse(content []byte) (*Tokenizer, error) {
	t, err := parse(content)
	if err != nil {
		return nil, safeio.Short(fmt.Errorf("tokenizer: %w", err))
	}
	return t, nil
}

// file is a tokenizer.json.
type file struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	Model         json.RawMessage `json:"model"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Padding       *struct {
		ID *int32 `json:"pad_id"`
	} `json:"padding"`
}

func parse(b []byte) (*Tokenizer, error) {
	if err := safeio.JSON(b, maxValues, maxDepth); err != nil {
		return nil, err
	}
	var f file
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, err
	}
	t := &Tokenizer{}
	var err error
	if t.model, err = parseModel(f.Model); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if t.normalize, err = parseNormalizer(f.Normalizer); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if t.split, err = parsePreTokenizer(f.PreTokenizer); err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	if t.decode, err = parseDecoder(f.Decoder); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	processors, err := parseProcessor(f.PostProcessor)
	if err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if err := t.addTokens(f.AddedTokens); err != nil {
		return nil, err
	}
	t.setProcessors(processors)
	t.setPad(t.defaultPad())
	if f.Padding != nil && f.Padding.ID != nil {
		t.setPad(*f.Padding.ID)
	}
	return t, nil
}

// addTokens adds tokens to the model's.
func (t *Tokenizer) addTokens(all []addedToken) error {
	t.byID, t.byContent = map[int32]addedToken{}, map[string]int32{}
	t.raw, t.normalized = patterns{}, patterns{}
	for _, a := range all {
		if a.ID < 0 || a.Content == "" {
			return fmt.Errorf("added_tokens: got token %s with number %d", safeio.Quote(a.Content), a.ID)
		}
		if id, ok := t.model.id(a.Content); ok && id != a.ID {
			return fmt.Errorf("added_tokens: token %s has number %d, and %d in the model's vocabulary", safeio.Quote(a.Content), a.ID, id)
		}
		t.byContent[a.Content] = a.ID
		to := t.raw
		if a.Normalized {
			to = t.normalized
			if t.normalize != nil {
				a.Content = t.normalize(textOf(a.Content, 0)).String()
			}
		}
		to.add([]rune(a.Content), a)
		t.byID[a.ID] = a
	}
	return nil
}

// kind returns the type of an object of the file; "" for null.
func kind(b json.RawMessage) (string, error) {
	if len(b) == 0 || string(b) == "null" {
		return "", nil
	}
	var k struct{ Type string }
	if err := json.Unmarshal(b, &k); err != nil {
		return "", err
	}
	if k.Type == "" {
		return "", errors.New("an object has no type")
	}
	return k.Type, nil
}

func unsupported(k string) error {
	return fmt.Errorf("got type %s, which is not supported", safeio.Quote(k))
}

// yes is the value of an optional bool that is true by default.
func yes(b *bool) bool { return b == nil || *b }

func parseNormalizer(b json.RawMessage) (normalizer, error) {
	k, err := kind(b)
	if err != nil || k == "" {
		return nil, err
	}
	var c struct {
		CleanText     *bool             `json:"clean_text"`
		HandleChinese *bool             `json:"handle_chinese_chars"`
		StripAccents  *bool             `json:"strip_accents"`
		Lowercase     *bool             `json:"lowercase"`
		StripLeft     *bool             `json:"strip_left"`
		StripRight    *bool             `json:"strip_right"`
		Prepend       string            `json:"prepend"`
		Content       string            `json:"content"`
		Pattern       json.RawMessage   `json:"pattern"`
		Normalizers   []json.RawMessage `json:"normalizers"`
		Charsmap      []byte            `json:"precompiled_charsmap"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	switch k {
	case "Sequence":
		var all []normalizer
		for _, n := range c.Normalizers {
			f, err := parseNormalizer(n)
			if err != nil {
				return nil, err
			}
			if f != nil {
				all = append(all, f)
			}
		}
		return sequence(all), nil
	case "BertNormalizer":
		var all []normalizer
		if yes(c.CleanText) {
			all = append(all, clean)
		}
		if yes(c.HandleChinese) {
			all = append(all, spaceChinese)
		}
		if c.StripAccents == nil && yes(c.Lowercase) || c.StripAccents != nil && *c.StripAccents {
			all = append(all, stripAccents)
		}
		if yes(c.Lowercase) {
			all = append(all, lowercase)
		}
		return sequence(all), nil
	case "NFC":
		return form(norm.NFC), nil
	case "NFD":
		return form(norm.NFD), nil
	case "NFKC":
		return form(norm.NFKC), nil
	case "NFKD":
		return form(norm.NFKD), nil
	case "Lowercase":
		return lowercase, nil
	case "StripAccents":
		return func(t text) text { return t.filter(func(r rune) bool { return !sets().mark.has(r) }) }, nil
	case "Strip":
		return strip(yes(c.StripLeft), yes(c.StripRight)), nil
	case "Prepend":
		with := []rune(c.Prepend)
		return func(t text) text { return prepend(t, with) }, nil
	case "Replace":
		find, err := parsePattern(c.Pattern)
		return replaceMatches(find, []rune(c.Content)), err
	case "Precompiled":
		m, err := parseCharsmap(c.Charsmap)
		if err != nil {
			return nil, err
		}
		return m.normalize, nil
	}
	return nil, unsupported(k)
}

// sequence makes one normalizer of several.
func sequence(all []normalizer) normalizer {
	return func(t text) text {
		for _, f := range all {
			t = f(t)
		}
		return t
	}
}

func parsePreTokenizer(b json.RawMessage) (splitter, error) {
	k, err := kind(b)
	if err != nil || k == "" {
		return nil, err
	}
	var c struct {
		AddPrefixSpace   *bool             `json:"add_prefix_space"`
		UseRegex         *bool             `json:"use_regex"`
		Replacement      string            `json:"replacement"`
		PrependScheme    string            `json:"prepend_scheme"`
		Split            *bool             `json:"split"`
		Behavior         string            `json:"behavior"`
		Invert           bool              `json:"invert"`
		Pattern          json.RawMessage   `json:"pattern"`
		IndividualDigits bool              `json:"individual_digits"`
		PreTokenizers    []json.RawMessage `json:"pretokenizers"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	all := sets()
	behavior := func(unset string) (string, error) {
		if c.Behavior == "" && unset != "" {
			return unset, nil
		}
		if !slices.Contains([]string{removed, isolated, previous, following, contiguous}, c.Behavior) {
			return "", fmt.Errorf("behavior: got %s", safeio.Quote(c.Behavior))
		}
		return c.Behavior, nil
	}
	switch k {
	case "Sequence":
		var all []splitter
		for _, p := range c.PreTokenizers {
			f, err := parsePreTokenizer(p)
			if err != nil {
				return nil, err
			}
			if f != nil {
				all = append(all, f)
			}
		}
		return func(pieces []text) []text {
			for _, f := range all {
				pieces = f(pieces)
			}
			return pieces
		}, nil
	case "BertPreTokenizer":
		return words(all.white, all.punctuation), nil
	case "WhitespaceSplit":
		return words(all.white, nil), nil
	case "Whitespace":
		return wordsAndOthers(), nil
	case "ByteLevel":
		return byteLevel(yes(c.AddPrefixSpace), yes(c.UseRegex)), nil
	case "Metaspace":
		mark, scheme, err := metaspaceFields(c.Replacement, c.PrependScheme, c.AddPrefixSpace)
		return metaspace(mark, scheme, yes(c.Split)), err
	case "Punctuation":
		how, err := behavior(isolated)
		return separate(members(all.punctuation), how, false), err
	case "Digits":
		if c.IndividualDigits {
			return separate(members(all.numeric), isolated, false), nil
		}
		return separate(members(all.numeric), contiguous, false), nil
	case "Split":
		how, err := behavior("")
		if err != nil {
			return nil, err
		}
		find, err := parsePattern(c.Pattern)
		return separate(find, how, c.Invert), err
	}
	return nil, unsupported(k)
}

// metaspaceFields checks the fields of Metaspace.
func metaspaceFields(replacement, scheme string, addPrefixSpace *bool) (rune, string, error) {
	mark, n := utf8.DecodeRuneInString(replacement)
	if n == 0 || n != len(replacement) {
		return 0, "", fmt.Errorf("replacement: got %s, want one character", safeio.Quote(replacement))
	}
	switch scheme {
	case always, first, never:
	case "": // of earlier versions
		scheme = always
		if !yes(addPrefixSpace) {
			scheme = never
		}
	default:
		return 0, "", fmt.Errorf("prepend_scheme: got %s", safeio.Quote(scheme))
	}
	return mark, scheme, nil
}

func parseModel(b json.RawMessage) (model, error) {
	var c struct {
		Type          string          `json:"type"`
		Vocab         json.RawMessage `json:"vocab"`
		UnkToken      *string         `json:"unk_token"`
		UnkID         *int32          `json:"unk_id"`
		Prefix        *string         `json:"continuing_subword_prefix"`
		Suffix        *string         `json:"end_of_word_suffix"`
		MaxInputChars *int            `json:"max_input_chars_per_word"`
		Merges        json.RawMessage `json:"merges"`
		Dropout       *float64        `json:"dropout"`
		FuseUnk       bool            `json:"fuse_unk"`
		ByteFallback  bool            `json:"byte_fallback"`
		IgnoreMerges  bool            `json:"ignore_merges"`
	}
	if len(b) == 0 {
		return nil, errors.New("there is none")
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	if c.Type == "" { // of earlier versions
		switch {
		case c.Merges != nil:
			c.Type = "BPE"
		case c.MaxInputChars != nil:
			c.Type = "WordPiece"
		case c.UnkID != nil:
			c.Type = "Unigram"
		}
	}
	if c.Type == "Unigram" {
		return parseUnigram(c.Vocab, c.UnkID, c.ByteFallback)
	}
	var ids map[string]int32
	if err := json.Unmarshal(c.Vocab, &ids); err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	for s, id := range ids {
		if id < 0 {
			return nil, fmt.Errorf("vocab: token %s has number %d", safeio.Quote(s), id)
		}
	}
	v := newVocabulary(ids)
	unknown := int32(-1)
	if c.UnkToken != nil {
		if id, ok := ids[*c.UnkToken]; ok {
			unknown = id
		}
	}
	text := func(s *string, unset string) string {
		if s == nil {
			return unset
		}
		return *s
	}
	switch c.Type {
	case "WordPiece":
		most := 100
		if c.MaxInputChars != nil {
			most = *c.MaxInputChars
		}
		if unknown < 0 {
			return nil, errors.New("the vocabulary has no unk_token")
		}
		return newWordPiece(v, text(c.Prefix, "##"), unknown, most), nil
	case "WordLevel":
		return &wordLevel{v, unknown}, nil
	case "BPE":
		if c.Dropout != nil && *c.Dropout != 0 {
			return nil, fmt.Errorf("dropout: got %v, want none", *c.Dropout)
		}
		m := &bpe{vocabulary: v, unknown: unknown, fuseUnknown: c.FuseUnk, byteFallback: c.ByteFallback, ignoreMerges: c.IgnoreMerges,
			prefix: text(c.Prefix, ""), suffix: text(c.Suffix, ""), bytes: v.byteTokens()}
		merges, err := parseMerges(c.Merges)
		if err != nil {
			return nil, err
		}
		return m, m.setMerges(merges)
	}
	return nil, unsupported(c.Type)
}

func newWordPiece(v vocabulary, prefix string, unknown int32, most int) *wordPiece {
	w := &wordPiece{vocabulary: v, prefix: prefix, unknown: unknown, most: most}
	for s := range v.ids {
		w.longest = max(w.longest, len(s))
	}
	return w
}

// parseMerges reads merges: lists of two tokens, or texts with a space between them.
func parseMerges(b json.RawMessage) ([][2]string, error) {
	var lists [][2]string
	if json.Unmarshal(b, &lists) == nil {
		return lists, nil
	}
	var lines []string
	if err := json.Unmarshal(b, &lines); err != nil {
		return nil, fmt.Errorf("merges: %w", err)
	}
	return splitMerges(lines)
}

// splitMerges splits lines of two tokens.
func splitMerges(lines []string) (all [][2]string, err error) {
	for i, l := range lines {
		a, b, ok := strings.Cut(l, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, fmt.Errorf("merges: number %d is %s, want two tokens", i, safeio.Quote(l))
		}
		all = append(all, [2]string{a, b})
	}
	return all, nil
}

// setMerges numbers the merges.
func (b *bpe) setMerges(all [][2]string) error {
	b.merges = make(map[pair]merged, len(all))
	for rank, m := range all {
		var p pair
		for i, s := range m {
			id, ok := b.ids[s]
			if !ok {
				return fmt.Errorf("merges: number %d has %s, which is not in the vocabulary", rank, safeio.Quote(s))
			}
			p[i] = id
		}
		whole := m[0] + strings.TrimPrefix(m[1], b.prefix)
		id, ok := b.ids[whole]
		if !ok {
			return fmt.Errorf("merges: number %d makes %s, which is not in the vocabulary", rank, safeio.Quote(whole))
		}
		b.merges[p] = merged{int32(rank), id}
	}
	return nil
}

func parseUnigram(b json.RawMessage, unk *int32, byteFallback bool) (model, error) {
	var pairs []json.RawMessage
	if err := json.Unmarshal(b, &pairs); err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	tokens, scores := make([]string, len(pairs)), make([]float64, len(pairs))
	v := vocabulary{make(map[string]int32, len(pairs)), make(map[int32]string, len(pairs))}
	for i, p := range pairs {
		both := []any{&tokens[i], &scores[i]}
		if err := json.Unmarshal(p, &both); err != nil || len(both) != 2 {
			return nil, fmt.Errorf("vocab: number %d is %s, want a token and a number", i, safeio.Quote(p))
		}
		v.ids[tokens[i]], v.contents[int32(i)] = int32(i), tokens[i]
	}
	unknown := int32(-1)
	if unk != nil {
		if unknown = *unk; unknown < 0 || int(unknown) >= len(tokens) {
			return nil, fmt.Errorf("unk_id: got %d, want less than %d", unknown, len(tokens))
		}
	}
	u := newUnigram(v, tokens, scores, unknown)
	u.byteFallback, u.bytes = byteFallback, v.byteTokens()
	return u, nil
}

func parseDecoder(b json.RawMessage) (decoder, error) {
	k, err := kind(b)
	if err != nil || k == "" {
		return nil, err
	}
	var c struct {
		Prefix         *string           `json:"prefix"`
		Cleanup        *bool             `json:"cleanup"`
		Replacement    string            `json:"replacement"`
		PrependScheme  string            `json:"prepend_scheme"`
		AddPrefixSpace *bool             `json:"add_prefix_space"`
		Suffix         *string           `json:"suffix"`
		Pattern        json.RawMessage   `json:"pattern"`
		Content        string            `json:"content"`
		Start          int               `json:"start"`
		Stop           int               `json:"stop"`
		Decoders       []json.RawMessage `json:"decoders"`
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	switch k {
	case "Sequence":
		var all []decoder
		for _, d := range c.Decoders {
			f, err := parseDecoder(d)
			if err != nil {
				return nil, err
			}
			if f != nil {
				all = append(all, f)
			}
		}
		return func(tokens []string) []string {
			for _, f := range all {
				tokens = f(tokens)
			}
			return tokens
		}, nil
	case "WordPiece":
		prefix := "##"
		if c.Prefix != nil {
			prefix = *c.Prefix
		}
		return wordPieceDecoder(prefix, yes(c.Cleanup)), nil
	case "ByteLevel":
		return byteLevelDecoder, nil
	case "Metaspace":
		mark, scheme, err := metaspaceFields(c.Replacement, c.PrependScheme, c.AddPrefixSpace)
		return metaspaceDecoder(mark, scheme), err
	case "BPEDecoder":
		suffix := "</w>"
		if c.Suffix != nil {
			suffix = *c.Suffix
		}
		return bpeDecoder(suffix), nil
	case "Fuse":
		return func(tokens []string) []string { return []string{strings.Join(tokens, "")} }, nil
	case "ByteFallback":
		return byteFallbackDecoder, nil
	case "Replace":
		find, err := parsePattern(c.Pattern)
		return mapTokens(func(_ int, s string) string { return replaceString(find, s, c.Content) }), err
	case "Strip":
		r, n := utf8.DecodeRuneInString(c.Content)
		if n == 0 || n != len(c.Content) || c.Start < 0 || c.Stop < 0 || c.Start > maxFile || c.Stop > maxFile {
			return nil, fmt.Errorf("got content %s, start %d and stop %d", safeio.Quote(c.Content), c.Start, c.Stop)
		}
		return stripDecoder(r, c.Start, c.Stop), nil
	}
	return nil, unsupported(k)
}
