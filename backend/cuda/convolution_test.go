//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestLibraryConvolution: convolutions of all types that cuDNN has are its own,
// with a bias and ReLU in the same call, and those of float64 within the
// tolerance of their type.
func TestLibraryConvolution(t *testing.T) {
	for _, tf32 := range []bool{false, true} {
		for _, autotune := range []bool{false, true} {
			d := open(t) // which has not chosen algorithms yet
			defer d.Close()
			if d.dnn.handle == nil {
				lacks(t, d.dnn.missing)
			}
			d.settings = settings{tf32: tf32, autotune: autotune, epilogue: true, cudnn: true, wideGradients: true}
			for _, dt := range dtype.Floats() {
				if tf32 && dt != dtype.Float32 || autotune && dt != dtype.Float16 {
					continue // all the same
				}
				if testing.Short() && !tf32 && !autotune {
					continue // the suite has those
				}
				for _, c := range convolutions {
					for code, call := range map[op.Code]string{op.Conv: "cudnnConvolutionForward", op.ConvInputGrad: "cudnnConvolutionBackwardData", op.ConvKernelGrad: "cudnnConvolutionBackwardFilter"} {
						for _, follows := range []string{"", "bias relu"} {
							t.Run(fmt.Sprintf("tf32=%v/autotune=%v/%v/%v/%s/%s", tf32, autotune, dt, code, c.name, follows), func(t *testing.T) {
								names := testConvolution(t, d, c, code, dt, follows)
								move := "moved"
								for i, name := range names { // small ones are not turned by tiles
									if name == fmt.Sprint("collect_", dt.Size()) || name == fmt.Sprint("transpose_", dt.Size()) {
										names[i] = move
									}
								}
								want := map[op.Code][]string{op.Conv: {move, call}, op.ConvInputGrad: {move, call}, op.ConvKernelGrad: {call, move}}[code]
								if follows != "" && code != op.Conv {
									want = append(want, "chain_0")
								}
								if dt == dtype.Float64 {
									if slices.Contains(names, call) {
										unexpected(t, "kernels %v, want our own", names)
									}
								} else if !slices.Equal(names, want) {
									unexpected(t, "kernels %v, want %v", names, want)
								}
							})
						}
					}
				}
			}
		}
	}
}

// TestWideGradients: gradients of kernels that stay float32 are not cuDNN's
// unless the setting has them rounded.
func TestWideGradients(t *testing.T) {
	d := open(t)
	defer d.Close()
	if d.dnn.handle == nil {
		lacks(t, d.dnn.missing)
	}
	c := convolutions[1]
	for _, wide := range []bool{true, false} {
		d.settings = settings{cudnn: true, wideGradients: wide}
		g, y := c.graph(t, op.ConvKernelGrad, dtype.Float16, "")
		y.Attr.DType, y.Type.DType = dtype.Float32, dtype.Float32
		r := rand.New(rand.NewPCG(5, 6))
		in := [][]float64{numbers(r, dtype.Float16, g.params[0].Shape.Size()), numbers(r, dtype.Float16, g.params[1].Shape.Size())}
		want, magnitude := c.reference(op.ConvKernelGrad, g.params[1].Shape, in[0], in[1])
		got, names := g.run(d, ir.Options{Check: true}, in, y)
		kernels, eps := []string{"cudnnConvolutionBackwardFilter", "reduce_thread_float16"}, 0x1p-11
		if wide {
			kernels, eps = []string{"conv_kernel_grad_tensor_float16", "reduce_thread_float32"}, 0x1p-24
		}
		if !slices.Equal(names, kernels) {
			unexpected(t, "wide=%v: kernels %v, want %v", wide, names, kernels)
		}
		for i, x := range got[0] {
			// sums of up to 2000 products in float32, rounded once
			if tolerance := magnitude[i]*0x1p-24*2000 + eps*math.Abs(want[i]) + 0x1p-25; !(math.Abs(x-want[i]) <= tolerance) {
				t.Fatalf("wide=%v: element %d: got %v, want %v ± %v", wide, i, x, want[i], tolerance)
			}
		}
	}
}

// TestPaddingOfLibrary: cuDNN has the same padding before and behind an input.
// What differs is computed by our own kernels, unless no window reaches it.
func TestPaddingOfLibrary(t *testing.T) {
	d := open(t)
	defer d.Close()
	if d.dnn.handle == nil {
		lacks(t, d.dnn.missing)
	}
	for _, c := range []struct {
		stride, low, high int
		library           bool
	}{
		{1, 1, 1, true}, {1, 0, 2, false}, {1, 2, 0, false}, {2, 0, 1, false}, {2, 1, 0, true}, {2, 2, 1, true}, {1, -1, 1, false}, {2, 1, -1, false},
	} {
		g := newGraph(t)
		x, w := g.param(dtype.Float32, 2, 8, 8), g.param(dtype.Float32, 3, 8, 8)
		y := g.add(op.Conv, op.Attr{Stride: []int{c.stride}, Dilation: []int{1}, Low: []int{c.low}, High: []int{c.high}}, x, w)
		r := rand.New(rand.NewPCG(1, 2))
		_, names := g.run(d, ir.Options{}, [][]float64{numbers(r, dtype.Float32, 128), numbers(r, dtype.Float32, 192)}, y)
		if library := slices.Contains(names, "cudnnConvolutionForward"); library != c.library {
			unexpected(t, "%+v: kernels %v", c, names)
		}
	}
}

// TestConvolutionReluKeepsNaN: as TestReluKeepsNaN.
func TestConvolutionReluKeepsNaN(t *testing.T) {
	d := open(t)
	defer d.Close()
	g, y := convolutions[0].graph(t, op.Conv, dtype.Float32, "bias relu")
	r := rand.New(rand.NewPCG(1, 2))
	var in [][]float64
	for _, p := range g.params {
		in = append(in, numbers(r, dtype.Float32, p.Shape.Size()))
	}
	in[0][0] = math.NaN() // of the first image, behind two of padding
	channels := y.Type.Shape[2]
	got, names := g.run(d, ir.Options{}, in, y)
	for i, v := range got[0] {
		if at := i / channels; (v != v) != (at == 0 || at == 2) {
			t.Errorf("element %d is %v (kernels %v)", i, v, names)
		}
	}
}

// TestDescribeLibraries: the description has the libraries that are used, and
// says why others are not.
func TestDescribeLibraries(t *testing.T) {
	for _, c := range []struct{ products, convolutions, want string }{
		{"cublasLt 1", "cuDNN 2", "cublasLt 1, cuDNN 2"},
		{"cublasLt 1", "", "cublasLt 1, convolutions by own kernels"},
		{"", "cuDNN 2", "cuDNN 2, products by own kernels"},
		{"", "", "own kernels"},
	} {
		if got := by(c.products, c.convolutions); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	t.Setenv("MEZZO_CUDA_CUDNN", "0")
	d := open(t)
	defer d.Close()
	about := d.Describe()
	if how := about.Arithmetic[dtype.Float16]; strings.Contains(how, "cuDNN") || !slices.Contains(about.Missing, "cuDNN: MEZZO_CUDA_CUDNN=0 has it not used") {
		t.Errorf("float16: %s; missing: %q", how, about.Missing)
	}
}
