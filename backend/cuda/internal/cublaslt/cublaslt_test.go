//go:build cuda && linux && amd64

package cublaslt

import (
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/fake"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// libraries are the fake one and, where MEZZO_CUBLASLT names it, a real one:
// descriptions need no GPU.
func libraries(t *testing.T) []*Library {
	path, err := fake.BuildLibrary(t.TempDir(), fake.CublasLt)
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{path}
	if real := os.Getenv("MEZZO_CUBLASLT"); real != "" {
		paths = append(paths, real)
	}
	var list []*Library
	for _, path := range paths {
		l, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if l.Version < 110000 {
			t.Errorf("%s: version %d", path, l.Version)
		}
		list = append(list, l)
	}
	return list
}

// TestDescribe: the library takes descriptions of every kind of product, and
// has kept what was set.
func TestDescribe(t *testing.T) {
	for _, l := range libraries(t) {
		for _, in := range dtype.Floats() {
			for _, out := range dtype.Floats() {
				for _, batch := range []int{1, 6} {
					for bits := range 16 {
						p := Problem{
							M: 100, N: 24, K: 72, In: in, Out: out, Batch: batch, StrideA: 7200, TF32: true,
							TransA: bits&1 != 0, TransB: bits&2 != 0, Bias: bits&4 != 0, Activation: Activation(bits >> 3),
						}
						m, err := l.describe(p)
						if want := in == out || in.Is16() && out == dtype.Float32; (err == nil) != want {
							t.Fatalf("%s: %+v: error %v, want one: %v", l.Path, p, err, !want)
						}
						if err != nil {
							continue
						}
						epilogue := []uint64{1, 4, 2, 6}[bits>>2]
						compute := map[dtype.DType]uint64{dtype.Float16: 68, dtype.BFloat16: 68, dtype.Float32: 77, dtype.Float64: 70}[in]
						for attribute, want := range map[int]uint64{0: compute, descTransA: uint64(bits >> 1 & 1), descTransB: uint64(bits & 1), descEpilogue: epilogue} {
							if got, err := m.attribute(attribute); err != nil || got != want {
								t.Errorf("%s: %+v: attribute %d is %d, want %d (%v)", l.Path, p, attribute, got, want, err)
							}
						}
						if batch > 1 {
							n, err := m.attributeOfA(layoutBatch, 4)
							if err != nil {
								t.Fatal(err)
							}
							stride, err := m.attributeOfA(layoutStride, 8)
							if err != nil || n != 6 || stride != 7200 {
								t.Errorf("%s: A has batch %d and stride %d (%v)", l.Path, n, stride, err)
							}
						}
						m.Close()
					}
				}
			}
		}
		if _, err := l.describe(Problem{M: 1, N: 0, K: 1, In: dtype.Float32, Out: dtype.Float32, Batch: 1}); err == nil {
			t.Error("a product without columns was described")
		}
	}
}

// TestNames: the newest library that the driver can run comes first.
func TestNames(t *testing.T) {
	for major, want := range map[int][]string{
		11: {"libcublasLt.so.11"},
		12: {"libcublasLt.so.12", "libcublasLt.so.11"},
		14: {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
	} {
		if got := names(major); !slices.Equal(got, want) {
			t.Errorf("driver of CUDA %d: %v, want %v", major, got, want)
		}
	}
}

// TestEight: the library takes descriptions of products of 8-bit floats, and
// no others are made than it has.
func TestEight(t *testing.T) {
	for _, l := range libraries(t) {
		if l.Version < 111100 { // of CUDA 11.8
			t.Errorf("%s: version %d has no 8-bit floats", l.Path, l.Version)
			continue
		}
		for _, eight := range [][2]Format{{E4M3, E4M3}, {E4M3, E5M2}, {E5M2, E4M3}, {E5M2, E5M2}, {E4M3, 0}} {
			for _, out := range dtype.Floats() {
				for bits := range 32 {
					p := Problem{
						M: 96, N: 32, K: 64, TransA: bits&1 != 0, TransB: bits&2 == 0, In: dtype.Uint8, Out: out, Batch: 1,
						Eight: eight, Scaled: bits&4 != 0, Fast: bits&8 != 0, Bias: bits&16 != 0,
					}
					m, err := l.describe(p)
					want := !p.TransA && p.TransB && eight[1] != 0 && eight != [2]Format{E5M2, E5M2} && (out.Is16() || out == dtype.Float32 && !p.Bias)
					if (err == nil) != want {
						t.Fatalf("%s: %+v: error %v, want one: %v", l.Path, p, err, !want)
					}
					if err != nil {
						continue
					}
					// The library's first operand is B.
					for attribute, want := range map[int]uint64{0: compute32, descTransA: operationT, descTransB: operationN} {
						if got, err := m.attribute(attribute); err != nil || got != want {
							t.Errorf("%s: %+v: attribute %d is %d, want %d (%v)", l.Path, p, attribute, got, want, err)
						}
					}
					scale, fast := uint64(0), uint64(0)
					if p.Scaled {
						scale = anyAddress
					}
					if p.Fast {
						fast = 1
					}
					for attribute, want := range map[int]struct {
						bytes int
						value uint64
					}{descScaleA: {8, scale}, descFast: {1, fast}} {
						if got, err := m.attributeOf(attribute, want.bytes); err != nil || got != want.value {
							t.Errorf("%s: %+v: attribute %d is %d, want %d (%v)", l.Path, p, attribute, got, want.value, err)
						}
					}
					for i, layout := range []unsafe.Pointer{m.b, m.a} {
						if got, err := m.layoutType(layout); err != nil || got != uint64(eight[i]) {
							t.Errorf("%s: %+v: operand %d has type %d, want %d (%v)", l.Path, p, i, got, eight[i], err)
						}
					}
					m.Close()
				}
			}
		}
	}
}
