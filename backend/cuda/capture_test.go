//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// step is softmax(x)[index], summed up in a donated total: it can fail, and
// changes an input.
func step(t *testing.T, d *Device, path string) *Program {
	g := ir.New(3)
	add := func(c op.Code, a op.Attr, args ...*ir.Value) *ir.Value {
		types := make([]op.Type, len(args))
		for i, x := range args {
			types[i] = x.Type
		}
		out, err := op.Infer(c, a, types...)
		if err != nil {
			t.Fatal(err)
		}
		return g.Add(c, a, out, path, args...)
	}
	x := add(op.Param, op.Attr{Dims: op.Shape{5, 7}, DType: dtype.Float32})
	index := add(op.Param, op.Attr{Index: 1, Dims: op.Shape{5}, DType: dtype.Int32})
	total := add(op.Param, op.Attr{Index: 2, Dims: op.Shape{5}, DType: dtype.Float32})
	taken := add(op.TakeAlongAxis, op.Attr{}, add(op.Softmax, op.Attr{Axes: []int{1}}, x), index)
	g.Output(add(op.Add, op.Attr{}, total, taken), 2)
	p, _, err := backend.Compile(t.Context(), d, g, ir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p.(*Program)
}

// TestCapture: a run that is a captured graph has the bits of one whose
// kernels were called one by one; other buffers are another graph; an index
// out of range is an error of either, and changes nothing.
func TestCapture(t *testing.T) {
	d := open(t)
	p := step(t, d, "captured")
	buffer := func(data []byte) driver.Buffer {
		b, err := d.Alloc(len(data))
		if err == nil {
			err = b.CopyIn(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var x, index []byte
	for i := range 35 {
		x = binary.LittleEndian.AppendUint32(x, 0x3f000000+uint32(i)<<16)
	}
	for i := range 5 {
		index = binary.LittleEndian.AppendUint32(index, uint32(i))
	}
	read := func(b driver.Buffer) []byte {
		data := make([]byte, b.Bytes())
		if err := b.CopyOut(data); err != nil {
			t.Fatal(err)
		}
		return data
	}
	zeros := make([]byte, 20)
	xb, ib, total := buffer(x), buffer(index), buffer(zeros)
	var first []byte
	for i := range 4 {
		if err := total.CopyIn(zeros); err != nil {
			t.Fatal(err)
		}
		if err := p.Run(context.Background(), []driver.Buffer{xb, ib, total}, []driver.Buffer{total}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = read(total)
		} else if got := read(total); !bytes.Equal(got, first) || bytes.Equal(got, zeros) {
			t.Errorf("run %d: got %x, want %x", i, got, first)
		}
		if len(p.graphs) != 1 || (p.graphs[0].graph != nil) != (i > 0) {
			t.Fatalf("run %d: %d graphs, the first is %v", i, len(p.graphs), p.graphs[0].graph)
		}
	}
	binary.LittleEndian.PutUint32(index[8:], 7)
	if err := ib.CopyIn(index); err != nil {
		t.Fatal(err)
	}
	other := buffer(index)
	for i, indices := range []driver.Buffer{ib, other, other} { // captured, called, captured
		err := p.Run(context.Background(), []driver.Buffer{xb, indices, total}, []driver.Buffer{total})
		var e *driver.IndexError
		if !errors.As(err, &e) || e.Got != 7 || e.Position != 2 || e.Size != 7 {
			t.Errorf("index 7, run %d: got %v", i, err)
		}
		if got := read(total); !bytes.Equal(got, first) {
			t.Errorf("index 7, run %d: the total changed to %x", i, got)
		}
	}
	if len(p.graphs) != 2 {
		t.Errorf("%d graphs, want one for each set of buffers", len(p.graphs))
	}
	for range 2 * maxGraphs { // with ever new buffers the oldest graphs go
		if err := p.Run(context.Background(), []driver.Buffer{xb, buffer(make([]byte, 20)), total}, []driver.Buffer{total}); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.graphs) != maxGraphs {
		t.Errorf("%d graphs, want %d", len(p.graphs), maxGraphs)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}
