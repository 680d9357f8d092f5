//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestStreams runs the tests of this file with the fake driver's streams in
// every order: those that run late show a missing wait for what they make,
// those that run early one for what they overwrite.
func TestStreams(t *testing.T) {
	if os.Getenv("MEZZO_CUDA_TEST") == "gpu" {
		t.Skip("the GPU has an order of its own")
	}
	for _, order := range []string{"0", "1", "2", "3"} {
		cmd := exec.Command(os.Args[0], "-test.run=^(TestMissingWait|TestStart|TestCopyFrom|TestLateFault|TestForgotten|TestCapture)$")
		cmd.Env = append(os.Environ(), "FAKECUDA_STREAMS="+order, "MEZZO_CUDA_TEST=gpu")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("order %s: %v\n%s", order, err, out)
		}
	}
}

// TestMissingWait: the fake driver shows what a missing wait does, so that
// tests which pass on it have the waits that they need.
func TestMissingWait(t *testing.T) {
	order := os.Getenv("FAKECUDA_STREAMS")
	if order == "" {
		t.Skip("describes an order of the fake driver")
	}
	d := open(t)
	pinned := func(x byte) []byte {
		b, err := api.AllocPinned(1024)
		if err != nil {
			t.Fatal(err)
		}
		copy(b, bytes.Repeat([]byte{x}, len(b)))
		return b
	}
	// copied puts "copy 1s, copy them out, copy 2s" on two streams.
	copied := func(waits bool) byte {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err := d.gpu.Enter(); err != nil {
			t.Fatal(err)
		}
		defer d.gpu.Leave()
		p, err := api.Alloc(1024)
		if err != nil {
			t.Fatal(err)
		}
		events := make([]api.Event, 2)
		for i := range events {
			if events[i], err = api.NewEvent(); err != nil {
				t.Fatal(err)
			}
		}
		ones, twos, out := pinned(1), pinned(2), pinned(0)
		wait := func(s api.Stream, e api.Event) error {
			if !waits {
				return nil
			}
			return s.After(e)
		}
		if err := errors.Join(
			d.copies.CopyIn(p, ones), d.copies.Record(events[0]),
			wait(d.stream, events[0]), d.stream.CopyOut(out, p), d.stream.Record(events[1]),
			wait(d.copies, events[1]), d.copies.CopyIn(p, twos),
			d.stream.Wait(), d.copies.Wait(),
		); err != nil {
			t.Fatal(err)
		}
		return out[500]
	}
	if got := copied(true); got != 1 {
		t.Errorf("with waits: got %#x, want 1", got)
	}
	want := map[string]byte{"0": 0xff, "1": 2, "2": 0xff, "3": 1}[order] // poison, too late, poison, luck
	if got := copied(false); got != want {
		t.Errorf("without waits: got %#x, want %#x", got, want)
	}
}

