package keras

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// progressClock is a clock that moves when told.
type progressClock struct{ t time.Time }

func (c *progressClock) now() time.Time { return c.t }

func (c *progressClock) add(d time.Duration) { c.t = c.t.Add(d) }

// countingWriter records what is written and in how many calls.
type countingWriter struct {
	bytes.Buffer
	calls int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.calls++
	return w.Buffer.Write(p)
}

// take returns what was written since the last take.
func (w *countingWriter) take() string {
	s := w.String()
	w.Reset()
	return s
}

func testProgress(mode, steps, columns int) (*progress, *countingWriter, *progressClock) {
	w := &countingWriter{}
	c := &progressClock{time.Unix(1000, 0)}
	return newProgressMode(w, mode, steps, c.now, func() int { return columns }), w, c
}

func wantOutput(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// bar20 is a bar with n of 20 cells done, in Keras' colours.
func bar20(n int) string {
	s := ""
	if n > 0 {
		s = "\x1b[32m" + strings.Repeat("━", n) + "\x1b[0m"
	}
	return s + "\x1b[37m" + strings.Repeat("━", 20-n) + "\x1b[0m"
}

func TestProgressBarOnATerminal(t *testing.T) {
	p, w, c := testProgress(progressBar, 6, 120)
	train := []logItem{{Name: "accuracy", Value: 0.28}, {Name: "loss", Value: 2.5}}

	p.epoch(1, 2)
	wantOutput(t, "heading", w.take(), "Epoch 1/2\n")
	c.add(6 * time.Second)
	p.step(1, train)
	// 5 steps to go at the first step's 6 s.
	wantOutput(t, "first step", w.take(), "\r\x1b[1m1/6\x1b[0m "+bar20(3)+" \x1b[1m30s\x1b[0m 6s/step - accuracy: 0.2800 - loss: 2.5000")
	c.add(49 * time.Millisecond)
	p.step(2, train)
	wantOutput(t, "49 ms later", w.take(), "")
	c.add(1951 * time.Millisecond)
	p.step(2, train)
	// The step time leaves the first step out; the line is one column shorter.
	wantOutput(t, "second step", w.take(), "\r\x1b[1m2/6\x1b[0m "+bar20(6)+" \x1b[1m8s\x1b[0m 2s/step - accuracy: 0.2800 - loss: 2.5000 ")
	for i := 3; i <= 6; i++ {
		c.add(2 * time.Second)
		p.step(i, train)
	}
	if got := w.take(); !strings.HasSuffix(got, "\r\x1b[1m6/6\x1b[0m "+bar20(20)+" \x1b[1m0s\x1b[0m 2s/step - accuracy: 0.2800 - loss: 2.5000") {
		t.Errorf("last step before validation: got %q", got)
	}
	p.finish([]logItem{{Name: "accuracy", Value: 0.2971}, {Name: "loss", Value: 2.4333}, {Name: "val_accuracy", Value: 0.31}})
	wantOutput(t, "finish", w.take(), "\r\x1b[1m6/6\x1b[0m "+bar20(20)+" \x1b[1m16s\x1b[0m 2s/step - accuracy: 0.2971 - loss: 2.4333 - val_accuracy: 0.3100\n")

	p.epoch(2, 2)
	c.add(3 * time.Millisecond)
	p.step(1, nil)
	wantOutput(t, "second epoch", w.take(), "Epoch 2/2\n\r\x1b[1m1/6\x1b[0m "+bar20(3)+" \x1b[1m0s\x1b[0m 3ms/step")
	p.interrupt()
	p.interrupt()
	wantOutput(t, "interrupt", w.take(), "\n")
}

func TestProgressPlainLine(t *testing.T) {
	p, w, c := testProgress(progressLine, 6, 0)
	for epoch := 1; epoch <= 2; epoch++ {
		p.epoch(epoch, 2)
		c.add(6 * time.Second)
		p.step(1, nil)
		for i := 2; i <= 6; i++ {
			c.add(2 * time.Second)
			p.step(i, []logItem{{Name: "loss", Value: 3}})
		}
		p.finish([]logItem{{Name: "accuracy", Value: 0.2971}, {Name: "loss", Value: 2.4333}, {Name: "val_loss", Value: 2.5}})
	}
	const line = "6/6 - 16s - 3s/step - accuracy: 0.2971 - loss: 2.4333 - val_loss: 2.5000\n"
	wantOutput(t, "two epochs", w.take(), "Epoch 1/2\n"+line+"Epoch 2/2\n"+line)
	if w.calls != 4 {
		t.Errorf("got %d writes, want 4: a heading and a line per epoch", w.calls)
	}
}

func TestProgressOneEpochHasNoHeading(t *testing.T) {
	p, w, _ := testProgress(progressLine, 1, 0)
	p.epoch(1, 1)
	p.step(1, nil)
	p.finish(nil)
	wantOutput(t, "one epoch", w.take(), "1/1 - 0s - 0s/step\n")
}

func TestProgressSilent(t *testing.T) {
	p, w, c := testProgress(progressSilent, 3, 80)
	p.epoch(1, 5)
	c.add(time.Second)
	p.step(3, []logItem{{Name: "loss", Value: 1}})
	p.finish(nil)
	p.interrupt()
	if w.calls != 0 {
		t.Errorf("got output %q, want none", w.String())
	}
}

func TestProgressUnknownLength(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	p, w, c := testProgress(progressBar, -1, 120)
	for i := 1; i <= 25; i++ {
		c.add(100 * time.Millisecond)
		w.Reset()
		p.step(i, []logItem{{Name: "loss", Value: 1}})
	}
	wantOutput(t, "step 25", w.take(), "\r     25/Unknown \x1b[1m2s\x1b[0m 100ms/step - loss: 1.0000") // 2.5 rounds to even
	p.finish([]logItem{{Name: "loss", Value: 1}})
	wantOutput(t, "finish", w.take(), "\r\x1b[1m25/25\x1b[0m "+bar20(20)+" \x1b[1m2s\x1b[0m 100ms/step - loss: 1.0000\n")
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("got %d goroutines, want %d: the bar must not start one", n, goroutines)
	}

	// The second epoch knows the length, and survives being longer after all.
	p.epoch(2, 2)
	w.Reset()
	c.add(100 * time.Millisecond)
	p.step(5, nil)
	wantOutput(t, "second epoch", w.take(), "\r\x1b[1m 5/25\x1b[0m "+bar20(4)+" \x1b[1m0s\x1b[0m 20ms/step")
	for _, done := range []int{25, 26, 27} {
		w.Reset()
		c.add(100 * time.Millisecond)
		p.step(done, nil)
	}
	if got := w.take(); !strings.HasPrefix(got, "\r\x1b[1m27/27\x1b[0m "+bar20(20)) {
		t.Errorf("beyond the expected end: got %q", got)
	}
	p.finish(nil)
	if got := w.take(); !strings.HasPrefix(got, "\r\x1b[1m27/27\x1b[0m ") || !strings.HasSuffix(got, "\n") {
		t.Errorf("finish beyond the expected end: got %q", got)
	}
}

