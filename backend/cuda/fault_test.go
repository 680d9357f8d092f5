//go:build cuda && linux && amd64

package cuda

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// again runs one of the tests below in a process of its own, with settings of the
// fake driver, and returns what it prints.
func again(t *testing.T, test string, env ...string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+test+"$")
	cmd.Env = slices.Concat(os.Environ(), []string{"MEZZO_CUDA_TEST=gpu"}, env)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Errorf("%v: %v\n%s", env, err, out)
	}
	return string(out)
}

// fakeOnly skips a test of what only the fake driver does.
func fakeOnly(t *testing.T) {
	if os.Getenv("MEZZO_CUDA_TEST") == "gpu" {
		t.Skip("describes machines of the fake driver")
	}
}

// TestUnpin: pinned memory that is freed leaves what was copied from it: buffers that
// no kernel has read yet still wait for their copies. The fake driver refuses events
// that were destroyed, and the real one crashes.
func TestUnpin(t *testing.T) {
	d := open(t)
	defer d.Close()
	d.maxPinned = 1 << 20
	var list []*Buffer
	for n := 512 << 10; n >= 96<<10; n -= 32 << 10 { // sizes of their own, 4.3 MB in all
		list = append(list, alloc(t, d, bytes.Repeat([]byte{byte(n >> 15)}, n)))
	}
	if d.pinned > d.maxPinned {
		t.Errorf("%d bytes are pinned, want at most %d", d.pinned, d.maxPinned)
	}
	to := alloc(t, d, make([]byte, 512<<10))
	for _, from := range list {
		if err := to.CopyFrom(from, from.bytes); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, from.bytes)
		if err := to.CopyOut(got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, bytes.Repeat([]byte{byte(from.bytes >> 15)}, from.bytes)) {
			t.Errorf("%d bytes: got %d …", from.bytes, got[0])
		}
	}
}

// TestSumsInFloat32: products of 16 bits are summed up in float32 by whatever
// algorithm the library chooses, also where it adds up parts of a sum: those here
// are beyond float16, or lose the smaller terms.
func TestSumsInFloat32(t *testing.T) {
	d := open(t)
	defer d.Close()
	if d.lt.handle == nil {
		lacks(t, d.lt.missing)
	}
	const k = 4096
	for _, dt := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		g := newGraph(t)
		y := g.add(op.MatMul, op.Attr{}, g.param(dt, 8, k), g.param(dt, k, 8))
		in := [][]float64{make([]float64, 8*k), make([]float64, k*8)}
		for i := range in[0] {
			in[0][i] = 64
			in[1][i] = 1 // the first half of a column has the sum 131072
			if i/8 >= k/2 {
				in[1][i] = -1
			}
		}
		for i := range 8 {
			in[1][i] = 1.015625 // and one more
		}
		got, names := g.run(d, ir.Options{}, in, y)
		for i, x := range got[0] {
			if x != 1 {
				t.Fatalf("%v: element %d: got %v, want 1 (kernels %v)", dt, i, x, names)
			}
		}
	}
}

// TestConstantsArrive: a program that is compiled has read its constants and tables,
// also where the driver copies from the host's memory later. The collector
// overwrites what nobody holds.
func TestConstantsArrive(t *testing.T) {
	if os.Getenv("MEZZO_CUDA_TEST") != "gpu" {
		again(t, "TestConstantsArrive", "FAKECUDA_PAGEABLE=late", "GODEBUG=clobberfree=1")
		return
	}
	d := open(t)
	defer d.Close()
	const n = 1000
	g := newGraph(t)
	want := numbers(rand.New(rand.NewPCG(1, 2)), dtype.Float32, n)
	data := make([]byte, 4*n)
	dtype.FromF64(data, want, dtype.Float32)
	x := g.param(dtype.Float32, n)
	g.Params = g.Params[:1]
	g.Output(g.add(op.Add, op.Attr{}, x, g.add(op.Const, op.Attr{DType: dtype.Float32, Dims: []int{n}, Data: data})), -1)
	if err := ir.Optimize(g.Graph, ir.Options{Skip: []string{"split"}}); err != nil {
		t.Fatal(err)
	}
	p, err := d.Compile(t.Context(), g.Graph)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		runtime.GC()
	}
	in, out := alloc(t, d, make([]byte, 4*n)), alloc(t, d, make([]byte, 4*n))
	if err := p.Run(t.Context(), []driver.Buffer{in}, []driver.Buffer{out}); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4*n)
	if err := out.CopyOut(got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Error("the constants are not those of the graph")
	}
}

// TestBrokenContext: an error of the GPU while a library's algorithms are tried is
// that of the compilation, and not taken for a product that the library lacks.
func TestBrokenContext(t *testing.T) {
	if os.Getenv("MEZZO_CUDA_TEST") != "gpu" {
		for _, c := range []struct{ call, what string }{{"cublasLtMatmul", "a product"}, {"cudnnConvolutionForward", "a convolution"}} {
			for _, autotune := range []string{"0", "1"} {
				out := again(t, "TestBrokenContext", "FAKECUDA_FAULT="+c.call, "MEZZO_CUDA_AUTOTUNE="+autotune)
				if !strings.Contains(out, "cuda: the GPU failed while algorithms for "+c.what) || !strings.Contains(out, "CUDA_ERROR_ILLEGAL_ADDRESS (700)") {
					t.Errorf("%s, autotune %s: no such error in\n%s", c.call, autotune, out)
				}
			}
		}
		return
	}
	if os.Getenv("FAKECUDA_FAULT") == "" {
		t.Skip("only the fake driver fails on request")
	}
	d := open(t)
	g := newGraph(t)
	y := g.add(op.Relu, op.Attr{}, g.add(op.MatMul, op.Attr{}, g.param(dtype.Float32, 4, 8), g.param(dtype.Float32, 8, 4)))
	if os.Getenv("FAKECUDA_FAULT") != "cublasLtMatmul" {
		g, y = convolutions[0].graph(t, op.Conv, dtype.Float32, "bias relu")
	}
	g.Output(y, -1)
	if err := ir.Optimize(g.Graph, ir.Options{Skip: []string{"split"}}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Compile(t.Context(), g.Graph)
	if err == nil {
		t.Fatal("got no error")
	}
	t.Log(err)
}