// accumulate is total += x·x, the total being donated.
func accumulate(t *testing.T, d *Device, n int) *Program {
	g := ir.New(2)
	ty := op.Type{DType: dtype.Float32, Shape: op.Shape{n}}
	x := g.Add(op.Param, op.Attr{Dims: ty.Shape, DType: ty.DType}, ty, "x")
	total := g.Add(op.Param, op.Attr{Index: 1, Dims: ty.Shape, DType: ty.DType}, ty, "total")
	g.Output(g.Add(op.Add, op.Attr{}, ty, "total", total, g.Add(op.Mul, op.Attr{}, ty, "square", x, x)), 1)
	p, _, err := backend.Compile(t.Context(), d, g, ir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p.(*Program)
}

func floats(x ...float32) []byte {
	var b []byte
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func alloc(t *testing.T, d *Device, data []byte) *Buffer {
	b, err := d.Alloc(len(data))
	if err == nil {
		err = b.CopyIn(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.(*Buffer)
}

// TestStart: runs that nobody waits for see the inputs that were current when
// they were started, although two buffers take turns and are overwritten while
// runs are under way; more runs than there are marks do as well.
func TestStart(t *testing.T) {
	d := open(t)
	p := accumulate(t, d, 3)
	total := alloc(t, d, floats(0, 0, 0))
	inputs := []*Buffer{alloc(t, d, floats(0, 0, 0)), alloc(t, d, floats(0, 0, 0))}
	var want float32
	for i := range 3*runAhead + 5 {
		x := inputs[i%2]
		fill := func(dst []byte) error { copy(dst, floats(float32(i), 1, 2)); return nil }
		if err := x.Fill(12, fill); err != nil {
			t.Fatal(err)
		}
		want += float32(i * i)
		if err := p.Start(context.Background(), []driver.Buffer{x, total}, []driver.Buffer{total}); err != nil {
			t.Fatal(err)
		}
	}
	n := float32(3*runAhead + 5)
	got := make([]byte, 12)
	if err := total.CopyOut(got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, floats(want, n, 4*n)) {
		t.Errorf("got %x, want %x", got, floats(want, n, 4*n))
	}
	if err := inputs[0].Fill(4, func([]byte) error { return errors.New("no data") }); err == nil {
		t.Error("a filler's error is lost")
	}
}

// TestCopyFrom: a copy within the device is in order with what is sent before
// and after it.
func TestCopyFrom(t *testing.T) {
	d := open(t)
	to := alloc(t, d, floats(0, 0, 0))
	for i := range 2*runAhead + 1 {
		from := alloc(t, d, floats(float32(i), 7, 8))
		if err := to.CopyFrom(from, 8); err != nil {
			t.Fatal(err)
		}
		if err := from.CopyIn(floats(-1, -1, -1)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 12)
		if i%5 > 0 {
			continue
		}
		if err := to.CopyOut(got); err != nil || !bytes.Equal(got, floats(float32(i), 7, 0)) {
			t.Errorf("%d: got %x, %v", i, got, err)
		}
	}
	if err := to.CopyFrom(to, 13); err == nil {
		t.Error("13 of 12 bytes: got no error")
	}
}

// TestLateFault: an index out of range is the error of what comes later. Until
// it was returned no run changes anything, then they do again.
func TestLateFault(t *testing.T) {
	d := open(t)
	p, q := step(t, d, "late"), accumulate(t, d, 5)
	index := func(list ...int32) *Buffer {
		var b []byte
		for _, i := range list {
			b = binary.LittleEndian.AppendUint32(b, uint32(i))
		}
		return alloc(t, d, b)
	}
	x, good, bad := alloc(t, d, make([]byte, 35*4)), index(0, 1, 2, 3, 4), index(0, 1, -2, 9, 4)
	total, other := alloc(t, d, make([]byte, 20)), alloc(t, d, make([]byte, 20))
	ctx := context.Background()
	run := func(i *Buffer) error {
		return p.Start(ctx, []driver.Buffer{x, i, total}, []driver.Buffer{total})
	}
	for round := range 3 {
		late := []error{run(good), run(bad), run(good)}
		late = append(late, q.Start(ctx, []driver.Buffer{total, other}, []driver.Buffer{other}))
		data := make([]byte, 20)
		late = append(late, other.CopyOut(data))
		var e *driver.IndexError
		if err := errors.Join(late...); !errors.As(err, &e) {
			t.Fatalf("round %d: got %v, want an index error", round, err)
		}
		if e.Got != -2 || e.Position != 2 || e.Size != 7 || e.Path != "late" {
			t.Errorf("round %d: got %+v", round, *e)
		}
		if err := d.Wait(); err != nil { // what a run meanwhile found
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
		}
	}
	// Every round the run before the bad one counted.
	data := make([]byte, 20)
	if err := total.CopyOut(data); err != nil {
		t.Fatal(err)
	}
	first := math.Float32frombits(binary.LittleEndian.Uint32(data))
	if want := float32(3) / 7; math.Abs(float64(first-want)) > 1e-6 {
		t.Errorf("the total is %v, want %v", first, want)
	}
	if err := run(good); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(); err != nil {
		t.Error(err)
	}
}

// TestForgotten: memory of buffers that the program forgot is used again.
func TestForgotten(t *testing.T) {
	d := open(t)
	const large = 200 << 20
	for range 20 { // together four times what the fake GPU has
		b, err := d.Alloc(large)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.CopyIn([]byte{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
	}
}
