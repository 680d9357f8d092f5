package main

import (
	"math"
	"strings"
)

// bleu is the score of Papineni et al. 2002 of a corpus with one reference a sentence,
// in percent: the geometric mean of the precisions of 1-grams to 4-grams, times a
// penalty for translations that are shorter than the references. An n-gram counts as
// often as the reference has it. As sacrebleu's with tokenize="none" and smooth_method="none".
func bleu(translations, references [][]string) float64 {
	const order = 4
	var right, total [order]int
	got, want := 0, 0
	for i, t := range translations {
		got, want = got+len(t), want+len(references[i])
		for n := 1; n <= order; n++ {
			known := ngrams(references[i], n)
			for gram, count := range ngrams(t, n) {
				right[n-1] += min(count, known[gram])
				total[n-1] += count
			}
		}
	}
	sum := 0.0
	for n := range order {
		if right[n] == 0 {
			return 0
		}
		sum += math.Log(float64(right[n])/float64(total[n])) / order
	}
	if got < want {
		sum += 1 - float64(want)/float64(got)
	}
	return 100 * math.Exp(sum)
}

// ngrams counts the runs of n words.
func ngrams(text []string, n int) map[string]int {
	counts := map[string]int{}
	for i := range len(text) - n + 1 {
		counts[strings.Join(text[i:i+n], " ")]++
	}
	return counts
}
