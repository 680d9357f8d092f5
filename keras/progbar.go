package keras

import "io"

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
}

// NewProgbar returns a bar that writes to w.
func NewProgbar(w io.Writer) *Progbar { return &Progbar{w: w} }

// Update shows that done of target units of work are done. target is -1 or
// Infinite if it is unknown. When done reaches target the line ends; a smaller
// done than before starts a new line.
func (b *Progbar) Update(done, target int) {
	if target == Infinite {
		target = -1
	}
	if done < b.last {
		b.Finish()
	}
	if b.bar == nil {
		b.bar = newProgress(b.w, b.mode.mode(), target)
	}
	b.last = done
	b.bar.step(done, nil)
	if done == target {
		b.Finish()
	}
}

// Finish ends the line, if there is one.
func (b *Progbar) Finish() {
	if b.bar != nil {
		b.bar.finish(nil)
	}
	b.bar, b.last = nil, 0
}
