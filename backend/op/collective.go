package op

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// AllReduce is the attribute of AllReduceStart and AllReduceDone: the sum of tensors
// over the shards of a batch, which the ranks of a group have computed.
//
// Shards are numbered from 0. A rank has a range of them and gives the kernel partial
// sums, one for each of Partials. The sum is taken in the accumulator's type, in a fixed
// tree: neighbouring shards first, then neighbouring pairs. So it has the same bits for
// any number of ranks. It is multiplied by Scale and rounded to the Wire's type once.
//
// The value of AllReduceStart is what a rank sends: Ranks parts, one for each rank, of
// Partials rows with Part elements each. A device may order them in another way, and
// exchange them piece by piece.
//
// AllGatherStart and AllGatherDone have the same attribute. Of each tensor, as a vector, a
// rank has the part of PartOf elements that begins at Rank·PartOf; behind the last element
// parts are filled up with any numbers. Shards is Ranks, Scale is 1, and Wire the type of
// the tensors. The value of AllGatherStart are the rank's parts, one after the other.
type AllReduce struct {
	Group  int // driver.CommunicatorOf; unused by one rank
	Rank   int // of this process
	Ranks  int // in the group
	Shards int // at least Ranks
	Bucket int // number of the exchange in the program
	Shapes []Shape
	Wire   dtype.DType // on the way: the type of the arguments, or a 16-bit one
	Scale  float64     // factor of the sum
	Native bool        // the engine adds up float32, in its own order; Shards is Ranks

	// Scatter gives each rank the sums of its part of each tensor alone, as AllGather
	// takes them: a reduce-scatter.
	Scatter bool
}

// ShardsOf returns the range of shards of a rank: the first and the one after the last.
func ShardsOf(rank, ranks, shards int) (first, end int) {
	return rank * shards / ranks, (rank + 1) * shards / ranks
}

// Partials returns the largest blocks of the tree of sums that lie within the shards of
// a rank, each as its first shard and the one after its last.
func Partials(rank, ranks, shards int) (blocks [][2]int) {
	first, end := ShardsOf(rank, ranks, shards)
	for first < end {
		size := 1
		for first%(2*size) == 0 && min(first+2*size, shards) <= end && first+size < shards {
			size *= 2
		}
		next := min(first+size, shards)
		blocks = append(blocks, [2]int{first, next})
		first = next
	}
	return blocks
}

// Elements returns the number of elements of all tensors.
func (a *AllReduce) Elements() (n int) {
	for _, s := range a.Shapes {
		n += s.Size()
	}
	return n
}

// partAlign is what the elements of a part are a multiple of: a cache line of float32.
const partAlign = 16

// Part returns the number of elements that a rank adds up.
func (a *AllReduce) Part() int {
	n := PartOf(a.Elements(), a.Ranks)
	if a.Scatter {
		n = a.Gathered()
	}
	return (n + partAlign - 1) / partAlign * partAlign
}

// PartOf returns the number of elements of a vector of n that each rank has: the smallest
// number for which ranks parts hold them all.
func PartOf(n, ranks int) int { return (n + ranks - 1) / ranks }

// Gathered returns the number of elements of all tensors that a rank has.
func (a *AllReduce) Gathered() (n int) {
	for _, s := range a.Shapes {
		n += PartOf(s.Size(), a.Ranks)
	}
	return n
}

// Rows returns the rows of a part: the largest number of partial sums of a rank.
func (a *AllReduce) Rows() (n int) {
	for rank := range a.Ranks {
		n = max(n, len(Partials(rank, a.Ranks, a.Shards)))
	}
	return n
}

// Tree returns the tree of sums over the shards in postfix order: a number is the row of
// a partial sum among those of all ranks, rank·Rows plus its place among Partials;
// AddSums is the sum of the last two.
func (a *AllReduce) Tree() (tree []int) {
	rows := map[[2]int]int{}
	for rank := range a.Ranks {
		for i, b := range Partials(rank, a.Ranks, a.Shards) {
			rows[b] = rank*a.Rows() + i
		}
	}
	var visit func(lo, hi int)
	visit = func(lo, hi int) {
		if row, ok := rows[[2]int{lo, hi}]; ok {
			tree = append(tree, row)
			return
		}
		half := 1
		for 2*half < hi-lo {
			half *= 2
		}
		visit(lo, lo+half)
		visit(lo+half, hi)
		tree = append(tree, AddSums)
	}
	visit(0, a.Shards)
	return tree
}

// AddSums is an addition of AllReduce.Tree.
const AddSums = -1

// Sections returns where the tensors lie in the result, or their parts.
func (a *AllReduce) Sections() (all []Section) {
	at := 0
	for _, s := range a.Shapes {
		if a.Scatter {
			s = Shape{PartOf(s.Size(), a.Ranks)}
		}
		all = append(all, section(&at, s...))
	}
	return all
}

// Results returns the number of elements of the result.
func (a *AllReduce) Results() int {
	if a.Scatter {
		return a.Gathered()
	}
	return a.Elements()
}

