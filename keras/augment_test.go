package keras_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/policy"
)

// pictures are 7 images of 3 channels and their one-hot labels.
func pictures() (x, y *keras.Tensor) {
	data := make([]float32, 7*9*8*3)
	for i := range data {
		data[i] = float32((i*7919)%2551) / 10
	}
	labels := make([]float32, 7*7)
	for i := range 7 {
		labels[i*7+i] = 1
	}
	return tensor.New(data, 7, 9, 8, 3), tensor.New(labels, 7, 7)
}

// augmenting are layers of random images, one of them twice.
func augmenting() []layers.Layer {
	return []layers.Layer{
		&preprocessing.RandomFlip{},
		&preprocessing.RandomRotation{Factor: preprocessing.Factor{0.1}},
		&preprocessing.RandomHue{Factor: preprocessing.Factor{0.3}, Seed: new(int64(5))},
		&preprocessing.RandAugment{},
		&preprocessing.RandomErasing{},
		&preprocessing.RandomHue{Factor: preprocessing.Factor{0.2}},
		&preprocessing.MixUp{},
	}
}

func bytesOf(t *testing.T, x *keras.Tensor) []byte {
	t.Helper()
	b, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAugmentAsModel: layers give the same pixels in a dataset as in a model,
// with the same seeds, in every epoch, under every policy; and an epoch that is
// opened in its middle has the same ones again.
func TestAugmentAsModel(t *testing.T) {
	x, _ := pictures()
	for _, name := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		t.Run(name, func(t *testing.T) {
			defer policy.SetGlobal(policy.SetGlobal(name))
			plain := keras.FromTensors(x, nil, nil).Shuffle(7, 3).Batch(2)
			model := keras.Sequential(augmenting()...)
			step := keras.Function(func(x *keras.Tensor) *keras.Tensor {
				return model.Call(x, keras.Training)
			}, model)
			ctx := context.Background()
			changed := plain.Augment(augmenting()...).Prefetch(1)
			var second [][]byte
			for epoch := range 2 {
				var want [][]byte
				for b, err := range plain.Epoch(ctx, epoch, 0) {
					if err != nil {
						t.Fatal(err)
					}
					y, err := step.Call(ctx, b.X)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, bytesOf(t, y))
				}
				i := 0
				for b, err := range changed.Epoch(ctx, epoch, 0) {
					if err != nil {
						t.Fatal(err)
					}
					// The results of models are float32.
					if !bytes.Equal(bytesOf(t, b.X.Cast(dtype.Float32)), want[i]) {
						t.Errorf("epoch %d, batch %d: got other pixels than in a model", epoch, i)
					}
					i++
				}
				if i != 4 {
					t.Fatalf("epoch %d: got %d batches, want 4", epoch, i)
				}
				second = want
			}
			i := 2
			for b, err := range plain.Augment(augmenting()...).Epoch(ctx, 1, i) {
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(bytesOf(t, b.X.Cast(dtype.Float32)), second[i]) {
					t.Errorf("batch %d of a resumed epoch: got other pixels", i)
				}
				i++
			}
		})
	}
}

// TestAugmentTwice: a layer that draws twice in a batch does not draw the same
// numbers in the next one, whichever comes first.
func TestAugmentTwice(t *testing.T) {
	x, y := pictures()
	twice := func() layers.Layer {
		in, flip := keras.Input(9, 8, 3), &preprocessing.RandomErasing{}
		m, err := keras.NewModel(in, keras.Apply(flip, keras.Apply(flip, in)))
		if err != nil {
			t.Fatal(err)
		}
		return m.Layer()
	}
	read := func(skip int) (all [][]byte) {
		for b, err := range keras.FromTensors(x, y, nil).Batch(3).Augment(twice()).Epoch(context.Background(), 4, skip) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, bytesOf(t, b.X))
		}
		return all
	}
	all := read(0)
	for skip := range 3 {
		for i, b := range read(skip) {
			if !bytes.Equal(b, all[skip+i]) {
				t.Errorf("from batch %d on: batch %d has other pixels", skip, skip+i)
			}
		}
	}
}

