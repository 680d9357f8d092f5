package scenario

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// rowsCase is a model whose predictions for a sample must not depend on the other samples of
// its batch.
type rowsCase struct {
	name  string
	make  func() *keras.Model
	in    []int // axes of a sample
	from  int   // 0: normal numbers, else integers below it
	large bool
}

// rowsCases have the sizes of models, not of tests: small layers use other kernels.
func rowsCases() []rowsCase {
	return []rowsCase{
		{"dense 784-512", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 512, Activation: "relu"}) }, []int{784}, 0, false},
		{"dense 784-10", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 10}) }, []int{784}, 0, false},
		{"dense 4096-4096", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 4096}) }, []int{4096}, 0, true},
		{"dense 4096-10", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 10}) }, []int{4096}, 0, false},
		{"dense 4001-13", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 13}) }, []int{4001}, 0, false},
		{"dense 3000-100", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 100, Activation: "gelu"}) }, []int{3000}, 0, false},
		{"dense 33-65", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 65, Activation: "tanh"}) }, []int{33}, 0, false},
		{"dense 7-3", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 3, Activation: "softmax"}) }, []int{7}, 0, false},
		{"dense 512-1", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 1, Activation: "sigmoid"}) }, []int{512}, 0, false},
		{"dense 1-64", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 64}) }, []int{1}, 0, false},
		{"dense 2048-256, no bias", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 256, UseBias: new(false)}) }, []int{2048}, 0, false},
		{"dense 5547-120", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 120}) }, []int{5547}, 0, false},
		{"dense of steps", func() *keras.Model { return keras.Sequential(&layers.Dense{Units: 96, Activation: "relu"}) }, []int{17, 80}, 0, false},
		{"einsum dense", func() *keras.Model {
			return keras.Sequential(&layers.EinsumDense{Equation: "abc,cd->abd", OutputShape: []int{-1, 64}, BiasAxes: "d"})
		}, []int{12, 128}, 0, false},
		{"mlp", func() *keras.Model {
			return keras.Sequential(&layers.Dense{Units: 300, Activation: "relu"}, &layers.Dense{Units: 100, Activation: "relu"}, &layers.Dense{Units: 10, Activation: "softmax"})
		}, []int{784}, 0, false},
		{"embedding", func() *keras.Model { return keras.Sequential(&layers.Embedding{InputDim: 1000, OutputDim: 48}) }, []int{20}, 1000, false},
		{"text cnn", func() *keras.Model {
			return keras.Sequential(&layers.Embedding{InputDim: 1000, OutputDim: 64}, &layers.Conv1D{Filters: 96, KernelSize: []int{5}, Activation: "relu"}, &layers.GlobalMaxPooling1D{}, &layers.Dense{Units: 10})
		}, []int{60}, 1000, false},
		{"conv2d 1-32", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 32, KernelSize: []int{3, 3}, Activation: "relu"})
		}, []int{28, 28, 1}, 0, false},
		{"conv2d 3-16", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 16, KernelSize: []int{3, 3}, Padding: "same"})
		}, []int{32, 32, 3}, 0, false},
		{"conv2d 16-16", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 16, KernelSize: []int{3, 3}, Padding: "same"})
		}, []int{16, 16, 16}, 0, false},
		{"conv2d 64-64", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 64, KernelSize: []int{3, 3}, Padding: "same", Activation: "relu"})
		}, []int{14, 14, 64}, 0, false},
		{"conv2d 128-256", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 256, KernelSize: []int{3, 3}, Padding: "same"})
		}, []int{7, 7, 128}, 0, false},
		{"conv2d 64-128, strides", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 128, KernelSize: []int{3, 3}, Strides: []int{2, 2}, Padding: "same"})
		}, []int{14, 14, 64}, 0, false},
		{"conv2d 5x5", func() *keras.Model { return keras.Sequential(&layers.Conv2D{Filters: 50, KernelSize: []int{5, 5}}) }, []int{12, 12, 20}, 0, false},
		{"conv2d 1x1", func() *keras.Model { return keras.Sequential(&layers.Conv2D{Filters: 96, KernelSize: []int{1, 1}}) }, []int{14, 14, 64}, 0, false},
		{"conv2d 7x7, strides", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 32, KernelSize: []int{7, 7}, Strides: []int{2, 2}})
		}, []int{32, 32, 3}, 0, false},
		{"conv2d, dilated", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 24, KernelSize: []int{3, 3}, DilationRate: []int{2, 2}})
		}, []int{16, 16, 24}, 0, false},
		{"conv2d, groups", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 32, KernelSize: []int{3, 3}, Groups: new(4)})
		}, []int{12, 12, 32}, 0, false},
		{"conv2d, small images", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 40, KernelSize: []int{3, 3}, Padding: "same"})
		}, []int{4, 2, 79}, 0, false},
		{"conv2d, one filter", func() *keras.Model { return keras.Sequential(&layers.Conv2D{Filters: 1, KernelSize: []int{3, 3}}) }, []int{14, 14, 32}, 0, false},
		{"conv1d", func() *keras.Model {
			return keras.Sequential(&layers.Conv1D{Filters: 64, KernelSize: []int{3}, Activation: "relu"})
		}, []int{50, 32}, 0, false},
		{"conv1d, causal", func() *keras.Model {
			return keras.Sequential(&layers.Conv1D{Filters: 32, KernelSize: []int{4}, Padding: "causal", DilationRate: []int{2}})
		}, []int{40, 16}, 0, false},
		{"conv3d", func() *keras.Model { return keras.Sequential(&layers.Conv3D{Filters: 16, KernelSize: []int{3, 3, 3}}) }, []int{6, 10, 10, 4}, 0, false},
		{"conv2d transpose", func() *keras.Model {
			return keras.Sequential(&layers.Conv2DTranspose{Filters: 16, KernelSize: []int{3, 3}, Strides: []int{2, 2}, Padding: "same"})
		}, []int{8, 8, 32}, 0, false},
		{"conv2d transpose of a pixel", func() *keras.Model {
			return keras.Sequential(&layers.Conv2DTranspose{Filters: 6, KernelSize: []int{2, 2}, Strides: []int{2, 2}})
		}, []int{1, 1, 20}, 0, false},
		{"depthwise 3x3", func() *keras.Model {
			return keras.Sequential(&layers.DepthwiseConv2D{KernelSize: []int{3, 3}, Padding: "same"})
		}, []int{14, 14, 64}, 0, false},
		{"depthwise 5x5, strides", func() *keras.Model {
			return keras.Sequential(&layers.DepthwiseConv2D{KernelSize: []int{5, 5}, Strides: []int{2, 2}, DepthMultiplier: new(2)})
		}, []int{16, 16, 24}, 0, false},
		{"separable", func() *keras.Model {
			return keras.Sequential(&layers.SeparableConv2D{Filters: 64, KernelSize: []int{3, 3}, Padding: "same"})
		}, []int{12, 12, 32}, 0, false},
		{"conv, batch normalization", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 32, KernelSize: []int{3, 3}, Padding: "same", UseBias: new(false)}, &layers.BatchNormalization{}, &layers.ReLU{})
		}, []int{16, 16, 16}, 0, false},
		{"conv, pool, dense", func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 20, KernelSize: []int{5, 5}, Activation: "relu"}, &layers.MaxPooling2D{}, &layers.Conv2D{Filters: 50, KernelSize: []int{5, 5}, Activation: "relu"}, &layers.MaxPooling2D{}, &layers.Flatten{}, &layers.Dense{Units: 500, Activation: "relu"}, &layers.Dense{Units: 10, Activation: "softmax"})
		}, []int{28, 28, 1}, 0, false},
		{"average pooling", func() *keras.Model {
			return keras.Sequential(&layers.AveragePooling2D{PoolSize: []int{3, 3}, Padding: "same"})
		}, []int{15, 15, 33}, 0, false},
		{"global average pooling", func() *keras.Model { return keras.Sequential(&layers.GlobalAveragePooling2D{}) }, []int{14, 14, 65}, 0, false},
		{"global average pooling, few channels", func() *keras.Model { return keras.Sequential(&layers.GlobalAveragePooling2D{}) }, []int{18, 20, 23}, 0, false},
		{"adaptive pooling", func() *keras.Model {
			return keras.Sequential(&layers.AdaptiveAveragePooling2D{OutputSize: []int{3, 3}})
		}, []int{14, 14, 20}, 0, false},
		{"batch normalization", func() *keras.Model { return keras.Sequential(&layers.BatchNormalization{}) }, []int{30, 17}, 0, false},
		{"layer normalization", func() *keras.Model { return keras.Sequential(&layers.LayerNormalization{}) }, []int{20, 96}, 0, false},
		{"layer normalization, one row", func() *keras.Model { return keras.Sequential(&layers.LayerNormalization{}) }, []int{1000}, 0, false},
		{"rms normalization", func() *keras.Model { return keras.Sequential(&layers.RMSNormalization{}) }, []int{10, 200}, 0, false},
		{"group normalization", func() *keras.Model { return keras.Sequential(&layers.GroupNormalization{Groups: new(4)}) }, []int{12, 12, 32}, 0, false},
		{"unit normalization", func() *keras.Model { return keras.Sequential(&layers.UnitNormalization{}) }, []int{257}, 0, false},
		{"softmax", func() *keras.Model { return keras.Sequential(&layers.Softmax{}) }, []int{5, 1000}, 0, false},
		{"activations", func() *keras.Model {
			return keras.Sequential(&layers.Activation{Activation: "gelu"}, &layers.Activation{Activation: "swish"}, &layers.Activation{Activation: "softplus"})
		}, []int{77}, 0, false},
		{"lstm", func() *keras.Model { return keras.Sequential(&layers.LSTM{Units: 64, ReturnSequences: true}) }, []int{12, 40}, 0, false},
		{"lstm, large", func() *keras.Model { return keras.Sequential(&layers.LSTM{Units: 256}) }, []int{8, 128}, 0, true},
		{"gru", func() *keras.Model { return keras.Sequential(&layers.GRU{Units: 64, ReturnSequences: true}) }, []int{12, 40}, 0, false},
		{"simple rnn", func() *keras.Model { return keras.Sequential(&layers.SimpleRNN{Units: 100}) }, []int{10, 30}, 0, false},
		{"bidirectional gru", func() *keras.Model {
			return keras.Sequential(&layers.Embedding{InputDim: 500, OutputDim: 32}, &layers.Bidirectional{Layer: &layers.GRU{Units: 48}}, &layers.Dense{Units: 1, Activation: "sigmoid"})
		}, []int{20}, 500, false},
		{"conv lstm", func() *keras.Model {
			return keras.Sequential(&layers.ConvLSTM2D{Filters: 8, KernelSize: []int{3, 3}, Padding: "same"})
		}, []int{4, 8, 8, 4}, 0, false},
		{"time distributed", func() *keras.Model { return keras.Sequential(&layers.TimeDistributed{Layer: &layers.Dense{Units: 40}}) }, []int{9, 60}, 0, false},
		{"attention", functional(attention, 24, 64), []int{24, 64}, 0, false},
		{"attention, long", functional(attention, 130, 64), []int{130, 64}, 0, false},
		{"attention, one step", functional(attention, 1, 64), []int{1, 64}, 0, false},
		{"group query attention", functional(func(x *keras.Tensor) *keras.Tensor {
			return keras.Apply(&layers.GroupQueryAttention{HeadDim: 16, NumQueryHeads: 4, NumKeyValueHeads: 2}, x, x)
		}, 24, 64), []int{24, 64}, 0, false},
		{"products of long columns", functional(func(x *keras.Tensor) *keras.Tensor {
			return keras.Apply(&layers.Dot{Axes: layers.PerAxis{1, 1}}, x, x)
		}, 3000, 32), []int{3000, 32}, 0, true},
		{"products of steps", functional(func(x *keras.Tensor) *keras.Tensor {
			return keras.Apply(&layers.Dot{Axes: layers.PerAxis{2, 2}}, x, x)
		}, 40, 48), []int{40, 48}, 0, false},
		{"transformer block", functional(func(x *keras.Tensor) *keras.Tensor {
			x = keras.Apply(&layers.LayerNormalization{}, keras.Apply(&layers.Add{}, x, attention(x)))
			y := keras.Apply(&layers.Dense{Units: 64}, keras.Apply(&layers.Dense{Units: 256, Activation: "gelu"}, x))
			return keras.Apply(&layers.LayerNormalization{}, keras.Apply(&layers.Add{}, x, y))
		}, 32, 64), []int{32, 64}, 0, false},
		{"residual blocks", functional(func(x *keras.Tensor) *keras.Tensor {
			for range 2 {
				y := keras.Apply(&layers.ReLU{}, keras.Apply(&layers.BatchNormalization{}, convSame(x)))
				x = keras.Apply(&layers.ReLU{}, keras.Apply(&layers.Add{}, x, keras.Apply(&layers.BatchNormalization{}, convSame(y))))
			}
			return keras.Apply(&layers.Dense{Units: 10}, keras.Apply(&layers.GlobalAveragePooling2D{}, x))
		}, 16, 16, 16), []int{16, 16, 16}, 0, false},
	}
}

