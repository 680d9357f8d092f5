package main

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// The grammar makes pairs of English sentences and their French translations. A
// translation must move words (adjectives behind the noun, pronouns before the verb,
// the time from the end to the front), must make words agree that are far apart, and
// must count as the French do (71 is "soixante et onze", 98 "quatre vingt dix huit").
// Each English sentence has one translation. All French verbs, nouns and adjectives
// begin with a consonant, so that nothing is elided.

// A pair is a sentence in both languages, as words.
type pair struct{ english, french []string }

// Persons of a verb, as places in verb.present and endings.
const (
	first = iota
	third
	firstPlural
	second
	thirdPlural
)

// Tenses.
const (
	present = iota
	past
	future
)

type verb struct {
	base, s, past      string
	present            [5]string // French, by person
	imperfect, futures string    // French stems
}

// er is a regular French verb.
func er(base, s, past, stem string) verb {
	return verb{base, s, past, [5]string{stem + "e", stem + "e", stem + "ons", stem + "ez", stem + "ent"}, stem, stem + "er"}
}

var verbs = []verb{
	er("find", "finds", "found", "trouv"), er("carry", "carries", "carried", "port"), er("keep", "keeps", "kept", "gard"),
	er("wash", "washes", "washed", "lav"), er("draw", "draws", "drew", "dessin"), er("look for", "looks for", "looked for", "cherch"),
	{"see", "sees", "saw", [5]string{"vois", "voit", "voyons", "voyez", "voient"}, "voy", "verr"},
	{"want", "wants", "wanted", [5]string{"veux", "veut", "voulons", "voulez", "veulent"}, "voul", "voudr"},
	{"sell", "sells", "sold", [5]string{"vends", "vend", "vendons", "vendez", "vendent"}, "vend", "vendr"},
	{"lose", "loses", "lost", [5]string{"perds", "perd", "perdons", "perdez", "perdent"}, "perd", "perdr"},
	{"take", "takes", "took", [5]string{"prends", "prend", "prenons", "prenez", "prennent"}, "pren", "prendr"},
	{"know", "knows", "knew", [5]string{"connais", "connaît", "connaissons", "connaissez", "connaissent"}, "connaiss", "connaîtr"},
	{"follow", "follows", "followed", [5]string{"suis", "suit", "suivons", "suivez", "suivent"}, "suiv", "suivr"},
	{"choose", "chooses", "chose", [5]string{"choisis", "choisit", "choisissons", "choisissez", "choisissent"}, "choisiss", "choisir"},
	{"paint", "paints", "painted", [5]string{"peins", "peint", "peignons", "peignez", "peignent"}, "peign", "peindr"},
}

var (
	imperfectEndings = [5]string{"ais", "ait", "ions", "iez", "aient"}
	futureEndings    = [5]string{"ai", "a", "ons", "ez", "ont"}
)

type noun struct {
	one, many     string
	french        string
	frenchPlural  string
	feminine, who bool // who: a person
}

// regular is a noun whose plurals end in s.
func regular(english, french string, feminine, who bool) noun {
	return noun{english, english + "s", french, french + "s", feminine, who}
}

var nouns = []noun{
	regular("cat", "chat", false, false), regular("dog", "chien", false, false), regular("cow", "vache", true, false),
	regular("girl", "fille", true, true), regular("boy", "garçon", false, true), regular("king", "roi", false, true),
	regular("queen", "reine", true, true), regular("doctor", "médecin", false, true), regular("singer", "chanteuse", true, true),
	regular("baker", "boulanger", false, true), regular("car", "voiture", true, false), regular("house", "maison", true, false),
	regular("table", "table", true, false), regular("book", "livre", false, false), regular("letter", "lettre", true, false),
	regular("flower", "fleur", true, false), regular("door", "porte", true, false), regular("bridge", "pont", false, false),
	{"woman", "women", "femme", "femmes", true, true}, {"mouse", "mice", "souris", "souris", true, false},
	{"horse", "horses", "cheval", "chevaux", false, false}, {"boat", "boats", "bateau", "bateaux", false, false},
	{"knife", "knives", "couteau", "couteaux", false, false}, {"key", "keys", "clé", "clés", true, false},
}

type adjective struct {
	english string
	french  [4]string // masculine, feminine, and their plurals
	before  bool      // it stands before the French noun
}

// plain is an adjective whose feminine ends in e and whose plurals end in s.
func plain(english, french string, before bool) adjective {
	return adjective{english, [4]string{french, french + "e", french + "s", french + "es"}, before}
}

