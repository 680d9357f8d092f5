//go:build !wasm

package keras

import (
	"io"

	"github.com/schollz/progressbar/v3"
)

// bar is the library's progress bar. WebAssembly has no terminal and no bar: see
// bar_wasm.go.
type bar struct{ bar *progressbar.ProgressBar }

// newBar returns a bar of the given number of steps (-1: unknown) that redraws
// whenever it is told of steps; progress itself decides how often.
func newBar(w io.Writer, steps int) *bar {
	return &bar{progressbar.NewOptions(steps,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetWidth(progressWidth),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionSetElapsedTime(false),
		progressbar.OptionShowCount(), // or it would redraw on full percents only
		progressbar.OptionShowDescriptionAtLineEnd(),
		progressbar.OptionSetTheme(progressbar.Theme{
			BarStart:      string(rune(markStart)),
			Saucer:        string(rune(markDone)),
			SaucerPadding: string(rune(markLeft)),
		}),
		// Without a length the library shows a spinner, from a goroutine of its
		// own unless the interval is 0; here the spinner is the mark alone.
		progressbar.OptionSpinnerCustom([]string{string(rune(markStart))}),
		progressbar.OptionSetSpinnerChangeInterval(0),
	)}
}

// Describe redraws a bar, a full one too, with another description.
func (b *bar) Describe(description string) { b.bar.Describe(description) }

// Add moves a bar and redraws it once.
func (b *bar) Add(steps int, description string) {
	// Describe would redraw as well; the option does not. Add draws no full bar.
	progressbar.OptionSetDescription(description)(b.bar)
	b.bar.Add(steps)
}
