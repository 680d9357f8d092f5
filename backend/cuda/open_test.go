//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestOpenErrors: a machine without a usable GPU gets an error that says why.
// The driver is opened once in a process, so each machine is one of its own.
func TestOpenErrors(t *testing.T) {
	fakeOnly(t)
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
			cmd.Env = append(append(os.Environ(), "OPEN_ONCE="+c.ordinal, "MEZZO_CUDA_TEST=gpu"), c.env...)
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

// TestSearch: every machine says what was looked for. Each is a process of its
// own.
func TestSearch(t *testing.T) {
	fakeOnly(t)
	for _, c := range []struct {
		name string
		env  []string
		want string
	}{
		{"one", nil, "cuda: Fake GPU, sm_90, 1.0 GiB\n"},
		{"several", []string{"FAKECUDA_DEVICES=3", "FAKECUDA_CAPABILITY=75,61,90", "FAKECUDA_NAME=Tesla T4,Quadro P400,H200", "FAKECUDA_MEMORY=1073741824,536870912"},
			"cuda: Tesla T4, sm_75, 1.0 GiB\n" +
				"cuda:1: not available: Quadro P400, sm_61, 0.5 GiB: compute capability 6.1 is not supported, want 7.0 or newer\n" +
				"cuda:2: H200, sm_90, 0.5 GiB\nopened cuda:2 on H200\n"},
		{"no driver", []string{api.DriverSetting + "=/nowhere/libcuda.so.1"}, "cuda: not available: no driver found: tried /nowhere/libcuda.so.1\n"},
		{"no library", []string{api.DriverSetting + "=" + os.Args[0]}, "cuda: not available: no driver found: tried " + os.Args[0] + " ("},
		{"no GPU", []string{"FAKECUDA_DEVICES=0"}, "cuda: not available: the driver does not start: cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected"},
		{"no permission", []string{"FAKECUDA_INIT=800"}, "cuda: not available: the driver does not start: cuInit: CUDA_ERROR"},
		{"old driver", []string{"FAKECUDA_VERSION=11040"}, "cuda: not available: the driver is of CUDA 11.4, want 11.8 or newer\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestSearchOnce$")
			cmd.Env = append(append(os.Environ(), "SEARCH_ONCE=1", "MEZZO_CUDA_TEST=gpu"), c.env...)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), c.want) {
				t.Errorf("got %v\n%swant\n%s", err, out, c.want)
			}
		})
	}
}

// TestSearchOnce is what TestSearch runs: it opens the last device, if there
// are several, and computes on it.
func TestSearchOnce(t *testing.T) {
	if os.Getenv("SEARCH_ONCE") == "" {
		return
	}
	all := slices.DeleteFunc(backend.Search(), func(f backend.DeviceInfo) bool { return f.Name == "cpu" }) // which other tests need
	for _, f := range all {
		fmt.Println(f)
	}
	if len(all) < 2 {
		return
	}
	d, err := backend.Open(all[len(all)-1].Name)
	if err != nil {
		t.Fatal(err)
	}
	p := accumulate(t, d.(*Device), 3)
	total := alloc(t, d.(*Device), floats(1, 2, 3))
	x := alloc(t, d.(*Device), floats(1, 2, 3))
	if err := p.Run(context.Background(), []driver.Buffer{x, total}, []driver.Buffer{total}); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 12)
	if err := total.CopyOut(got); err != nil || !bytes.Equal(got, floats(2, 6, 12)) {
		t.Fatal(got, err)
	}
	fmt.Println("opened", d.Name(), "on", d.(*Device).Describe().Hardware)
}

// TestSlow: what the Tensor Cores of a GPU do not take is said with its name.
func TestSlow(t *testing.T) {
	h := api.Hardware{Name: "Tesla T4", Major: 7, Minor: 5}
	want := map[dtype.DType]string{dtype.BFloat16: "it does not have compute capability of at least 8.0. Your GPU: Tesla T4, compute capability 7.5"}
	if got := slow(h); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	h.Major = 6
	if got := slow(h); len(got) != 2 {
		t.Errorf("6.5: got %v, want both 16-bit types", got)
	}
	h.Major = 8
	if got := slow(h); len(got) != 0 {
		t.Errorf("8.5: got %v, want none", got)
	}
}

// TestSlowByName: GPUs of compute capability 7.5 without Tensor Cores are known by name.
func TestSlowByName(t *testing.T) {
	for name, without := range map[string]bool{
		"NVIDIA GeForce GTX 1660 Ti": true, "GeForce GTX 1650": true, "NVIDIA GeForce GTX 1650 SUPER": true, "NVIDIA GeForce MX450": true,
		"NVIDIA T1000 8GB": true, "Quadro T2000 with Max-Q Design": true, "NVIDIA T600 Laptop GPU": true,
		"Tesla T4": false, "NVIDIA GeForce RTX 2060": false, "Quadro RTX 4000": false, "NVIDIA TITAN RTX": false,
	} {
		got := slow(api.Hardware{Name: name, Major: 7, Minor: 5})
		want := ""
		if without {
			want = "it has no Tensor Cores, unlike other GPUs of its compute capability. Your GPU: " + name + ", compute capability 7.5"
		}
		if got[dtype.Float16] != want {
			t.Errorf("%s: got %q, want %q", name, got[dtype.Float16], want)
		}
		if got[dtype.BFloat16] == "" {
			t.Errorf("%s: nothing is said of bfloat16", name)
		}
	}
	if got := slow(api.Hardware{Name: "NVIDIA T1000", Major: 8, Minor: 6}); len(got) != 0 {
		t.Errorf("another compute capability: got %v", got)
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
	if !errors.Is(err, api.ErrOutOfMemory) || !strings.Contains(err.Error(), "cuda: a buffer: 1125899906842624 bytes do not fit into the ") {
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
		unexpected(t, "%d bytes are free, want %d as before", after, before) // others may use the GPU
	}
}