func TestProgressUnknownLengthPlainAndEmpty(t *testing.T) {
	p, w, c := testProgress(progressLine, 0, 0)
	c.add(time.Second)
	p.step(1, nil)
	p.finish(nil)
	wantOutput(t, "plain", w.take(), "1/1 - 1s - 1s/step\n")

	p, w, _ = testProgress(progressBar, -1, 0)
	p.finish(nil)
	wantOutput(t, "no steps at all", w.take(), "\r      0/Unknown \x1b[1m0s\x1b[0m 0s/step\n")
}

// TestProgressStoppedEarly: an epoch that ends before its last step says so.
func TestProgressStoppedEarly(t *testing.T) {
	p, w, c := testProgress(progressBar, 10, 0)
	c.add(time.Second)
	p.step(5, nil)
	w.Reset()
	p.finish(nil)
	wantOutput(t, "finish after 5 of 10", w.take(), "\r\x1b[1m 5/10\x1b[0m "+bar20(10)+" \x1b[1m1s\x1b[0m 200ms/step\n")
}

// TestProgressCells compares the cells drawn with Keras' int(20 * done / steps).
func TestProgressCells(t *testing.T) {
	for _, steps := range []int{1, 2, 3, 7, 19, 20, 29, 100, 157, 1875} {
		p, w, c := testProgress(progressBar, steps, 0)
		for done := 1; done <= steps; done++ {
			c.add(time.Second)
			w.Reset()
			p.step(done, nil)
			want := int(20 * (float64(done) / float64(steps)))
			if got := w.String(); !strings.Contains(got, bar20(want)) {
				t.Fatalf("%d of %d steps: got %q, want %d cells", done, steps, got, want)
			}
		}
	}
}

