package cpu

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestMemoryLimit: a buffer, or the memory of a run, that would exceed the limit is an
// error that describes it; garbage is collected to make room.
func TestMemoryLimit(t *testing.T) {
	d := New()
	if n := d.MemoryLimit(); n < 1<<28 || n > op.Limit {
		t.Errorf("the default limit is %d bytes", n)
	}
	d.SetMemoryLimit(1 << 20)
	kept, err := d.Alloc(700 << 10)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Alloc(400 << 10)
	var e *backend.MemoryError
	if !errors.As(err, &e) || e.Need != 400<<10 || e.Held != 700<<10 || e.Limit != 1<<20 || d.Held() != 700<<10 {
		t.Errorf("got error %v, want a *backend.MemoryError; held are %d bytes", err, d.Held())
	}
	if want := "a buffer needs 400.0 KiB besides the 700.0 KiB in use, the memory limit of cpu is 1.0 MiB"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
	if _, err := d.Alloc(op.Limit); err == nil {
		t.Error("no error for a buffer of op.Limit bytes")
	}
	for range 20 { // the previous garbage makes room
		if _, err := d.Alloc(300 << 10); err != nil {
			t.Fatal(err)
		}
	}
	kept.Free()
	d.SetMemoryLimit(0)
	if n := d.MemoryLimit(); n < 1<<28 {
		t.Errorf("the limit is %d bytes after 0 was set", n)
	}
}

// TestEndedRun: runs whose context ends in the middle leave no partially packed
// operands or unfinished chunks to later runs.
func TestEndedRun(t *testing.T) {
	isatest.SkipEmulated(t, "what it tests is portable Go")
	const m, n, k = 64, 700, 600
	p := matMulProgram(t, op.Attr{}, dtype.Float32, m, n, k)
	alloc := func(bytes int) driver.Buffer {
		b, err := New().Alloc(bytes)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	x, w, out := alloc(4*m*k), alloc(4*k*n), alloc(4*m*n)
	run := func(ctx context.Context) error {
		return p.Run(ctx, []driver.Buffer{x, w}, []driver.Buffer{out})
	}
	data := make([]byte, 4*k*n)
	ended := 0
	for i := range 60 {
		for j := 0; j < len(data); j += 4 {
			data[j+3], data[j+2] = 0x3f, byte(i+j/4) // about 1
		}
		if i%3 == 0 {
			if err := w.CopyIn(data); err != nil {
				t.Fatal(err)
			}
			if err := x.CopyIn(data[:4*m*k]); err != nil {
				t.Fatal(err)
			}
		}
		for j := range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(7*i+3*j)%200)*time.Microsecond)
			if err := run(ctx); errors.Is(err, context.DeadlineExceeded) {
				ended++
			} else if err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		for range 2 {
			if err := run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got := bytes.Clone(out.(*Buffer).Data())
		fresh := matMulProgram(t, op.Attr{}, dtype.Float32, m, n, k)
		if err := fresh.Run(t.Context(), []driver.Buffer{x, w}, []driver.Buffer{out}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, out.(*Buffer).Data()) {
			t.Fatalf("round %d: another product after %d runs that ended early", i, ended)
		}
	}
	if ended < 10 {
		t.Errorf("%d runs ended early, want more of them", ended)
	}
}
