package tokenizer

import (
	"container/heap"
	"fmt"
	"math"
	"unicode/utf8"
)

// token is a token of a piece of text: t[from:to] of its characters.
type token struct {
	id       int32
	from, to int
}

// model makes tokens of a piece of text.
type model interface {
	tokenize(t text) []token
	// id and content are the vocabulary.
	id(content string) (int32, bool)
	content(id int32) (string, bool)
	size() int
}

// vocabulary maps tokens and their numbers.
type vocabulary struct {
	ids      map[string]int32
	contents map[int32]string
}

func newVocabulary(ids map[string]int32) vocabulary {
	v := vocabulary{ids, make(map[int32]string, len(ids))}
	for s, id := range ids {
		v.contents[id] = s
	}
	return v
}

func (v vocabulary) id(s string) (int32, bool) {
	id, ok := v.ids[s]
	return id, ok
}

func (v vocabulary) content(id int32) (string, bool) {
	s, ok := v.contents[id]
	return s, ok
}

func (v vocabulary) size() int { return len(v.ids) }

// wordPiece takes the longest pieces that the vocabulary has, from the start of
// a word on (Wu et al. 2016).
type wordPiece struct {
	vocabulary
	prefix  string // of pieces that continue a word
	unknown int32
	longest int // bytes of the longest piece
	most    int // characters of a word; a longer one is unknown
}

func (w *wordPiece) tokenize(t text) []token {
	unknown := []token{{w.unknown, 0, len(t)}}
	if len(t) > w.most {
		return unknown
	}
	var all []token
	buf := make([]byte, 0, w.longest+utf8.UTFMax)
	for from := 0; from < len(t); {
		buf = buf[:0]
		if from > 0 {
			buf = append(buf, w.prefix...)
		}
		best, id := from, int32(0)
		for to := from; to < len(t); {
			buf = utf8.AppendRune(buf, t[to].r)
			if len(buf) > w.longest {
				break
			}
			to++
			if i, ok := w.ids[string(buf)]; ok {
				best, id = to, i
			}
		}
		if best == from {
			return unknown
		}
		all = append(all, token{id, from, best})
		from = best
	}
	return all
}

// wordLevel looks whole pieces up.
type wordLevel struct {
	vocabulary
	unknown int32 // -1: none
}

func (w *wordLevel) tokenize(t text) []token {
	id, ok := w.ids[t.String()]
	if !ok {
		id = w.unknown
	}
	if id < 0 {
		return nil
	}
	return []token{{id, 0, len(t)}}
}

// pair is two tokens side by side.
type pair [2]int32

// merged is the token that a pair becomes; pairs of lower ranks come first.
type merged struct{ rank, id int32 }

// bpe merges pairs of tokens, beginning with the characters (Sennrich et al.
// 2016).
type bpe struct {
	vocabulary
	merges       map[pair]merged
	unknown      int32 // -1: none
	fuseUnknown  bool
	byteFallback bool
	ignoreMerges bool
	prefix       string // of characters that do not begin a piece
	suffix       string // of characters that end one
	bytes        [256]int32
}

// symbol is a token in a list of them.
type symbol struct {
	id             int32
	from, to       int
	previous, next int
}

// candidate is a pair that may be merged.
type candidate struct {
	rank  int32
	at    int // index of the first symbol
	pair  pair
	newID int32
}