func functional(f func(x *keras.Tensor) *keras.Tensor, sample ...int) func() *keras.Model {
	return func() *keras.Model {
		in := keras.Input(sample...)
		m, err := keras.NewModel(in, f(in))
		if err != nil {
			panic(err)
		}
		return m
	}
}

func attention(x *keras.Tensor) *keras.Tensor {
	return keras.Apply(&layers.MultiHeadAttention{NumHeads: 4, KeyDim: 16}, x, x)
}

func convSame(x *keras.Tensor) *keras.Tensor {
	return keras.Apply(&layers.Conv2D{Filters: 16, KernelSize: []int{3, 3}, Padding: "same", UseBias: new(false)}, x)
}

// TestRows: what is predicted for a sample has the same bits whatever its batch and its place
// in it, in few small batches; with -every each case under one policy also in batches of up to 257
// samples, and large cases; with -full all of it under every policy. On a machine
// with tile registers this is promised of 16-bit types only with portable bits. Nor do bits
// depend on whether layers are computed sample by sample (MEZZO_SKIP=depth-first). Where there is
// more than AVX2, a process with AVX2 and one with portable bits run the test, too.
func TestRows(t *testing.T) {
	level := keras.Devices()[0].ISA
	fromGo := level == "portable Go" // and slow
	if backend.CurrentBits() != backend.PortableBits && os.Getenv("MEZZO_CPU") == "" && level != "AVX2" && !fromGo {
		for setting, every := range map[string]bool{"MEZZO_CPU=avx2": *every, "MEZZO_BITS=portable": false} {
			c := exec.Command(os.Args[0], "-test.run=^TestRows$", fmt.Sprint("-every=", every))
			c.Env = append(os.Environ(), setting)
			if said, err := c.CombinedOutput(); err != nil {
				t.Errorf("with %s: %v\n%s", setting, err, said)
			}
		}
	}
	layerByLayer, err := backend.ParseSkips("depth-first")
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for k, c := range rowsCases() {
		if c.large && (fromGo || !*every) {
			continue // takes long
		}
		for j, name := range rowsPolicies() {
			most, sizes := 65, []int{1, 2, 7, 33}
			switch inTurn := j == k%len(rowsPolicies()); {
			case fromGo && testing.Short(): // loops over four rows, and parts of workers
				most, sizes = 34, []int{1, 7}
			case *every && (inTurn && !c.large || *full):
				most, sizes = 257, []int{1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 64, 100, 128, 200}
			case c.large && !inTurn:
				continue
			}
			t.Run(c.name+" "+name, func(t *testing.T) {
				defer policy.SetGlobal(policy.SetGlobal(name))
				m, x := c.make(), samples(c, most)
				whole := predicted(t, m, x, c, 0, most)
				row := len(whole) / most
				layers := func() []byte {
					defer backend.SetSkips(backend.SetSkips(layerByLayer))
					return predicted(t, c.make(), x, c, 0, most) // a Function keeps its plans
				}()
				if !bytes.Equal(layers, whole) {
					t.Error("computed layer by layer, samples have other bits")
				}
				differ, of, where := 0, 0, ""
				for i, n := range sizes {
					at := (most - n) * (i % 4) / 3
					got, bad := predicted(t, m, x, c, at, n), 0
					for i := range n {
						if !bytes.Equal(got[i*row:(i+1)*row], whole[(at+i)*row:(at+i+1)*row]) {
							bad++
						}
					}
					if bad > 0 {
						where += fmt.Sprintf(" %d of batch %d at %d;", bad, n, at)
					}
					differ, of = differ+bad, of+n
				}
				all += of
				if differ > 0 {
					t.Errorf("%d of %d rows differ from those of a batch of %d:%s", differ, of, most, where)
				}
			})
		}
	}
	t.Logf("%s: %d rows", level, all)
}

