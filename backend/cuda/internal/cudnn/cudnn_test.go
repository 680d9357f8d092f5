//go:build cuda && linux && amd64

package cudnn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/fake"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nvlib"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// fakePath is that of the fake library.
var fakePath string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fakecudnn")
	if err == nil {
		fakePath, err = fake.BuildLibrary(dir, fake.CuDNN)
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

// libraries are the fake one and those that MEZZO_CUDNN names, real ones, with
// colons between them: descriptions need no GPU.
func libraries(t *testing.T) []*Library {
	var list []*Library
	for _, path := range append([]string{fakePath}, filepath.SplitList(os.Getenv("MEZZO_CUDNN"))...) {
		l, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if major := fmt.Sprint(l.Version[0]); !strings.HasSuffix(path, major) || l.Runtime < 11000 {
			t.Errorf("%s: version %d, for CUDA %d", path, l.Version, l.Runtime)
		}
		t.Logf("%s: cuDNN %d for CUDA %d, %d parts", path, l.Version, l.Runtime, len(l.parts))
		list = append(list, l)
	}
	return list
}

// image is a convolution of images with 3x3 kernels.
func image() Problem {
	return Problem{
		Type: dtype.Float16, Batch: 2, Axes: 2, Input: [3]int{9, 8}, Output: [3]int{5, 4}, Window: [3]int{3, 3},
		Stride: [3]int{2, 2}, Dilation: [3]int{1, 1}, Padding: [3]int{1, 1}, InChannels: 12, OutChannels: 20, Groups: 1,
	}
}

// TestDescribe: the library takes descriptions of every kind of convolution,
// and its result has the sizes that we expect.
func TestDescribe(t *testing.T) {
	for _, l := range libraries(t) {
		for _, dt := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
			for _, operation := range []Operation{Forward, BackwardData, BackwardFilter} {
				for name, change := range map[string]func(*Problem){
					"image": func(p *Problem) {},
					"tf32":  func(p *Problem) { p.TF32 = true },
					"sequence": func(p *Problem) {
						p.Input, p.Output, p.Window, p.Padding = [3]int{1, 9}, [3]int{1, 5}, [3]int{1, 3}, [3]int{0, 1}
					},
					"dilation": func(p *Problem) { p.Dilation, p.Output = [3]int{2, 3}, [3]int{4, 2} },
					"groups":   func(p *Problem) { p.Groups = 4 },
					"channels": func(p *Problem) { p.InChannels, p.OutChannels, p.Groups = 7, 7, 7 },
					"cube": func(p *Problem) {
						p.Axes, p.Input, p.Output, p.Window = 3, [3]int{5, 9, 8}, [3]int{4, 5, 4}, [3]int{2, 3, 3}
						p.Stride, p.Dilation, p.Padding = [3]int{1, 2, 2}, [3]int{1, 1, 1}, [3]int{0, 1, 1}
					},
					"point": func(p *Problem) { p.Window, p.Padding = [3]int{1, 1}, [3]int{} },
				} {
					p := image()
					p.Type, p.Operation = dt, operation
					change(&p)
					for bits := range 3 {
						if p.Bias, p.Relu = bits > 0, bits > 1; p.Bias && operation != Forward {
							continue
						}
						c, err := l.describe(p)
						if err != nil {
							t.Errorf("%s: %s: %+v: %v", l.Path, name, p, err)
							continue
						}
						c.Close()
					}
				}
			}
		}
	}
}

// TestRefused: what is no convolution is an error, of us or of the library.
func TestRefused(t *testing.T) {
	for _, l := range libraries(t) {
		for name, c := range map[string]struct {
			change func(*Problem)
			call   string // of the library, or nothing
			text   string
		}{
			"type":          {func(p *Problem) { p.Type = dtype.Float64 }, "", "float64"},
			"axes":          {func(p *Problem) { p.Axes = 1 }, "", "1 axes"},
			"ReLU alone":    {func(p *Problem) { p.Relu = true }, "", "ReLU"},
			"bias behind":   {func(p *Problem) { p.Operation, p.Bias = BackwardData, true }, "", "bias"},
			"no images":     {func(p *Problem) { p.Batch = 0 }, "cudnnSetTensorNdDescriptor of the input", "BAD_PARAM"},
			"no window":     {func(p *Problem) { p.Window[1] = 0 }, "cudnnSetFilterNdDescriptor", "BAD_PARAM"},
			"no stride":     {func(p *Problem) { p.Stride[0] = 0 }, "cudnnSetConvolutionNdDescriptor", "BAD_PARAM"},
			"cut input":     {func(p *Problem) { p.Padding[0] = -1 }, "cudnnSetConvolutionNdDescriptor", "BAD_PARAM"},
			"groups":        {func(p *Problem) { p.Groups = 5 }, "cudnnGetConvolutionNdForwardOutputDim", "BAD_PARAM"},
			"large window":  {func(p *Problem) { p.Window[0] = 12 }, "cudnnGetConvolutionNdForwardOutputDim", "BAD_PARAM"},
			"other padding": {func(p *Problem) { p.Output[0] = 6 }, "", "[2 20 5 4], want [2 20 6 4]"},
		} {
			p := image()
			c.change(&p)
			made, err := l.describe(p)
			if err == nil {
				made.Close()
				t.Errorf("%s: %s: described", l.Path, name)
				continue
			}
			var e *Error
			if errors.As(err, &e) != (c.call != "") || e != nil && e.Call != c.call || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %s: got %v, want %s of %s", l.Path, name, err, c.text, c.call)
			}
		}
	}
}

// TestOpen: a library is found in the directory of the setting, and one for a
// newer CUDA than the driver's is refused.
func TestOpen(t *testing.T) {
	t.Setenv(nvlib.Setting, filepath.Dir(fakePath))
	l, err := Open(12040)
	if err != nil || l.Path != fakePath || l.Version != [3]int{9, 10, 2} {
		t.Fatalf("%+v (%v)", l, err)
	}
	t.Setenv("FAKECUDNN_CUDA", "13000")
	var unfit nvlib.Unfit
	if _, err := loadFor(12040, fakePath); !errors.As(err, &unfit) || unfit != "is for CUDA 13" {
		t.Errorf("driver of CUDA 12, library for 13: %v", err)
	}
	if _, err := loadFor(13000, fakePath); err != nil {
		t.Errorf("driver of CUDA 13: %v", err)
	}
}