// queue has the candidates of the lowest rank first, and of these the leftmost.
type queue []candidate

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].rank < q[j].rank || q[i].rank == q[j].rank && q[i].at < q[j].at
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(x any) { *q = append(*q, x.(candidate)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	*q = (*q)[:last]
	return c
}

// symbols are the characters of a piece as tokens.
func (b *bpe) symbols(t text) []symbol {
	all := make([]symbol, 0, len(t))
	unknown := false // the last one
	for i, c := range t {
		s := string(c.r)
		if i > 0 {
			s = b.prefix + s
		}
		if i == len(t)-1 {
			s += b.suffix
		}
		if id, ok := b.ids[s]; ok {
			all = append(all, symbol{id: id, from: i, to: i + 1})
			unknown = false
			continue
		}
		if b.byteFallback {
			before := len(all)
			for _, x := range []byte(s) {
				if b.bytes[x] < 0 {
					all = all[:before]
					break
				}
				all = append(all, symbol{id: b.bytes[x], from: i, to: i + 1})
			}
			if len(all) > before {
				unknown = false
				continue
			}
		}
		switch {
		case b.unknown < 0:
		case unknown && b.fuseUnknown:
			all[len(all)-1].to = i + 1
		default:
			all = append(all, symbol{id: b.unknown, from: i, to: i + 1})
			unknown = true
		}
	}
	for i := range all {
		all[i].previous, all[i].next = i-1, i+1
	}
	if len(all) > 0 {
		all[len(all)-1].next = -1
	}
	return all
}

func (b *bpe) tokenize(t text) []token {
	if b.ignoreMerges {
		if id, ok := b.ids[t.String()]; ok {
			return []token{{id, 0, len(t)}}
		}
	}
	all := b.symbols(t)
	var q queue
	candidateAt := func(i int) (c candidate, ok bool) {
		if i < 0 || all[i].next < 0 {
			return c, false
		}
		p := pair{all[i].id, all[all[i].next].id}
		m, ok := b.merges[p]
		return candidate{m.rank, i, p, m.id}, ok
	}
	for i := range all {
		if c, ok := candidateAt(i); ok {
			q = append(q, c)
		}
	}
	heap.Init(&q)
	for len(q) > 0 {
		c := heap.Pop(&q).(candidate)
		s := &all[c.at]
		if s.id != c.pair[0] || s.next < 0 || all[s.next].id != c.pair[1] {
			continue // one of them was merged
		}
		next := &all[s.next]
		s.id, s.to = c.newID, next.to
		next.id = -1
		s.next = next.next
		if s.next >= 0 {
			all[s.next].previous = c.at
		}
		for _, i := range []int{s.previous, c.at} {
			if n, ok := candidateAt(i); ok {
				heap.Push(&q, n)
			}
		}
	}
	var out []token
	for i := 0; i >= 0 && i < len(all); i = all[i].next {
		out = append(out, token{all[i].id, all[i].from, all[i].to})
	}
	return out
}

// unigram finds the tokens of the largest probability together (Kudo 2018).
type unigram struct {
	vocabulary
	scores       []float64
	nodes        map[edge]int32 // of the trie of tokens; node 0 is the root
	ends         []int32        // token that ends at a node, or -1
	unknown      int32          // -1: none
	least        float64        // of the scores
	byteFallback bool
	bytes        [256]int32
}

// edge is a step in the trie of tokens.
type edge struct {
	node int32
	r    rune
}

// unknownPenalty is how much less probable an unknown character is than any token.
const unknownPenalty = 10

func newUnigram(v vocabulary, tokens []string, scores []float64, unknown int32) *unigram {
	u := &unigram{vocabulary: v, scores: scores, nodes: map[edge]int32{}, ends: []int32{-1}, unknown: unknown, least: math.Inf(1)}
	for i, s := range tokens {
		u.least = min(u.least, scores[i])
		node := int32(0)
		for _, r := range s {
			next, ok := u.nodes[edge{node, r}]
			if !ok {
				next = int32(len(u.ends))
				u.nodes[edge{node, r}] = next
				u.ends = append(u.ends, -1)
			}
			node = next
		}
		u.ends[node] = v.ids[s]
	}
	return u
}

func (u *unigram) tokenize(t text) []token {
	type best struct {
		id    int32
		score float64
		from  int // -1: no path ends here
	}
	paths := make([]best, len(t)+1)
	for i := range paths {
		paths[i].from = -1
	}
	for from := range t {
		so := paths[from].score
		reach := func(to int, id int32, score float64) {
			if p := &paths[to]; p.from < 0 || score > p.score {
				*p = best{id, score, from}
			}
		}
		single := false
		node := int32(0)
		for to := from; to < len(t); to++ {
			next, ok := u.nodes[edge{node, t[to].r}]
			if !ok {
				break
			}
			node = next
			if id := u.ends[node]; id >= 0 {
				reach(to+1, id, u.scores[id]+so)
				single = single || to == from
			}
		}
		if !single {
			reach(from+1, u.unknown, u.least-unknownPenalty+so)
		}
	}
	var out []token
	for to := len(t); to > 0; {
		p := paths[to]
		if last := len(out) - 1; last >= 0 && p.id == u.unknown && out[last].id == u.unknown {
			out[last].from = p.from
		} else {
			out = append(out, token{p.id, p.from, to})
		}
		to = p.from
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return u.resolve(t, out)
}

// resolve makes bytes of unknown characters where the vocabulary has them, and
// drops them if it has no token for them.
func (u *unigram) resolve(t text, all []token) []token {
	var out []token
	for _, k := range all {
		if k.id != u.unknown {
			out = append(out, k)
			continue
		}
		piece := t[k.from:k.to].String()
		if id, ok := u.ids[piece]; ok {
			out = append(out, token{id, k.from, k.to})
			continue
		}
		before := len(out)
		for i := 0; u.byteFallback && i < len(piece); i++ {
			id := u.bytes[piece[i]]
			if id < 0 {
				out = out[:before]
				break
			}
			out = append(out, token{id, k.from, k.to})
		}
		if len(out) == before && u.unknown >= 0 {
			out = append(out, k)
		}
	}
	return out
}

// byteTokens are the numbers of the tokens <0x00> to <0xFF>, or -1.
func (v vocabulary) byteTokens() (all [256]int32) {
	for b := range all {
		all[b] = -1
		if id, ok := v.ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			all[b] = id
		}
	}
	return all
}