func TestProgressFitsTheTerminal(t *testing.T) {
	logs := []logItem{{Name: "exactitude_mesurée", Value: 0.5}, {Name: "精度", Value: 0.5}}
	// The visible line: 4 + 20 + 3 + 8 = 35 columns before the logs, then 29 and
	// 15 more; the last name has two columns a rune. The terminal's last column
	// stays empty, and at 71 half of a wide rune would have fitted.
	for columns, want := range map[int]string{
		200: "1/2 " + strings.Repeat("━", 20) + " 1s 1s/step - exactitude_mesurée: 0.5000 - 精度: 0.5000",
		71:  "1/2 " + strings.Repeat("━", 20) + " 1s 1s/step - exactitude_mesurée: 0.5000 - 精",
		42:  "1/2 " + strings.Repeat("━", 20) + " 1s 1s/step - exa",
		10:  "1/2 ━━━━━",
		1:   "",
	} {
		p, w, c := testProgress(progressBar, 2, columns)
		c.add(time.Second)
		p.step(1, logs)
		got := w.take()
		visible := strings.NewReplacer("\r", "", "\x1b[0m", "", "\x1b[1m", "", "\x1b[32m", "", "\x1b[37m", "").Replace(got)
		wantOutput(t, "cut", visible, want)
		if columns < 100 && !strings.HasSuffix(got, "\x1b[0m") {
			t.Errorf("%d columns: got %q, want the colours reset at the cut", columns, got)
		}
		p.finish(logs)
		if got := w.take(); !strings.HasSuffix(got, "精度: 0.5000\n") {
			t.Errorf("%d columns: final line %q, want it whole", columns, got)
		}
	}
}

// TestProgressWithoutColors: where colours are not wanted no escape sequence is
// written, and the cells that are left look different.
func TestProgressWithoutColors(t *testing.T) {
	logs := []logItem{{Name: "loss", Value: 0.5}}
	for columns, want := range map[int]string{
		0:  "1/4 " + strings.Repeat("━", 5) + strings.Repeat("─", 15) + " 3s 1s/step - loss: 0.5000",
		12: "1/4 ━━━━━──",
	} {
		p, w, c := testProgress(progressBar, 4, columns)
		p.line.plain = true
		c.add(time.Second)
		p.step(1, logs)
		wantOutput(t, "first step", w.take(), "\r"+want)
		c.add(3 * time.Second)
		p.step(4, logs)
		p.finish(logs)
		if got := w.take(); strings.Contains(got, "\x1b") || !strings.HasSuffix(got, "4/4 "+strings.Repeat("━", 20)+" 4s 1s/step - loss: 0.5000\n") {
			t.Errorf("%d columns: got %q, want a full bar without escape sequences", columns, got)
		}
	}
}

