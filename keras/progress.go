package keras

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/rivo/uniseg"

	"github.com/mezzo-ml/mezzo/keras/internal/console"
)

// How progress is shown; the values but the first are Keras' verbose argument.
const (
	progressAuto   = -1 // a bar on a terminal, lines elsewhere
	progressSilent = 0
	progressBar    = 1 // a bar redrawn in place; lines where there is no terminal
	progressLine   = 2 // one plain line at the end of each epoch
)

const (
	progressWidth    = 20                    // cells of the bar
	progressInterval = 50 * time.Millisecond // the shortest time between two redraws
)

// logItem is one entry of the logs: a name and a value or, when Text is set, a
// text that stands for both, such as "loss_scale: 32768".
type logItem struct {
	Name  string
	Value float64
	Text  string
}

// progress writes the progress of fit, evaluate or predict as Keras' Progbar
// does: a bar redrawn in place on a terminal,
//
//	6/6 ━━━━━━━━━━━━━━━━━━━━ 16s 2s/step - accuracy: 0.2971 - loss: 2.4333
//
// and elsewhere, in files and pipes, one line at the end of each epoch,
//
//	6/6 - 16s - 3s/step - accuracy: 0.2971 - loss: 2.4333
//
// It is not safe for concurrent use. Errors of the writer are ignored: a closed
// terminal must not end a training run.
type progress struct {
	mode  int
	steps int // steps of an epoch, -1 while unknown
	now   func() time.Time
	line  lineWriter
	bar   *bar // nil until the epoch's first redraw
	told  int  // steps the bar has been told of
	max   int  // steps the bar was made for, -1 for unknown

	done    int       // steps done in this epoch
	start   time.Time // of the epoch
	first   int       // steps done at the first report, which the step time leaves out
	firstAt time.Time
	drawn   time.Time // last redraw

	info []byte // scratch
}

// newProgress returns the progress of epochs of the given number of steps (-1:
// unknown until the first epoch ends) on w. The first epoch begins now.
func newProgress(w io.Writer, verbosity int, steps int) *progress {
	c := console.Of(w)
	mode := progressLine
	switch {
	case verbosity == progressSilent:
		mode = progressSilent
	case verbosity != progressLine && c.Redraws:
		mode = progressBar
	}
	p := newProgressMode(w, mode, steps, time.Now, c.Columns)
	p.line.plain = !c.Colors
	return p
}

// newProgressMode is newProgress with everything taken from outside decided:
// the mode, the clock and the terminal's width in columns (0: unlimited).
func newProgressMode(w io.Writer, mode, steps int, now func() time.Time, width func() int) *progress {
	if steps < 1 {
		steps = -1
	}
	p := &progress{mode: mode, steps: steps, now: now, line: lineWriter{out: w, columns: width}}
	p.reset()
	return p
}

func (p *progress) reset() {
	p.start, p.drawn = p.now(), time.Time{}
	p.done, p.first = 0, 0
	p.bar = nil
	p.line.width = 0
}

// epoch begins epoch i (from 1) of n, with a heading when n is above 1.
func (p *progress) epoch(i, n int) {
	p.interrupt()
	p.reset()
	if p.mode != progressSilent && n > 1 {
		fmt.Fprintf(p.line.out, "Epoch %d/%d\n", i, n)
	}
}

// due records that done steps of the epoch are complete and reports whether
// step will redraw now, so that a caller need not compute logs nobody sees.
func (p *progress) due(done int) bool {
	if p.mode == progressSilent {
		return false
	}
	now := p.now()
	p.done = done
	if p.steps > 0 && done > p.steps {
		p.steps = done // an epoch longer than the one the length was learned from
	}
	if p.first == 0 && done > 0 {
		p.first, p.firstAt = done, now
	}
	return p.mode == progressBar && (p.drawn.IsZero() || now.Sub(p.drawn) >= progressInterval)
}

// step records that done steps of the epoch are complete and redraws the bar
// with logs when the last redraw is long enough ago.
func (p *progress) step(done int, logs []logItem) {
	if p.due(done) {
		p.drawn = p.now()
		p.draw(p.drawn, logs, false)
	}
}

