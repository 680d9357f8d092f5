//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
)

// TestOpenErrors: a machine without a usable GPU gets an error that says why.
// The driver is opened once in a process, so each machine is one of its own.
func TestOpenErrors(t *testing.T) {
	if os.Getenv("KERAS_CUDA_TEST") == "gpu" {
		t.Skip("describes machines of the fake driver")
	}
	for _, c := range []struct {
		name    string
		env     []string
		ordinal string
		want    []string
	}{
		{"no driver", []string{api.DriverSetting + "=/nowhere/libcuda.so.1"}, "0", []string{"no driver found: tried /nowhere/libcuda.so.1"}},
		{"no GPU", []string{"FAKECUDA_DEVICES=0"}, "0", []string{"the driver does not start", "no CUDA-capable device"}},
		{"old driver", []string{"FAKECUDA_VERSION=11040"}, "0", []string{"the driver is of CUDA 11.4, want 11.8 or newer"}},
		{"old GPU", []string{"FAKECUDA_CAPABILITY=61"}, "0", []string{"Fake GPU: compute capability 6.1 is not supported, want 7.0 or newer"}},
		{"other number", []string{"FAKECUDA_DEVICES=2"}, "2", []string{"got device 2, want one of 0 to 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestOpenOnce$")
			cmd.Env = append(append(os.Environ(), "OPEN_ONCE="+c.ordinal, "KERAS_CUDA_TEST=gpu"), c.env...)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("opened:\n%s", out)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("got %s, want %q in it", out, want)
				}
			}
		})
	}
}

// TestOpenOnce is what TestOpenErrors runs.
func TestOpenOnce(t *testing.T) {
	ordinal := os.Getenv("OPEN_ONCE")
	if ordinal == "" {
		return
	}
	if _, err := Open(int(ordinal[0] - '0')); err != nil {
		t.Fatal(err)
	}
}

// TestRegistered: the tag brings the device under its name, and it describes
// itself.
func TestRegistered(t *testing.T) {
	d, err := backend.Open("cuda")
	if err != nil {
		t.Fatal(err)
	}
	about := d.(*Device).Describe()
	if d.Name() != "cuda" || about.Hardware == "" || !strings.HasPrefix(about.ISA, "sm_") || about.Threads < 1 {
		t.Errorf("got %q, %+v", d.Name(), about)
	}
}

// TestOutOfMemory: the error says what was wanted and what there is, and
// afterwards the device goes on.
func TestOutOfMemory(t *testing.T) {
	d := open(t)
	free := func() (n int64) {
		if err := d.do(func() (err error) { n, err = d.gpu.Free(); return err }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := d.do(d.trim); err != nil {
		t.Fatal(err)
	}
	before := free()
	_, err := d.Alloc(1 << 50)
	if !errors.Is(err, api.ErrOutOfMemory) || !strings.Contains(err.Error(), "cuda: a buffer: 1125899906842624 bytes do not fit into the 10") {
		t.Errorf("got %v, want an error of 1<<50 bytes", err)
	}
	b, err := d.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	b.Free()
	if err := d.do(d.trim); err != nil {
		t.Fatal(err)
	}
	if after := free(); after != before {
		t.Errorf("%d bytes are free, want %d as before", after, before)
	}
}