// TestAugmentLabels: labels are mixed as images are, and stay where nothing
// mixes them.
func TestAugmentLabels(t *testing.T) {
	_, y := pictures()
	// The image of a class is of its number, in its share of the label.
	x := tensor.Iota(dtype.Float32, 7).Reshape(7, 1, 1, 1).BroadcastTo(7, 4, 4, 1)
	weight := tensor.Ones(dtype.Float32, 7)
	for b, err := range keras.FromTensors(x, y, weight).Batch(7).Augment(&preprocessing.RandomFlip{}, &preprocessing.MixUp{Alpha: 1}).Batches() {
		if err != nil {
			t.Fatal(err)
		}
		pixels, err := b.X.Mean(1, 2, 3).Float64s()
		if err != nil {
			t.Fatal(err)
		}
		labels, err := b.Y.MatMul(tensor.Iota(dtype.Float32, 7).Reshape(7, 1)).Float64s()
		if err != nil {
			t.Fatal(err)
		}
		mixed := 0
		for i, p := range pixels {
			// A few roundings of numbers up to 6.
			if d := p - labels[i]; !(d > -1e-5 && d < 1e-5) {
				t.Errorf("image %d has %v and its label %v", i, p, labels[i])
			}
			if p != float64(i) {
				mixed++
			}
		}
		if mixed == 0 {
			t.Errorf("nothing was mixed")
		}
		if b.Weight == nil {
			t.Errorf("the weights are gone")
		}
	}
	for b, err := range keras.FromTensors(x, y, nil).Batch(7).Augment(&preprocessing.RandomErasing{}).Batches() {
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytesOf(t, b.Y), bytesOf(t, y)) {
			t.Errorf("RandomErasing changed labels")
		}
	}
}

func TestAugmentErrors(t *testing.T) {
	x, y := pictures()
	numbers := tensor.Iota(dtype.Int32, 7)
	for _, c := range []struct {
		d    *keras.Pipeline
		want string
	}{
		{keras.FromTensors(x, y, nil).Augment(&preprocessing.RandomFlip{}),
			"Augment: the dataset has no batches, want Batch before"},
		{keras.FromTensors(keras.Tuple(x, x), y, nil).Batch(2).Augment(&preprocessing.RandomFlip{}),
			"Augment: element 0: X is (float32[2 9 8 3], float32[2 9 8 3]), want images"},
		{keras.FromTensors(x, keras.Tuple(y, y), nil).Batch(2).Augment(&preprocessing.CutMix{}),
			"Augment: element 0: Y is (float32[2 7], float32[2 7]), want one tensor of labels to mix"},
		{keras.FromTensors(x, numbers, nil).Batch(2).Augment(&preprocessing.CutMix{}),
			"Augment: element 0: layer cut_mix: Call: labels are int32[2], want floats, such as one-hot vectors"},
		{keras.FromTensors(y, nil, nil).Batch(2).Augment(&preprocessing.RandomFlip{}, &preprocessing.RandomFlip{Mode: "up"}),
			"Augment: element 0: layer random_flip: Build: input [2 7] has 2 axes, want at least 4"},
		{keras.FromTensors(x, nil, nil).Batch(2).Augment(&preprocessing.RandomFlip{}, &preprocessing.RandomFlip{Mode: "up"}),
			`Augment: element 0: layer random_flip_1: Build: Mode is "up", want horizontal, vertical or horizontal_and_vertical`},
	} {
		n := 0
		for _, err := range c.d.Batches() {
			if n++; err == nil || err.Error() != c.want {
				t.Errorf("got error %v\nwant %s", err, c.want)
			}
		}
		if n != 1 {
			t.Errorf("got %d elements, want the error %s", n, c.want)
		}
	}
}

// Images are changed while the model trains on those before, and labels are
// mixed with the images.
func ExamplePipeline_Augment() {
	x := tensor.Zeros(dtype.Float32, 64, 32, 32, 3)
	y := tensor.Full(dtype.Float32, 0.1, 64, 10) // one-hot, or other shares of 10 classes
	train := keras.FromTensors(x, y, nil).
		Shuffle(64).
		BatchDropRemainder(16).
		Augment(
			&preprocessing.RandomFlip{Mode: "horizontal"},
			&preprocessing.RandomTranslation{HeightFactor: preprocessing.Factor{0.1}, WidthFactor: preprocessing.Factor{0.1}},
			&preprocessing.RandAugment{Factor: preprocessing.Factor{0.3}},
			&preprocessing.CutMix{},
		).
		Prefetch(1)
	for b, err := range train.Batches() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(b.X.Type(), b.Y.Type())
	}
	// Output:
	// float32[16 32 32 3] float32[16 10]
	// float32[16 32 32 3] float32[16 10]
	// float32[16 32 32 3] float32[16 10]
	// float32[16 32 32 3] float32[16 10]
}