// String describes the exchange; it is the same on all ranks.
func (a *AllReduce) String() string {
	s := fmt.Sprintf("bucket %d of %d ranks, %d shards, wire %v, scale %v", a.Bucket, a.Ranks, a.Shards, a.Wire, a.Scale)
	if a.Native {
		s += ", native"
	}
	if a.Scatter {
		s += ", scattered"
	}
	return fmt.Sprintf("%s: %v", s, a.Shapes)
}

func (a *AllReduce) appendKey(k []byte) []byte { return fmt.Appendf(k, "%d %d %v", a.Group, a.Rank, a) }

func (a *AllReduce) check() error {
	switch {
	case a == nil:
		return fmt.Errorf("no AllReduce attribute")
	case a.Rank < 0 || a.Rank >= a.Ranks:
		return fmt.Errorf("rank %d of %d", a.Rank, a.Ranks)
	case a.Shards < a.Ranks:
		return fmt.Errorf("%d shards for %d ranks", a.Shards, a.Ranks)
	case a.Native && a.Scatter:
		return fmt.Errorf("the engine adds up whole vectors, got an exchange that scatters")
	case a.Native && (a.Shards != a.Ranks || a.Wire != dtype.Float32):
		return fmt.Errorf("the engine adds up float32 of one shard for each rank, got %d shards and %v", a.Shards, a.Wire)
	}
	return nil
}

// inferAllReduceStart: the arguments are the tensors of each partial sum, one partial
// sum after the other, and then perhaps the exchange that must come before this one.
func inferAllReduceStart(attr Attr, t []Type) (Type, error) {
	a := attr.AllReduce
	if err := a.check(); err != nil {
		return Type{}, err
	}
	n := len(Partials(a.Rank, a.Ranks, a.Shards)) * len(a.Shapes)
	if len(a.Shapes) == 0 || len(t) < n || len(t) > n+1 {
		return Type{}, fmt.Errorf("got %d arguments, want %d", len(t), n)
	}
	d := t[0].DType
	if d != dtype.Float32 && d != dtype.Float64 {
		return Type{}, fmt.Errorf("got %v, want float32 or float64", t[0])
	}
	if a.Wire != d && !(d == dtype.Float32 && a.Wire.Is16()) {
		return Type{}, fmt.Errorf("%v cannot be sent as %v", d, a.Wire)
	}
	for i, x := range t[:n] {
		if want := (Type{d, a.Shapes[i%len(a.Shapes)]}); !x.Equal(want) {
			return Type{}, fmt.Errorf("argument %d is %v, want %v", i, x, want)
		}
	}
	return Type{a.Wire, Shape{a.Ranks * a.Rows() * a.Part()}}, nil
}

func inferAllReduceDone(attr Attr, t []Type) (Type, error) {
	a := attr.AllReduce
	if err := a.check(); err != nil {
		return Type{}, err
	}
	if want := (Type{a.Wire, Shape{a.Ranks * a.Rows() * a.Part()}}); !t[0].Equal(want) {
		return Type{}, fmt.Errorf("got %v, want %v", t[0], want)
	}
	return Type{a.Wire.Accumulator(), Shape{a.Results()}}, nil
}

func allReduceResults(attr Attr, _ []Type) []Section { return slices.Clip(attr.AllReduce.Sections()) }

// inferAllGatherStart: the arguments are this rank's parts of the tensors, and then perhaps
// the exchange that must come before this one.
func inferAllGatherStart(attr Attr, t []Type) (Type, error) {
	a := attr.AllReduce
	if err := a.checkGather(); err != nil {
		return Type{}, err
	}
	n := len(a.Shapes)
	if n == 0 || len(t) < n || len(t) > n+1 {
		return Type{}, fmt.Errorf("got %d arguments, want %d", len(t), n)
	}
	for i, x := range t[:n] {
		if want := (Type{a.Wire, Shape{PartOf(a.Shapes[i].Size(), a.Ranks)}}); !x.Equal(want) {
			return Type{}, fmt.Errorf("argument %d is %v, want %v", i, x, want)
		}
	}
	return Type{a.Wire, Shape{a.Gathered()}}, nil
}

func inferAllGatherDone(attr Attr, t []Type) (Type, error) {
	a := attr.AllReduce
	if err := a.checkGather(); err != nil {
		return Type{}, err
	}
	if want := (Type{a.Wire, Shape{a.Gathered()}}); !t[0].Equal(want) {
		return Type{}, fmt.Errorf("got %v, want %v", t[0], want)
	}
	return Type{a.Wire, Shape{a.Elements()}}, nil
}

func (a *AllReduce) checkGather() error {
	if err := a.check(); err != nil {
		return err
	}
	if a.Shards != a.Ranks || a.Scale != 1 || a.Native || a.Scatter || !a.Wire.IsFloat() {
		return fmt.Errorf("tensors of float types are gathered as they are, got %v", a)
	}
	return nil
}
