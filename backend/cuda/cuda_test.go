//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"os"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/backendtest"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/fake"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nvlib"
)

// TestMain runs the tests on the fake driver, or, if KERAS_CUDA_TEST is "gpu",
// on the GPU.
//
// The suite compares with sums in float32 of what each operation has rounded.
// There is nothing to measure on the fake driver.
func TestMain(m *testing.M) {
	for _, name := range []string{"KERAS_TF32", "KERAS_CUDA_EPILOGUE"} {
		if err := os.Setenv(name, "0"); err != nil {
			panic(err)
		}
	}
	if os.Getenv("KERAS_CUDA_TEST") == "gpu" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "fakecuda")
	if err == nil {
		var library string
		if library, err = fake.Build(dir); err == nil {
			err = errors.Join(os.Setenv(api.DriverSetting, library), os.Setenv("KERAS_CUDA_AUTOTUNE", "0"))
			if os.Getenv(nvlib.Setting) == "" {
				err = errors.Join(err, os.Setenv(nvlib.Setting, dir))
			}
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
	if os.Getenv("KERAS_CUDA_TEST") != "gpu" && os.Getenv(nvlib.Setting) != "-" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// TestConformance runs beside TestOwnProducts: each takes a core for a minute.
func TestConformance(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, open(t))
}

func BenchmarkConformance(b *testing.B) { backendtest.Bench(b, open(b)) }
