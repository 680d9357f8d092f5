package cpu

import (
	"bytes"
	"fmt"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"runtime"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// scattered returns an array whose elements differ from their neighbours and from
// distant elements; integers are small.
func scattered(d dtype.DType, shape ...int) array {
	a := array{op.Type{DType: d, Shape: shape}, nil}
	a.data = exec.Aligned(a.Bytes())
	for i := range a.data {
		x := uint32(i/d.Size()) * 2654435761 >> 8
		switch {
		case d == dtype.Int32:
			a.data[i] = byte(x % 97 >> (8 * (i % 4)))
		case d == dtype.Uint8:
			a.data[i] = byte(x)
		case i%d.Size() < d.Size()-1: // no NaN: any lower bits, a few exponents
			a.data[i] = byte(x >> (8 * (i % d.Size())))
		default:
			a.data[i] = 0x3f
		}
	}
	return a
}

// TestMovementBits compares movements at every level with the portable ones, bit for
// bit: below and above NonTemporalBytes, with rows of whole cache lines and others.
func TestMovementBits(t *testing.T) {
	isatest.SkipRace(t)
	type testCase struct {
		name string
		c    op.Code
		a    op.Attr
		args []array
	}
	var cases []testCase
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Uint8} {
		large := lanes.NonTemporalBytes/d.Size() + 1
		switch {
		case d == dtype.Uint8: // has no code of its own
			large = 5000
		case isatest.Emulated(): // no level has other instructions for large results there
			large = 40_000
		}
		for _, rows := range []int{1, 40, large / 1024, large / 1000} {
			for _, cols := range []int{1, 7, 48, 64, 1000, 1024} {
				if rows > 40 && (cols < 1000 || rows*cols > large+large/8) {
					continue
				}
				x := scattered(d, rows+1, cols)
				cases = append(cases, testCase{"Transpose", op.Transpose, op.Attr{Perm: []int{1, 0}}, []array{x}})
			}
		}
		n := large/(14*14*32) + 1
		cases = append(cases,
			testCase{"NHWC-NCHW", op.Transpose, op.Attr{Perm: []int{0, 3, 1, 2}}, []array{scattered(d, n, 14, 14, 32)}},
			testCase{"NCHW-NHWC", op.Transpose, op.Attr{Perm: []int{0, 2, 3, 1}}, []array{scattered(d, n, 32, 14, 14)}},
			testCase{"Heads", op.Transpose, op.Attr{Perm: []int{0, 2, 1, 3}}, []array{scattered(d, large/(128*8*64)+1, 128, 8, 64)}},
			testCase{"Reversed", op.Transpose, op.Attr{Perm: []int{2, 1, 0}}, []array{scattered(d, 129, large/(129*65)+1, 65)}},
		)
		for _, n := range []int{3, large/64 + 1} {
			x := scattered(d, n, 64)
			cases = append(cases,
				testCase{"Concat", op.Concat, op.Attr{Axes: []int{1}}, []array{x, scattered(d, n, 32), x}},
				testCase{"Concat odd", op.Concat, op.Attr{Axes: []int{1}}, []array{x, scattered(d, n, 5)}},
				testCase{"Slice", op.Slice, op.Attr{Start: []int{0, 16}, Limit: []int{n, 64}, Stride: []int{1, 1}}, []array{scattered(d, n, 64)}},
				testCase{"Pad columns", op.Pad, op.Attr{Low: []int{0, 1}, High: []int{0, 2}}, []array{x}},
				testCase{"Pad rows", op.Pad, op.Attr{Low: []int{2, 0}, High: []int{1, 0}, Value: 1}, []array{x}},
				testCase{"Pad image", op.Pad, op.Attr{Low: []int{0, 1, 0, 0}, High: []int{0, 0, 2, 0}}, []array{scattered(d, n/64+1, 8, 16, 33)}},
				testCase{"Pad long", op.Pad, op.Attr{Low: []int{3}, High: []int{5}}, []array{scattered(d, 40*n)}},
				testCase{"Gather", op.Gather, op.Attr{}, []array{scattered(d, 97, 64), scattered(dtype.Int32, n)}},
				testCase{"Gather odd", op.Gather, op.Attr{}, []array{scattered(d, 97, 63), scattered(dtype.Int32, n)}},
				testCase{"ScatterAlongAxis", op.ScatterAlongAxis, op.Attr{Size: 100}, []array{scattered(d, n), scattered(dtype.Int32, n)}},
			)
		}
	}
	for _, c := range cases {
		name := fmt.Sprintf("%s of %v", c.name, c.args[0].Type)
		level := isa.Use(isa.Portable)
		want := eval(t, c.c, c.a, c.args...)
		isa.Use(level)
		forEachVectors(t, func(t *testing.T) {
			if got := eval(t, c.c, c.a, c.args...); !bytes.Equal(got.data, want.data) {
				t.Fatalf("%s: differs from the portable one", name)
			}
		})
	}
}

// TestScatterAddTables: parts that are summed in separate tables give the portable sums
// up to float32 rounding, for every GOMAXPROCS.
func TestScatterAddTables(t *testing.T) {
	const limit, n = 97, 97 * 64
	idx := scattered(dtype.Int32, n)
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, inner := range []int{1, 64, 1030} {
			x := scattered(d, n, inner)
			want, size := make([]float64, limit*inner), make([]float64, limit*inner)
			values, at := x.values(), idx.values()
			for i, v := range values {
				j := int(at[i/inner])*inner + i%inner
				want[j] += v
				size[j] += max(v, -v)
			}
			forEachVectors(t, func(t *testing.T) {
				var first array
				for _, procs := range []int{1, 2, 3} {
					func() {
						defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
						got := eval(t, op.ScatterAdd, op.Attr{Size: limit}, x, idx)
						if procs == 1 {
							first = got
						} else if !bytes.Equal(got.data, first.data) {
							t.Fatalf("%v: %d threads give other bits than 1", x.Type, procs)
						}
					}()
				}
				rel, _ := d.Tolerance()
				for i, v := range first.values() {
					// Some hundred additions, each rounded to float32, and the rounding
					// of the result.
					if limit := size[i]*(256*0x1p-24) + max(want[i], -want[i])*rel; max(v-want[i], want[i]-v) > limit {
						t.Fatalf("%v: element %d is %v, want %v", x.Type, i, v, want[i])
					}
				}
			})
		}
	}
}