func TestProgressFormats(t *testing.T) {
	for _, c := range []struct {
		value float64
		want  string
	}{
		{0.2971, "0.2971"}, {2, "2.0000"}, {-1.25, "-1.2500"}, {12345.67891, "12345.6789"},
		{1e-3, "1.0000e-03"}, {0.0010001, "0.0010"}, {-5e-4, "-5.0000e-04"}, {3.25e-12, "3.2500e-12"},
		{0, "0.0000e+00"}, {math.NaN(), "nan"}, {math.Inf(1), "inf"}, {math.Inf(-1), "-inf"},
	} {
		if got := string(appendLogValue(nil, c.value)); got != c.want {
			t.Errorf("value %v: got %q, want %q", c.value, got, c.want)
		}
	}
	for _, c := range []struct {
		seconds float64
		want    string
	}{
		{0, " 0s/step"}, {1, " 1s/step"}, {2.4, " 2s/step"}, {0.138, " 138ms/step"}, {0.001, " 1ms/step"},
		{0.00099, " 990us/step"}, {0.0000004, " 0us/step"}, {0.9996, " 1000ms/step"},
	} {
		if got := string(appendStepTime(nil, c.seconds)); got != c.want {
			t.Errorf("step time %v: got %q, want %q", c.seconds, got, c.want)
		}
	}
	for _, c := range []struct {
		seconds float64
		want    string
	}{
		{0, "0s"}, {59.9, "59s"}, {60, "60s"}, {187, "3:07"}, {3600, "60:00"}, {7387.5, "2:03:07"}, {360000, "100:00:00"},
	} {
		if got := string(appendRemaining(nil, c.seconds)); got != c.want {
			t.Errorf("remaining %v: got %q, want %q", c.seconds, got, c.want)
		}
	}
	logs := []logItem{{Name: "loss", Value: 1.5}, {Text: "loss_scale: 32768"}, {Text: "skipped: 2"}}
	wantOutput(t, "texts", string(appendLogs(nil, logs)), " - loss: 1.5000 - loss_scale: 32768 - skipped: 2")
}

// TestProgressStepIsFree: a step between two redraws costs no memory and no
// output, on a terminal and elsewhere.
func TestProgressStepIsFree(t *testing.T) {
	logs := []logItem{{Name: "loss", Value: 1}, {Name: "accuracy", Value: 0.5}}
	for _, mode := range []int{progressSilent, progressBar, progressLine} {
		p, w, c := testProgress(mode, 1<<30, 80)
		c.add(time.Second)
		p.step(1, logs)
		calls, done := w.calls, 1
		if n := testing.AllocsPerRun(100, func() {
			done++
			c.add(time.Microsecond)
			p.step(done, logs)
		}); n != 0 {
			t.Errorf("mode %d: got %v allocations per step, want 0", mode, n)
		}
		if w.calls != calls {
			t.Errorf("mode %d: got %d writes, want none between redraws", mode, w.calls-calls)
		}
	}
}

// TestProgressHidesTheFile: the library calls Sync after every write on a
// writer that is a file, so it must never see one.
func TestProgressHidesTheFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := newProgress(f, progressAuto, 3)
	if p.mode != progressLine {
		t.Errorf("a regular file: got mode %d, want plain lines", p.mode)
	}
	if _, ok := any(&p.line).(interface{ Sync() error }); ok {
		t.Error("the bar's writer has a Sync method, want none")
	}
	if p.line.out != f {
		t.Errorf("got writer %v behind the line, want the file", p.line.out)
	}
}

func TestProgressVerbosityWithoutATerminal(t *testing.T) {
	for verbosity, want := range map[int]int{
		progressAuto: progressLine, progressSilent: progressSilent, progressBar: progressLine, progressLine: progressLine,
	} {
		if p := newProgress(&bytes.Buffer{}, verbosity, 1); p.mode != want {
			t.Errorf("verbosity %d: got mode %d, want %d", verbosity, p.mode, want)
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestProgressSurvivesABrokenWriter(t *testing.T) {
	c := &progressClock{time.Unix(1000, 0)}
	p := newProgressMode(brokenWriter{}, progressBar, 3, c.now, func() int { return 80 })
	for i := 1; i <= 3; i++ {
		c.add(time.Second)
		p.step(i, nil)
	}
	p.finish(nil)
	if p.done != 3 {
		t.Errorf("got %d steps done, want 3", p.done)
	}
}