// finish ends the epoch's line. The logs are those of the whole epoch in the
// order to print, the validation's last.
func (p *progress) finish(logs []logItem) {
	if p.steps < 0 && p.done > 0 {
		p.steps = p.done // Keras, too, knows the length from the second epoch on
		p.bar = nil
	}
	switch p.mode {
	case progressBar:
		p.draw(p.now(), logs, true)
	case progressLine:
		now := p.now()
		b := appendCount(p.info[:0], p.done, p.steps)
		b = append(b, " - "...)
		b = strconv.AppendFloat(b, now.Sub(p.start).Seconds(), 'f', 0, 64)
		b = append(b, "s -"...)
		b = appendStepTime(b, p.stepTime(now))
		p.info = append(appendLogs(b, logs), '\n')
		p.line.out.Write(p.info)
	}
	p.bar = nil
	p.line.width = 0
}

// interrupt ends a line that finish will not end, so that later output, such as an
// error, begins on its own line.
func (p *progress) interrupt() {
	if p.line.width > 0 {
		io.WriteString(p.line.out, "\n")
		p.line.width = 0
	}
}

// stepTime returns the mean duration of a step in seconds. As in Keras, the bar's
// excludes the first report, which includes one-time work; that of plain lines does
// not.
func (p *progress) stepTime(now time.Time) float64 {
	switch {
	case p.done == 0:
		return 0
	case p.done > p.first && p.mode == progressBar:
		return now.Sub(p.firstAt).Seconds() / float64(p.done-p.first)
	}
	return now.Sub(p.start).Seconds() / float64(p.done)
}

// draw has the bar redrawn; final ends the line.
func (p *progress) draw(now time.Time, logs []logItem, final bool) {
	if p.bar == nil {
		p.bar, p.told, p.max = newBar(&p.line, p.steps), 0, p.steps
	}
	p.line.final = final
	known := p.steps > 0
	head := p.line.head[:0]
	if known {
		head = append(head, ansiBold...)
		head = appendCount(head, p.done, p.steps)
		head = append(head, ansiReset...)
		head = append(head, ' ')
	} else {
		head = appendCount(head, p.done, p.steps)
	}
	p.line.head = head

	perStep := p.stepTime(now)
	b := append(p.info[:0], markInfo, ' ')
	b = append(b, ansiBold...)
	if known && !final {
		b = appendRemaining(b, perStep*float64(p.steps-p.done))
	} else {
		b = strconv.AppendFloat(b, now.Sub(p.start).Seconds(), 'f', 0, 64)
		b = append(b, 's')
	}
	b = append(b, ansiReset...)
	b = appendStepTime(b, perStep)
	p.info = appendLogs(b, logs)

	description := string(p.info)
	if p.max > 0 && p.told == p.max {
		p.bar.Describe(description)
		return
	}
	position := p.done
	if p.max > 0 {
		position = min(position, p.max)
	}
	p.bar.Add(position-p.told, description)
	p.told = position
}

// appendCount appends the steps done of all steps as Keras writes them.
func appendCount(b []byte, done, steps int) []byte {
	if steps < 0 {
		return fmt.Appendf(b, "%7d/Unknown", done)
	}
	return fmt.Appendf(b, "%*d/%d", len(strconv.Itoa(steps)), done, steps)
}

// appendRemaining appends an estimate in seconds as 45s, 3:07 or 2:03:07.
func appendRemaining(b []byte, seconds float64) []byte {
	s := int64(seconds)
	switch {
	case seconds > 3600:
		return fmt.Appendf(b, "%d:%02d:%02d", s/3600, s%3600/60, s%60)
	case seconds > 60:
		return fmt.Appendf(b, "%d:%02d", s/60, s%60)
	}
	return append(strconv.AppendInt(b, s, 10), 's')
}

// appendStepTime appends the duration of a step in a fitting unit.
func appendStepTime(b []byte, seconds float64) []byte {
	unit := "us/step"
	value := seconds * 1e6
	switch {
	case seconds >= 1 || seconds == 0:
		unit, value = "s/step", seconds
	case seconds >= 1e-3:
		unit, value = "ms/step", seconds*1e3
	}
	return append(strconv.AppendFloat(append(b, ' '), value, 'f', 0, 64), unit...)
}

// appendLogs appends each item as " - name: value".
func appendLogs(b []byte, logs []logItem) []byte {
	for _, l := range logs {
		b = append(b, " - "...)
		if l.Text != "" {
			b = append(b, l.Text...)
			continue
		}
		b = append(b, l.Name...)
		b = append(b, ": "...)
		b = appendLogValue(b, l.Value)
	}
	return b
}

