//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/backendtest"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/fake"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nvlib"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestMain runs the tests on the fake driver, or, if MEZZO_CUDA_TEST is "gpu",
// on the GPU.
//
// The suite compares with sums in float32 of what each operation has rounded.
// There is nothing to measure on the fake driver.
func TestMain(m *testing.M) {
	for _, name := range []string{"MEZZO_TF32", "MEZZO_CUDA_EPILOGUE"} {
		if err := os.Setenv(name, "0"); err != nil {
			panic(err)
		}
	}
	if os.Getenv("MEZZO_CUDA_TEST") == "gpu" {
		if err := interpret(); err != nil {
			panic(err)
		}
		code := m.Run()
		if err := writeTallies(); err != nil {
			panic(err)
		}
		os.Exit(code)
	}
	dir, err := os.MkdirTemp("", "fakecuda")
	if err == nil {
		var library string
		if library, err = fake.Build(dir); err == nil {
			err = errors.Join(os.Setenv(api.DriverSetting, library), os.Setenv("MEZZO_CUDA_AUTOTUNE", "0"), os.Setenv(fakeSetting, "1"))
			if os.Getenv(nvlib.Setting) == "" {
				err = errors.Join(err, os.Setenv(nvlib.Setting, filepath.Dir(library)))
			}
			err = errors.Join(err, interpret())
		}
	}
	code := 1
	if err == nil {
		code = m.Run()
	} else {
		println(err.Error())
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// fakeSetting is set where the driver is the fake one, also for processes that a test
// starts.
const fakeSetting = "FAKECUDA"

// unexpected reports kernels that are not the wanted ones. A library of NVIDIA decides by
// itself what it has: there it is a note.
func unexpected(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv(fakeSetting) == "" {
		t.Logf(format, args...)
	} else {
		t.Errorf(format, args...)
	}
}

func open(tb testing.TB) *Device {
	d, err := Open(0)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// lacks ends a test of what a library computes, because of what is missing: the
// fake driver has everything, unless the setting turns the libraries off.
func lacks(t *testing.T, missing any) {
	t.Helper()
	if os.Getenv("MEZZO_CUDA_TEST") != "gpu" && os.Getenv(nvlib.Setting) != "-" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// TestConformance runs beside TestOwnProducts: each takes a core for a minute.
func TestConformance(t *testing.T) {
	t.Parallel()
	backendtest.RunSome(t, open(t), chosen())
}

func BenchmarkConformance(b *testing.B) { backendtest.Bench(b, open(b)) }

// TestCheck: under check, elements that changed and left the version of their
// buffer are an error that names it, of the run before or after.
func TestCheck(t *testing.T) {
	defer func(before bool) { checking = before }(checking)
	checking = true
	d := open(t)
	const n = 64
	g := ir.New(2)
	typ := op.Type{DType: dtype.Float32, Shape: op.Shape{n}}
	w := g.Add(op.Param, op.Attr{DType: typ.DType, Dims: typ.Shape}, typ, "dense/kernel")
	s := g.Add(op.Param, op.Attr{Index: 1, DType: typ.DType, Dims: typ.Shape}, typ, "step")
	g.Output(g.Add(op.Sub, op.Attr{}, typ, "sgd/dense/kernel", w, s), 0)
	p, _, err := backend.Compile(t.Context(), d, g, ir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b [2]*Buffer
	for i := range b {
		x, err := d.Alloc(4 * n)
		if err != nil {
			t.Fatal(err)
		}
		b[i] = x.(*Buffer)
	}
	run := func() error {
		return p.Run(context.Background(), []driver.Buffer{b[0], b[1]}, []driver.Buffer{b[0]})
	}
	for range 3 {
		if err := run(); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"dense/kernel", "step"} {
		if err := b[i].send(0, 4, func(dst []byte) error { dst[0]++; return nil }); err != nil { // past CopyIn
			t.Fatal(err)
		}
		if err := run(); err == nil || !strings.Contains(err.Error(), "cuda: check: before the program of 3 values") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}
