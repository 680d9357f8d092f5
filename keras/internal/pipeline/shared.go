package pipeline

import "iter"

// Source is a dataset as its readers in this module see it.
type Source[T any] struct {
	Len  int // elements of an epoch, Unknown, or math.MaxInt: no end
	Form Form
	Open Opener[T]

	// Own opens batches for a reader that uses the rows from first to end-1 of own(rows)
	// alone; the other rows may hold anything. nil: batches are whole.
	Own func(own func(rows int) (first, end int)) Opener[T]
}

// Form tells whether the elements of a dataset have a batch axis.
type Form int8

const (
	AnyForm       Form = iota // not known: they come from a function of the program
	Samples                   // no
	Batches                   // yes
	LikelySamples             // no, unless the elements themselves tell otherwise
	LikelyBatches             // yes, unless they do
)

// Likely is the form of what a function makes of something that holds elements
// of form f.
func (f Form) Likely() Form {
	switch f {
	case Samples:
		return LikelySamples
	case Batches:
		return LikelyBatches
	}
	return f
}

// Hooks are what packages keras and keras/data have for each other and not for
// users. Each is set while its package is initialized. B is keras.Batch, which
// this package cannot name.
type Hooks[B any] struct {
	// Of package keras: stacks samples in memory that is used again as hold
	// allows; ends the turn of each batch when the next one is asked for; returns
	// the source of a *keras.Pipeline.
	Stacker  func(hold Hold) func(samples []B) (B, error)
	InTurn   func(iter.Seq2[B, error]) iter.Seq2[B, error]
	Pipeline func(d any) (s Source[B], ok bool)

	// Of package keras/data, and nil in programs without it: returns the source
	// of a *data.Dataset[keras.Batch].
	Dataset func(d any) (s Source[B], ok bool)
}

var shared any

// Shared returns the hooks of the program.
func Shared[B any]() *Hooks[B] {
	if shared == nil {
		shared = new(Hooks[B])
	}
	return shared.(*Hooks[B])
}