var adjectives = []adjective{
	plain("small", "petit", true), plain("big", "grand", true),
	{"young", [4]string{"jeune", "jeune", "jeunes", "jeunes"}, true},
	{"old", [4]string{"vieux", "vieille", "vieux", "vieilles"}, true},
	{"new", [4]string{"nouveau", "nouvelle", "nouveaux", "nouvelles"}, true},
	{"beautiful", [4]string{"beau", "belle", "beaux", "belles"}, true},
	{"good", [4]string{"bon", "bonne", "bons", "bonnes"}, true},
	plain("black", "noir", false), plain("blue", "bleu", false), plain("green", "vert", false), plain("heavy", "lourd", false),
	{"white", [4]string{"blanc", "blanche", "blancs", "blanches"}, false},
	{"red", [4]string{"rouge", "rouge", "rouges", "rouges"}, false},
	{"quiet", [4]string{"tranquille", "tranquille", "tranquilles", "tranquilles"}, false},
	{"dry", [4]string{"sec", "sèche", "secs", "sèches"}, false},
}

type determiner struct {
	one, many string
	french    [3]string // masculine, feminine, plural
}

var determiners = []determiner{
	{"the", "the", [3]string{"le", "la", "les"}},
	{"the", "the", [3]string{"le", "la", "les"}}, // twice as often
	{"a", "", [3]string{"un", "une", "des"}},
	{"this", "these", [3]string{"ce", "cette", "ces"}},
	{"my", "my", [3]string{"mon", "ma", "mes"}},
	{"our", "our", [3]string{"notre", "notre", "nos"}},
	{"their", "their", [3]string{"leur", "leur", "leurs"}},
}

var pronouns = []struct {
	english, french string
	person          int
}{{"I", "je", first}, {"we", "nous", firstPlural}, {"you", "vous", second}, {"he", "il", third}, {"she", "elle", third}, {"they", "ils", thirdPlural}}

// objects are pronouns that stand behind the English verb and before the French one.
var objects = [][2]string{{"him", "le"}, {"her", "la"}, {"them", "les"}}

var months = [][2]string{
	{"january", "janvier"}, {"february", "février"}, {"march", "mars"}, {"april", "avril"}, {"may", "mai"}, {"june", "juin"},
	{"july", "juillet"}, {"august", "août"}, {"september", "septembre"}, {"october", "octobre"}, {"november", "novembre"}, {"december", "décembre"},
}

var periods = [][2]string{{"days", "jours"}, {"weeks", "semaines"}, {"months", "mois"}, {"minutes", "minutes"}}

var (
	englishUnits = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen")
	englishTens  = strings.Fields("- - twenty thirty forty fifty sixty seventy eighty ninety")
	ordinalUnits = strings.Fields("- first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth")
	ordinalTens  = strings.Fields("- - twentieth thirtieth")
	frenchUnits  = strings.Fields("zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize")
	frenchTens   = strings.Fields("- dix vingt trente quarante cinquante soixante soixante")
)

// englishNumber is n, from 1 to 99, in words.
func englishNumber(n int) string {
	if n < 20 {
		return englishUnits[n]
	}
	if n%10 == 0 {
		return englishTens[n/10]
	}
	return englishTens[n/10] + " " + englishUnits[n%10]
}

// ordinal is the ordinal number of n, from 1 to 31, in words.
func ordinal(n int) string {
	switch {
	case n < 20:
		return ordinalUnits[n]
	case n%10 == 0:
		return ordinalTens[n/10]
	}
	return englishTens[n/10] + " " + ordinalUnits[n%10]
}

// frenchNumber is n, from 1 to 99, in words without hyphens.
func frenchNumber(n int) string {
	switch {
	case n <= 16:
		return frenchUnits[n]
	case n < 20:
		return "dix " + frenchUnits[n-10]
	case n == 80:
		return "quatre vingts"
	case n > 80:
		return "quatre vingt " + frenchNumber(n-80)
	}
	tens, rest := frenchTens[n/10], n%10
	if n >= 70 {
		rest += 10
	}
	switch rest {
	case 0:
		return tens
	case 1, 11:
		return tens + " et " + frenchNumber(rest)
	}
	return tens + " " + frenchNumber(rest)
}

// conjugate returns the English verb phrase, and the French one with what stands
// before the verb.
func (v verb) conjugate(person, tense int, negated bool, before string) (english, french string) {
	s := person == third
	switch {
	case tense == future && negated:
		english = "will not " + v.base
	case tense == future:
		english = "will " + v.base
	case tense == past && negated:
		english = "did not " + v.base
	case tense == past:
		english = v.past
	case negated && s:
		english = "does not " + v.base
	case negated:
		english = "do not " + v.base
	case s:
		english = v.s
	default:
		english = v.base
	}
	switch tense {
	case present:
		french = v.present[person]
	case past:
		french = v.imperfect + imperfectEndings[person]
	case future:
		french = v.futures + futureEndings[person]
	}
	if french = strings.TrimSpace(before + " " + french); negated {
		french = "ne " + french + " pas"
	}
	return english, french
}

// generator draws sentences.
type generator struct{ *rand.Rand }

func pick[T any](g generator, from []T) T { return from[g.IntN(len(from))] }

