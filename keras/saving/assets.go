package saving

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// Vocabularies may be members of a `.keras` file, a word in each line, such as
// assets/layers/string_lookup/vocabulary.txt: that is where Keras keeps what a
// layer has learned; what it was given is in the config. Save makes no
// difference, for Keras takes either, and Load reads either.

// withVocabulary are the classes that have one.
var withVocabulary = []string{"StringLookup", "IntegerLookup", "TextVectorization"}

const vocabulary = "vocabulary" // the field

// vocabularyFiles are the members with the vocabulary of a layer at path; Keras
// reads each of them.
func vocabularyFiles(path, class string) []string {
	all := []string{"assets/" + path + "/vocabulary.txt"}
	if class == "TextVectorization" {
		all = append(all, "assets/"+path+"/_lookup_layer/vocabulary.txt")
	}
	return all
}

// counter names layers as the paths of variables do: by their classes, counted.
type counter map[string]int

func (c counter) next(class string) string {
	name := callspec.SnakeCase(class)
	k := c[name]
	c[name]++
	if k > 0 {
		name += "_" + strconv.Itoa(k)
	}
	return name
}

// lineBreaks end a line for Python.
const lineBreaks = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

// inLines reports whether a vocabulary can be written with a word in each line.
func inLines(words []any) bool {
	return len(words) > 0 && words[len(words)-1] != "" && !slices.ContainsFunc(words, func(w any) bool {
		s, ok := w.(string)
		return ok && strings.ContainsAny(s, lineBreaks)
	})
}

// takeVocabularies moves vocabularies from the description of a model into
// members. Those of layers that make vectors stay: Keras builds layers, and must
// know the sizes of vectors, before it reads members.
func takeVocabularies(o *object, path string, into map[string]string) {
	all, _ := o.Config["layers"].([]*object)
	count := counter{}
	for _, l := range all {
		at := path + "layers/" + count.next(l.Class)
		takeVocabularies(l, at+"/", into)
		takeVocabulary(l, at, into)
	}
}

// takeVocabulary is takeVocabularies for the layer at a path.
func takeVocabulary(l *object, at string, into map[string]string) {
	words, _ := l.Config[vocabulary].([]any)
	if !slices.Contains(withVocabulary, l.Class) || l.Config["output_mode"] != "int" || !inLines(words) {
		return
	}
	lines := make([]string, len(words))
	for i, w := range words {
		lines[i] = fmt.Sprint(w)
	}
	for _, name := range vocabularyFiles(at, l.Class) {
		into[name] = strings.Join(lines, "\n")
	}
	l.Config[vocabulary] = nil
}

// giveVocabularies does the opposite: it fills in the vocabularies that the
// decoded description of a model lacks and the archive has.
func (a *archive) giveVocabularies(config map[string]any, path string, root *weightFile) error {
	all, _ := config["layers"].([]any)
	count := counter{}
	for _, x := range all {
		l, _ := x.(map[string]any)
		class, _ := l["class_name"].(string)
		inner, _ := l["config"].(map[string]any)
		at := path + "layers/" + count.next(class)
		if err := a.giveVocabularies(inner, at+"/", root); err != nil {
			return err
		}
		if err := a.giveVocabulary(inner, class, at, root); err != nil {
			return err
		}
	}
	return nil
}

// giveVocabulary is giveVocabularies for the layer of a class at a path.
func (a *archive) giveVocabulary(config map[string]any, class, at string, root *weightFile) error {
	if !slices.Contains(withVocabulary, class) || config == nil || config[vocabulary] != nil {
		return nil
	}
	name := vocabularyFiles(at, class)[0]
	if a.members[name] == nil {
		return nil
	}
	words, err := a.vocabulary(name, class == "IntegerLookup")
	if err != nil {
		return err
	}
	config[vocabulary] = words
	if config["output_mode"] != "tf_idf" {
		return nil
	}
	all, err := root.frequencies(at, len(words)+maxWords)
	if err != nil {
		return err
	}
	if len(all) < len(words) {
		return fmt.Errorf("%s/%s: got %d numbers, want one for each of the %d words in %s", at, frequenciesName, len(all), len(words), name)
	}
	config[frequenciesName] = all[:len(words)] // what follows pads them
	return nil
}

// wordsOf takes the lines of a vocabulary apart; empty ones at the end are
// none. It returns nil if there are more than most.
func wordsOf(text string, integers bool, most int64) []any {
	words := []any{}
	add := func(w string) bool {
		var x any = w
		if integers {
			x = json.Number(w)
		}
		words = append(words, x)
		return int64(len(words)) <= most
	}
	if text = strings.TrimRight(text, lineBreaks); text == "" {
		return words
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		from := 0
		for i, r := range line {
			if strings.ContainsRune(lineBreaks, r) {
				if !add(line[from:i]) {
					return nil
				}
				from = i + utf8.RuneLen(r)
			}
		}
		if !add(line[from:]) {
			return nil
		}
	}
	return words
}
