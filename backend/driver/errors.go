package driver

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// IndexError is the error of a run in which an index of Gather, ScatterAdd,
// TakeAlongAxis or ScatterAlongAxis is outside the axis that it points into: a label that
// the model has no output for, a word that is not in the vocabulary.
type IndexError struct {
	Path     string  // recorder's path
	Op       op.Code // the operation
	Got      int64   // the index; op.NotIndex also stands for a float that is NaN or has a fraction
	Position int     // where it stands among the indices, counted in row-major order
	Size     int     // size of the axis; indices from 0 to Size-1 are in range
}

// Error prints
// "layer loss: TakeAlongAxis: index 12 at position 3 is out of range, want 0 to 9".
func (e *IndexError) Error() string {
	where := ""
	if e.Path != "" {
		where = "layer " + e.Path + ": "
	}
	want := fmt.Sprintf("want 0 to %d", e.Size-1)
	if e.Size == 0 {
		want = "the axis is empty"
	}
	if e.Got == op.NotIndex {
		want += fmt.Sprintf("; NaN and numbers with a fraction count as %d", op.NotIndex)
	}
	return fmt.Sprintf("%s%v: index %d at position %d is out of range, %s", where, e.Op, e.Got, e.Position, want)
}