// chance is true once in n times.
func (g generator) chance(n int) bool { return g.IntN(n) == 0 }

// phrase is a noun with what belongs to it; with a relative clause if clause says so.
func (g generator) phrase(clause bool) (english, french string, person int) {
	n, d := pick(g, nouns), pick(g, determiners)
	plural := g.chance(3)
	english, french, person = n.one, n.french, third
	gender, det, word := 0, d.french[0], d.one
	if n.feminine {
		gender, det = 1, d.french[1]
	}
	if plural {
		english, french, person = n.many, n.frenchPlural, thirdPlural
		gender, det, word = gender+2, d.french[2], d.many
	}
	if g.chance(2) {
		a := pick(g, adjectives)
		english = a.english + " " + english
		if a.before {
			french = a.french[gender] + " " + french
			if det == "des" {
				det = "de"
			}
		} else {
			french += " " + a.french[gender]
		}
	}
	if plural && g.chance(3) {
		k := 2 + g.IntN(98)
		english, french = englishNumber(k)+" "+english, frenchNumber(k)+" "+french
		if det == "des" || det == "de" {
			det = ""
		}
	}
	english, french = word+" "+english, det+" "+french
	if clause {
		relative := "that"
		if n.who {
			relative = "who"
		}
		e, f := g.clause(person)
		english, french = english+" "+relative+" "+e, french+" qui "+f
	}
	return english, french, person
}

// clause is a verb with its object.
func (g generator) clause(person int) (english, french string) {
	v, tense, negated := pick(g, verbs), g.IntN(3), g.chance(4)
	if g.chance(4) {
		o := pick(g, objects)
		english, french = v.conjugate(person, tense, negated, o[1])
		return english + " " + o[0], french
	}
	english, french = v.conjugate(person, tense, negated, "")
	e, f, _ := g.phrase(false)
	return english + " " + e, french + " " + f
}

// time is when something happens, or how long.
func (g generator) time() (english, french string) {
	switch g.IntN(3) {
	case 0:
		day, month := 1+g.IntN(31), pick(g, months)
		french = frenchNumber(day)
		if day == 1 {
			french = "premier"
		}
		return "on the " + ordinal(day) + " of " + month[0], "le " + french + " " + month[1]
	case 1:
		year := 1 + g.IntN(99)
		english = englishNumber(year)
		if year < 10 {
			english = "oh " + english
		}
		return "in nineteen " + english, "en mille neuf cent " + frenchNumber(year)
	}
	n, period := 2+g.IntN(98), pick(g, periods)
	return "for " + englishNumber(n) + " " + period[0], "pendant " + frenchNumber(n) + " " + period[1]
}

// sentence draws one sentence.
func (g generator) sentence() pair {
	var english, french string
	var person int
	if g.chance(3) {
		p := pick(g, pronouns)
		english, french, person = p.english, p.french, p.person
	} else {
		english, french, person = g.phrase(g.chance(4))
	}
	e, f := g.clause(person)
	english, french = english+" "+e, french+" "+f
	if g.chance(2) {
		e, f := g.time()
		english, french = english+" "+e, f+" , "+french
	}
	return pair{append(strings.Fields(english), "."), append(strings.Fields(french), ".")}
}

// sentences draws n different sentences from a seed.
func sentences(n int, seed uint64) []pair {
	g := generator{rand.New(rand.NewPCG(seed, 7))}
	seen := map[string]bool{}
	var all []pair
	for len(all) < n {
		p := g.sentence()
		if key := strings.Join(p.english, " "); !seen[key] {
			seen[key] = true
			all = append(all, p)
		}
	}
	return all
}

// The first words of a vocabulary.
const (
	padding = iota
	start
	end
	specials
)

// A vocabulary numbers words.
type vocabulary struct {
	words []string
	ids   map[string]int32
}

// newVocabulary numbers the words of texts in the order of the alphabet.
func newVocabulary(texts func(yield func([]string) bool)) *vocabulary {
	v := &vocabulary{ids: map[string]int32{}}
	for text := range texts {
		for _, w := range text {
			if _, known := v.ids[w]; !known {
				v.ids[w] = 0
				v.words = append(v.words, w)
			}
		}
	}
	slices.Sort(v.words)
	v.words = append([]string{padding: "", start: "<s>", end: "</s>"}, v.words...)
	for i, w := range v.words {
		v.ids[w] = int32(i)
	}
	return v
}

// encode returns the numbers of the words of a text.
func (v *vocabulary) encode(text []string) []int32 {
	out := make([]int32, len(text))
	for i, w := range text {
		out[i] = v.ids[w]
	}
	return out
}

// decode returns the words up to the end of a sentence.
func (v *vocabulary) decode(ids []int32) (text []string) {
	for _, id := range ids {
		if id == end {
			break
		}
		if id >= specials {
			text = append(text, v.words[id])
		}
	}
	return text
}
