package tensor

import (
	"context"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestTwoRecordings: tensors of two recordings do not mix. A program cannot
// have two going on at a time, but a mistake here could.
func TestTwoRecordings(t *testing.T) {
	a, b := Placeholder(dtype.Float32, 2), Placeholder(dtype.Float32, 2)
	a.trace, b.trace = &trace{}, &trace{}
	err := func() (err error) {
		defer Catch(&err)
		a.Add(b)
		return nil
	}()
	if err == nil || err.Error() != "Add: the arguments belong to two Functions" {
		t.Errorf("got error %v", err)
	}
}

// TestCurrent: only the goroutine that records is in the recording.
func TestCurrent(t *testing.T) {
	var c core
	var mine, other *trace
	err := c.record(context.Background(), false, func(tr *trace) {
		mine = current()
		var wg sync.WaitGroup
		wg.Go(func() { other = current() })
		wg.Wait()
		if mine != tr {
			t.Error("the recording is not known to its goroutine")
		}
	}, func(*trace) error { return nil })
	if err != nil || other != nil || current() != nil {
		t.Errorf("got %v, %v and %v, want no recording elsewhere or afterwards", err, other, current())
	}
}
