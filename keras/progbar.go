package keras

import (
	"io"
	"slices"
)

// Progbar prints the progress of a long task as Fit does
// (keras.utils.Progbar): on a terminal a bar that is redrawn in place,
// elsewhere one line at the end. It is not safe for use by several goroutines.
//
//	bar := keras.NewProgbar(os.Stderr)
//	texts, err := data.Lines("corpus.txt").Progress(bar.Update).Collect(ctx)
//	bar.Finish()
type Progbar struct {
	w    io.Writer
	mode Verbosity
	bar  *progress // nil: the line has ended
	last int

	items []logItem // means of the values so far
	sums  []float64 // of values times steps
	steps []int
}

// NewProgbar returns a bar that writes to w.
func NewProgbar(w io.Writer) *Progbar { return &Progbar{w: w} }

// Update shows that done of target units of work are done. target is -1 or
// Infinite if it is unknown. When done reaches target the line ends; a smaller
// done than before starts a new line.
func (b *Progbar) Update(done, target int) { b.UpdateWith(done, target) }

// UpdateWith is Update with values to show, as means over the units of work: each counts
// for those that are done since the last call, at least one (Keras: update(current,
// values)).
//
//	bar.UpdateWith(step+1, steps, keras.Log{Name: "loss", Value: loss})
func (b *Progbar) UpdateWith(done, target int, values ...Log) {
	if target == Infinite {
		target = -1
	}
	if done < b.last {
		b.Finish()
	}
	if b.bar == nil {
		b.bar = newProgress(b.w, b.mode.mode(), target)
	}
	for _, v := range values {
		i := slices.IndexFunc(b.items, func(l logItem) bool { return l.Name == v.Name })
		if i < 0 {
			i = len(b.items)
			b.items, b.sums, b.steps = append(b.items, logItem{Name: v.Name}), append(b.sums, 0), append(b.steps, 0)
		}
		n := max(done-b.last, 1)
		b.sums[i] += v.Value * float64(n)
		b.steps[i] += n
		b.items[i].Value = b.sums[i] / float64(b.steps[i])
	}
	b.last = done
	b.bar.step(done, b.items)
	if done == target {
		b.Finish()
	}
}

// Finish ends the line, if there is one.
func (b *Progbar) Finish() {
	if b.bar != nil {
		b.bar.finish(b.items)
	}
	b.bar, b.last, b.items, b.sums, b.steps = nil, 0, nil, nil, nil
}
