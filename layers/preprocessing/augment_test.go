package preprocessing

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// augmentRoundings is by how many roundings of the largest pixel results of a
// class may be off in float32; others by 8.
var augmentRoundings = map[string]float64{
	// Hues are divided and multiplied by 6, and by differences of pixels that
	// may be a tenth of them.
	"RandomHue": 60, "RandomSaturation": 60,
	// Counts are multiplied by 255 and divided by those of a tile, then blended
	// twice.
	"ContrastLimitedAdaptiveHistogramEqualization": 16,
	// A place is off by two roundings of up to 10 pixels, which differ by as
	// much as pixels may.
	"RandomShear": 20,
	// The same, of a map that Keras gets by solving eight equations in float32.
	"RandomPerspective": 100,
	// The same, of places that are sums of up to 49 numbers of noise, of up to
	// 20 pixels.
	"RandomElasticTransform": 100,
}

// TestKerasAugment compares layers that change images with Keras, given the
// random numbers.
func TestKerasAugment(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range tensortest.Load(t, "../../keras/testdata/golden/augment.json").Cases {
		seen[c.Class()] = true
		t.Run(c.Name, func(t *testing.T) {
			want := c.Outputs["y"]
			y, labels := augmented(t, &c, "float32", c.Inputs["x"])
			most := 1e-3
			for _, v := range slices.Concat(want.Data, c.Inputs["x"].Data) {
				most = max(most, math.Abs(v))
			}
			roundings, ok := augmentRoundings[c.Class()]
			if !ok {
				roundings = 8
			}
			got, err := y.Float64s()
			if err != nil {
				t.Fatal(err)
			}
			if !y.Shape().Equal(want.Shape) {
				t.Fatalf("got %v, want shape %v", y.Type(), want.Shape)
			}
			bad := 0
			for i, w := range want.Data {
				if off := math.Abs(got[i] - w); !(off <= roundings*most*0x1p-24) {
					if bad++; bad < 4 {
						t.Errorf("element %d: got %v, want %v: off by %.0f roundings, at most %v", i, got[i], w, off/most*0x1p24, roundings)
					}
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d elements differ", bad, len(got))
			}
			if labels != nil {
				tensortest.Close(t, "labels", labels, c.Outputs["labels"], 4)
			}
			// 16-bit pixels are those of float32, rounded once.
			for _, name := range []string{"mixed_float16", "mixed_bfloat16"} {
				d := map[string]dtype.DType{"mixed_float16": dtype.Float16, "mixed_bfloat16": dtype.BFloat16}[name]
				rounded := c.Inputs["x"].As(d)
				half, _ := augmented(t, &c, name, rounded.As(dtype.Float32))
				wide, _ := augmented(t, &c, "float32", rounded.As(dtype.Float32))
				exact, err := wide.Float64s()
				if err != nil {
					t.Fatal(err)
				}
				if half.DType() != d {
					t.Errorf("%s: got %v, want %v", name, half.Type(), d)
				}
				tensortest.Close(t, name, half, tensortest.Of(dtype.Float64, exact, want.Shape...), 1)
			}
		})
	}
	if len(seen) != 19 {
		t.Errorf("got cases of %d classes, want 19: %v", len(seen), seen)
	}
}

// augmented makes the layer of a case and calls it on x, with the random numbers
// of the case where there are some.
func augmented(t *testing.T, c *tensortest.Case, policy string, of tensortest.Array) (y, labels *tensor.Tensor) {
	t.Helper()
	config := map[string]any{"dtype": policy}
	training := true
	for k, v := range c.Config {
		switch k {
		case "class_name":
		case "training":
			training = string(v) == "true"
		default:
			config[k] = v
		}
	}
	data, err := json.Marshal(map[string]any{"class_name": c.Class(), "config": config})
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layers.UnmarshalConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	x := of.Tensor()
	layers.Apply(layer, layers.Pass{}, tensor.Placeholder(x.DType(), x.Shape()...))
	x = support.CastFloats(x, layers.BaseOf(layer).ComputeDType())
	pass := layers.Pass{Training: training}
	// column is a column of the numbers of a case, [batch 1 1].
	column := func(name string, i int) *tensor.Tensor {
		a := c.Inputs[name]
		n := len(a.Data) / a.Shape[0]
		var v []float64
		for j := i; j < len(a.Data); j += n {
			v = append(v, a.Data[j])
		}
		return tensor.New(v, len(v), 1, 1).Cast(dtype.Float32)
	}
	part := func(name string, i int) interval { return interval{column(name, i), column(name, i+1)} }
	order := func() *tensor.Tensor { return c.Tensor("order").Cast(dtype.Int32) }
	switch l := layer.(type) {
	case *Solarization:
		var all []*tensor.Tensor
		for i := range x.Dim(0) {
			a, b := c.Inputs["addition"].Data[i], c.Inputs["threshold"].Data[i]
			l.addition, l.threshold = span{a, a / 255}, span{b, b / 255}
			all = append(all, l.transform(&draws{now: tensor.New([]int64{1, 2}, 2), batch: 1}, x.Slice(0, i, i+1)))
		}
		return tensor.Concat(0, all...), nil
	case *RandomHue:
		return l.turn(x, column("hue", 0).ExpandDims(-1)), nil
	case *RandomShear:
		return l.affine.back(l.affine.sampler.affine(l.affine.last(x), shear(column("shear", 0), column("shear", 1)))), nil
	case *RandomPerspective:
		var end [4]*tensor.Tensor
		for i, at := range []int{2, 5, 6, 7} {
			end[i] = column("end", at)
		}
		z := l.affine.last(x)
		return l.affine.back(l.affine.sampler.affine(z, perspective(end, z.Dim(1), z.Dim(2)))), nil
	case *RandomElasticTransform:
		noise := c.Tensor("noise")
		field := func(i int) *tensor.Tensor { return noise.Slice(0, i, i+1).Squeeze(0) }
		y := l.bend(x, tensor.Full(dtype.Float32, l.scale.to, 1, 1), field(0), field(1))
		return y.Clip(0, 255), nil
	case *MixUp:
		z := tensor.Tuple(of.Tensor(), c.Tensor("labels"))
		z = l.mixing.call(&l.Base, pass, z, func(_ *draws, x *tensor.Tensor) (y, share, at *tensor.Tensor) {
			share = column("weight", 0).ExpandDims(-1)
			return l.mix(x, share, order()), share, order()
		})
		return z.Unpack()[0], z.Unpack()[1]
	case *CutMix:
		z := tensor.Tuple(of.Tensor(), c.Tensor("labels"))
		z = l.mixing.call(&l.Base, pass, z, func(_ *draws, x *tensor.Tensor) (y, share, at *tensor.Tensor) {
			y, share = l.mix(x, part("box", 2), part("box", 0), order())
			return y, share, order()
		})
		return z.Unpack()[0], z.Unpack()[1]
	case *RandomErasing:
		some := tensor.New([]bool{true, true, false}, 3, 1, 1, 1)
		return l.erase(nil, x, some, part("box", 2), part("box", 0)), nil
	}
	return layers.Apply(layer, pass, x), nil
}

// TestDraws checks distributions by their moments, and that an order has each
// number once.
func TestDraws(t *testing.T) {
	const n = 100_000
	d := &draws{now: tensor.New([]int64{5, 0}, 2), batch: 257}
	moments := func(x *tensor.Tensor) (mean, variance float64) {
		v, err := x.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range v {
			mean += a / n
		}
		for _, a := range v {
			variance += (a - mean) * (a - mean) / n
		}
		return mean, variance
	}
	for _, alpha := range []float64{1e-6, 0.2, 1, 3, 40} {
		// Five deviations of a mean of n; those of variances are at most 3 times
		// the variance, over √n, for the beta distribution, and 3+6/alpha of it
		// for the gamma distribution.
		near := func(what string, got, want, deviation float64) {
			if !(math.Abs(got-want) <= 5*deviation/math.Sqrt(n)) {
				t.Errorf("alpha %v: %s: got %v, want %v ± %v", alpha, what, got, want, 5*deviation/math.Sqrt(n))
			}
		}
		mean, variance := moments(d.beta(d.constant(alpha), n))
		want := 1 / (4 * (2*alpha + 1))
		near("mean of beta", mean, 0.5, math.Sqrt(want))
		near("variance of beta", variance, want, 3*want)
		if alpha < 0.1 {
			continue // a gamma variable is 0 as a float32, and rarely not
		}
		mean, variance = moments(d.logGamma(d.constant(alpha), n).Exp())
		near("mean of gamma", mean, alpha, math.Sqrt(alpha))
		near("variance of gamma", variance, alpha, alpha*math.Sqrt(3+6/alpha))
	}
	order, err := d.order().Int64s()
	if err != nil {
		t.Fatal(err)
	}
	moved := 0
	for i, v := range order {
		if int(v) != i {
			moved++
		}
	}
	slices.Sort(order)
	for i, v := range order {
		if int(v) != i {
			t.Fatalf("an order of 257 has %d in place %d when sorted", v, i)
		}
	}
	if moved < 240 {
		t.Errorf("an order of 257: got %d in other places, want nearly all", moved)
	}
}

// TestSelection: with index i images are those of layer i, to the bit, and with
// one behind the last they stay.
func TestSelection(t *testing.T) {
	var s selection
	shape := layers.Shape{2, 7, 6, 3}
	names := "RandomPosterization Solarization AutoContrast Equalization RandomBrightness RandomColorDegeneration RandomContrast RandomSharpness"
	if err := s.of(names, Factor{0.5}, []float64{0, 255}, "bilinear", "channels_last", []layers.Shape{shape}); err != nil {
		t.Fatal(err)
	}
	x := tensor.RandomUniform(tensor.New([]int64{1, 1}, 2), 9, shape...).MulScalar(255)
	start := draws{now: tensor.New([]int64{3, 4}, 2), batch: 2}
	bits := func(y *tensor.Tensor) string {
		b, err := y.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	d := start
	all := s.all()
	if len(all) != 11 {
		t.Fatalf("got %d layers, want 11", len(all))
	}
	for i := range len(all) + 1 {
		again := start
		got := bits(s.apply(&again, x, tensor.Full(dtype.Float32, float64(i), 1, 1, 1, 1)))
		want := x
		if i < len(all) {
			want = all[i].transform(&d, x)
		}
		if got != bits(want) {
			t.Errorf("index %d: got other images than those of the layer", i)
		}
		if i < len(all) && got == bits(x) {
			t.Errorf("index %d: images did not change", i)
		}
	}
}