// appendLogValue appends a value with four decimals, in exponent form when it
// is small; values that are no numbers are spelled as Keras does. (On plain
// lines Keras writes negative values in exponent form however large; this does
// not follow it there.)
func appendLogValue(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, "nan"...)
	case math.IsInf(v, 1):
		return append(b, "inf"...)
	case math.IsInf(v, -1):
		return append(b, "-inf"...)
	case math.Abs(v) > 1e-3:
		return strconv.AppendFloat(b, v, 'f', 4, 64)
	}
	return strconv.AppendFloat(b, v, 'e', 4, 64)
}

// Marks that the bar is made to write and that lineWriter understands: the
// library's layout is fixed (percentage first, counts in parentheses), so it
// draws cells and the description with these and lineWriter arranges them.
const (
	markStart = 0
	markDone  = 1
	markLeft  = 2
	markInfo  = 3
)

const (
	ansiBold  = "\x1b[1m"
	ansiGreen = "\x1b[32m"
	ansiWhite = "\x1b[37m"
	ansiReset = "\x1b[0m"
	barCell   = "━"

	barCellLeft = "─" // of a bar without colours
)

// lineWriter converts the bar's output to Keras's line and cuts it to the terminal's
// width: a line that wraps cannot be redrawn in place. Between the bar and an *os.File
// it also keeps the library from calling Sync on every redraw.
type lineWriter struct {
	out     io.Writer
	columns func() int // width of the terminal, 0 for unlimited
	plain   bool       // without colours, or any other escape sequence
	head    []byte     // text before the bar
	final   bool       // end the line
	width   int        // columns of the line on the screen
	buf     []byte     // scratch
}

// Write takes one redraw of the bar and drops the library's escape sequences that erase
// the line.
func (l *lineWriter) Write(frame []byte) (int, error) {
	_, body, ok := bytes.Cut(frame, []byte{markStart})
	if !ok {
		return len(frame), nil
	}
	cells, info, _ := bytes.Cut(body, []byte{markInfo})
	info = bytes.TrimSuffix(info, []byte{' '}) // the library's last column

	b := append(l.buf[:0], '\r')
	b = append(b, l.head...)
	done, left := bytes.Count(cells, []byte{markDone}), bytes.Count(cells, []byte{markLeft})
	if done > 0 {
		b = append(b, ansiGreen...)
		b = append(b, bytes.Repeat([]byte(barCell), done)...)
		b = append(b, ansiReset...)
	}
	if done+left > 0 {
		b = append(b, ansiWhite...)
		cell := barCell
		if l.plain {
			cell = barCellLeft
		}
		b = append(b, bytes.Repeat([]byte(cell), left)...)
		b = append(b, ansiReset...)
	}
	b = append(b, info...)

	// The last column stays empty: some terminals wrap when it is written. The
	// final line may wrap, since it is not redrawn and its values matter most.
	limit := math.MaxInt
	if columns := l.columns(); columns > 0 {
		limit = columns - 1
	}
	cut := limit
	if l.final {
		cut = math.MaxInt
	}
	b, width := cutVisible(b, cut)
	if l.plain {
		b = withoutEscapes(b)
	}
	for range min(l.width, limit) - width {
		b = append(b, ' ')
	}
	l.width = width
	if l.final {
		b = append(b, '\n')
		l.width = 0
	}
	l.buf = b
	if _, err := l.out.Write(b); err != nil {
		return 0, err
	}
	return len(frame), nil
}

// withoutEscapes takes the escape sequences of colours out of b.
func withoutEscapes(b []byte) []byte {
	out := b[:0]
	for i := 0; i < len(b); i++ {
		if b[i] == '\x1b' {
			if end := bytes.IndexByte(b[i:], 'm'); end >= 0 {
				i += end
				continue
			}
		}
		out = append(out, b[i])
	}
	return out
}

// cutVisible cuts b where its visible part would be wider than limit columns
// and returns it with its width. Escape sequences and the carriage return have
// none.
func cutVisible(b []byte, limit int) ([]byte, int) {
	width := 0
	for i := 0; i < len(b); {
		switch {
		case b[i] == '\r':
			i++
		case b[i] == '\x1b':
			end := bytes.IndexByte(b[i:], 'm') // only colours are used here
			if end < 0 {
				return b[:i], width
			}
			i += end + 1
		default:
			cluster, _, w, _ := uniseg.FirstGraphemeCluster(b[i:], -1)
			if width+w > limit {
				return append(b[:i], ansiReset...), width
			}
			width += w
			i += len(cluster)
		}
	}
	return b, width
}
