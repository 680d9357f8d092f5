package keras

import "io"

// Progbar shows how far long work is, as Fit shows its steps
// (keras.utils.Progbar): a bar redrawn in place on a terminal, elsewhere a line
// at the end. It is not safe for use by several goroutines.
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

// Update says that done of target units of work are done; target is -1 or
// [Infinite] if their number is not known. The line ends when all are done;
// fewer than before begin another one.
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
