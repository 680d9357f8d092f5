package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Sizes of files: the largest tokenizer.json in use have 40 MB.
const (
	maxFile   = 64 << 20 // bytes
	maxValues = 8 << 20  // of JSON
	maxDepth  = 32
)

// Read reads a tokenizer.json, or the files of a directory: tokenizer.json, or
// vocab.txt of BERT (with do_lower_case of tokenizer_config.json, true by
// default), or vocab.json and merges.txt of GPT-2. Of padding and truncation in the
// file only pad_id is used; see [Options].
func Read(path string) (*Tokenizer, error) {
	t, err := read(path)
	if err != nil {
		return nil, safeio.Short(fmt.Errorf("tokenizer: %s: %w", path, err))
	}
	return t, nil
}

func read(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		b, err := readFile(path)
		if err != nil {
			return nil, err
		}
		return parse(b)
	}
	b, err := readFile(filepath.Join(path, "tokenizer.json"))
	if err == nil {
		return parse(b)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if b, err = readFile(filepath.Join(path, "vocab.txt")); err == nil {
		return bertVocabulary(path, b)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if b, err = readFile(filepath.Join(path, "vocab.json")); err == nil {
		return gpt2Vocabulary(path, b)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("the directory has neither tokenizer.json nor vocab.txt nor vocab.json")
	}
	return nil, err
}

// readFile reads a file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxFile {
		return nil, fmt.Errorf("got %d bytes, want at most %d", size, maxFile)
	}
	return safeio.Read(f, int(size), "bytes")
}

// bertVocabulary makes BERT's tokenizer from a vocab.txt.
func bertVocabulary(dir string, b []byte) (*Tokenizer, error) {
	ids := map[string]int32{}
	for i, l := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		s := strings.TrimSuffix(string(l), "\r")
		if _, twice := ids[s]; twice {
			return nil, fmt.Errorf("vocab.txt: line %d repeats %s", i+1, safeio.Quote(s))
		}
		ids[s] = int32(i)
	}
	var c struct {
		Lower   *bool `json:"do_lower_case"`
		Accents *bool `json:"strip_accents"`
		Chinese *bool `json:"tokenize_chinese_chars"`
	}
	if text, err := readFile(filepath.Join(dir, "tokenizer_config.json")); err == nil {
		if err := safeio.JSON(text, 1<<17, maxDepth); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
		if err := json.Unmarshal(text, &c); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	t := &Tokenizer{split: words(sets().white, sets().punctuation), decode: wordPieceDecoder("##", true)}
	normalizers := []normalizer{clean}
	if yes(c.Chinese) {
		normalizers = append(normalizers, spaceChinese)
	}
	if c.Accents == nil && yes(c.Lower) || c.Accents != nil && *c.Accents {
		normalizers = append(normalizers, stripAccents)
	}
	if yes(c.Lower) {
		normalizers = append(normalizers, lowercase)
	}
	t.normalize = sequence(normalizers)
	var added []addedToken
	for _, s := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
		id, ok := ids[s]
		if !ok && s == "[MASK]" { // which only pretraining has
			continue
		}
		if !ok {
			return nil, fmt.Errorf("vocab.txt has no %s", s)
		}
		added = append(added, addedToken{ID: id, Content: s, Special: true})
	}
	t.model = newWordPiece(newVocabulary(ids), "##", ids["[UNK]"], 100)
	if err := t.addTokens(added); err != nil {
		return nil, err
	}
	t.setProcessors([]processor{&bert{cls: special{"[CLS]", ids["[CLS]"]}, sep: special{"[SEP]", ids["[SEP]"]}}})
	t.setPad(ids["[PAD]"])
	return t, nil
}

// gpt2Vocabulary makes GPT-2's tokenizer from vocab.json and merges.txt.
func gpt2Vocabulary(dir string, b []byte) (*Tokenizer, error) {
	if err := safeio.JSON(b, maxValues, 4); err != nil {
		return nil, fmt.Errorf("vocab.json: %w", err)
	}
	var ids map[string]int32
	if err := json.Unmarshal(b, &ids); err != nil {
		return nil, fmt.Errorf("vocab.json: %w", err)
	}
	text, err := readFile(filepath.Join(dir, "merges.txt"))
	if err != nil {
		return nil, err
	}
	var lines []string
	for l := range strings.Lines(string(text)) {
		if l = strings.TrimRight(l, "\r\n"); l != "" && !strings.HasPrefix(l, "#version") {
			lines = append(lines, l)
		}
	}
	merges, err := splitMerges(lines)
	if err != nil {
		return nil, err
	}
	m := &bpe{vocabulary: newVocabulary(ids), unknown: -1}
	if err := m.setMerges(merges); err != nil {
		return nil, err
	}
	t := &Tokenizer{split: byteLevel(false, true), decode: byteLevelDecoder, model: m}
	var added []addedToken
	if id, ok := ids["<|endoftext|>"]; ok {
		added = append(added, addedToken{ID: id, Content: "<|endoftext|>", Special: true})
	}
	if err := t.addTokens(added); err != nil {
		return nil, err
	}
	t.setProcessors(nil)
	t.setPad(t.defaultPad())
	return t, nil
}