// rowsPolicies returns the policies under which rows do not depend on the batch.
func rowsPolicies() []string {
	if strings.Contains(keras.Devices()[0].ISA, "AMX") && backend.CurrentBits() != backend.PortableBits {
		return []string{"float32"}
	}
	return []string{"float32", "mixed_float16", "mixed_bfloat16"}
}

// samples returns n samples.
func samples(c rowsCase, n int) []float64 {
	rng := rand.New(rand.NewPCG(25, 1))
	data := make([]float64, n*op.Shape(c.in).Size())
	for i := range data {
		if c.from > 0 {
			data[i] = float64(rng.IntN(c.from))
		} else {
			data[i] = rng.NormFloat64()
		}
	}
	return data
}

// input returns n samples from one on.
func input(c rowsCase, all []float64, at, n int) *tensor.Tensor {
	d := dtype.Float32
	if c.from > 0 {
		d = dtype.Int32
	}
	size := op.Shape(c.in).Size()
	x := op.Type{DType: d, Shape: append(op.Shape{n}, c.in...)}
	data := make([]byte, x.Bytes())
	dtype.FromF64(data, all[at*size:(at+n)*size], d)
	return tensor.FromBytes(x, data)
}

// predicted returns the bytes of what a model predicts for n samples from one on.
func predicted(t *testing.T, m *keras.Model, all []float64, c rowsCase, at, n int) []byte {
	t.Helper()
	y, err := m.Predict(t.Context(), input(c, all, at, n))
	if err != nil {
		t.Fatal(err)
	}
	b, err := y.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b)
}
