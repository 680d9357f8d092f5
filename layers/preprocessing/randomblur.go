package preprocessing

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// filtered is each channel of images [batch rows columns channels] convolved
// with a window [rows columns], with zeros around the image.
func filtered(x, window *tensor.Tensor) *tensor.Tensor {
	channels := x.Dim(3)
	kernel := window.CastLike(x).Reshape(window.Dim(0), window.Dim(1), 1, 1).BroadcastTo(window.Dim(0), window.Dim(1), 1, channels)
	return x.Conv(kernel, tensor.ConvOptions{Padding: "same", Groups: channels})
}

// RandomSharpness sharpens or blurs images: y = s + 2f·(x - s), limited to
// ValueRange, where s is x smoothed by the window [1 1 1; 1 5 1; 1 1 1]/13 and
// f is drawn from Factor. ½ changes nothing, less blurs, and more sharpens.
//
// Shapes: [batch rows columns channels] → the same.
type RandomSharpness struct {
	Factor      Factor    // required; from 0 to 1; 1 number f: 0 to f
	ValueRange  []float64 `default:"[0, 255]"`
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Seed        *int64    // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	image randomImage
	span  span
}

// Config returns the fields Name and DType.
func (r *RandomSharpness) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomSharpness) Build(in ...layers.Shape) error {
	return r.image.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomSharpness) check(in []layers.Shape) error {
	if err := r.span.of(r.Factor, 0, 1, layers.Defaults(*r).ValueRange); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput requires rank 4.
func (r *RandomSharpness) CheckInput(in ...layers.Shape) error {
	_, err := r.image.field.Of(layers.Defaults(*r).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomSharpness) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, r.transform)
}

func (r *RandomSharpness) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	wide := r.image.last(x).Cast(x.DType().Accumulator())
	const edge, middle = 1. / 13, 5. / 13
	smooth := filtered(wide, support.Constant(wide.DType(), []float64{edge, edge, edge, edge, middle, edge, edge, edge, edge}, 3, 3))
	blur := d.each(r.span.from, r.span.to).MulScalar(-2).AddScalar(1).CastLike(wide)
	between := layers.Defaults(*r).ValueRange
	y := wide.Add(blur.Mul(smooth.Sub(wide))).Clip(between[0], between[1])
	return r.image.back(y.Cast(x.DType()))
}

// RandomGaussianBlur blurs images, each with a probability drawn from Factor,
// with a window of normal weights e^(-t²/2σ²). Its deviations along columns
// and rows, in pixels, are drawn from Sigma for all images of a batch. Images
// are padded with 0 and limited to ValueRange.
//
// Shapes: [batch rows columns channels] → the same.
type RandomGaussianBlur struct {
	Factor      Factor         `default:"1"` // from 0 to 1; 1 number f: 0 to f
	KernelSize  layers.PerAxis `default:"3"` // odd; 1 number, or 2: along columns, along rows
	Sigma       Factor         `default:"1"` // from 0 to 1; 1 number s: 0 to s
	ValueRange  []float64      `default:"[0, 255]"`
	DataFormat  string         `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Seed        *int64         // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	image       randomImage
	span, sigma span
	size        []int
}

// Config returns the fields Name and DType.
func (r *RandomGaussianBlur) Config() layers.Config {
	return layers.Config{Name: r.Name, DType: r.DType}
}

// Build makes the state of the random numbers.
func (r *RandomGaussianBlur) Build(in ...layers.Shape) (err error) {
	c := layers.Defaults(*r)
	if err := r.span.of(c.Factor, 0, 1, c.ValueRange); err != nil {
		return err
	}
	if r.sigma.from, r.sigma.to, err = c.Sigma.ends("Sigma", 0, 1); err != nil {
		return err
	}
	if r.size, err = support.EachAxis(c.KernelSize, "KernelSize", 2, 1); err != nil {
		return err
	}
	if r.size[0]%2 == 0 || r.size[1]%2 == 0 {
		return fmt.Errorf("KernelSize is %v, want odd numbers", []int(c.KernelSize))
	}
	return r.image.seeded(&r.Base, r.Seed, r.CheckInput(in...))
}

// CheckInput requires rank 4.
func (r *RandomGaussianBlur) CheckInput(in ...layers.Shape) error {
	_, err := r.image.field.Of(layers.Defaults(*r).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomGaussianBlur) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		some := d.chance(r.span.from, r.span.to)
		// Not 0, which nothing can be divided by.
		along := func() *tensor.Tensor { return d.between(r.sigma.from, r.sigma.to, 1).AddScalar(1e-6) }
		across := along()
		return r.blur(x, some, along(), across)
	})
}

// blur blurs some images, with deviations [1] along columns and rows.
func (r *RandomGaussianBlur) blur(x, some, down, across *tensor.Tensor) *tensor.Tensor {
	wide := r.image.last(x).Cast(x.DType().Accumulator())
	y := filtered(wide, normalWeights(r.size[0], down).Reshape(r.size[0], 1))
	y = filtered(y, normalWeights(r.size[1], across).Reshape(1, r.size[1]))
	between := layers.Defaults(*r).ValueRange
	y = tensor.Where(some, y, wide).Clip(between[0], between[1])
	return r.image.back(y.Cast(x.DType()))
}

// normalWeights are e^(-t²/2σ²) at n places t around 0, with a sum of 1; sigma
// is [1].
func normalWeights(n int, sigma *tensor.Tensor) *tensor.Tensor {
	t := tensor.Iota(sigma.DType(), n).AddScalar(-float64(n-1) / 2)
	w := t.Div(sigma).Square().MulScalar(-0.5).Exp()
	return w.Div(w.SumKeep(0))
}

// bandOf are matrices that blur n pixels in a row, with zeros around them: those
// of normalWeights for places up to 3·⌊sigma⌋ from the middle, [n n]. sigma is
// [1 1], above 0 and to most.
func bandOf(n int, sigma *tensor.Tensor, most float64) *tensor.Tensor {
	d := sigma.DType()
	weights := func(t *tensor.Tensor) *tensor.Tensor {
		inside := t.LessEqual(sigma.Floor().MulScalar(3)).Cast(d)
		return t.Div(sigma).Square().MulScalar(-0.5).Exp().Mul(inside)
	}
	distance := tensor.Iota(d, n).Reshape(n, 1).Sub(tensor.Iota(d, 1, n)).Abs()
	reach := 3 * int(most)
	sum := weights(tensor.Iota(d, 1, 2*reach+1).AddScalar(-float64(reach)).Abs()).SumKeep(1)
	return weights(distance).Div(sum)
}

// normalFields are float32 numbers [batch rows columns] of n whose deviation is
// sigma pixels, blurred by as much.
func normalFields(n, sigma *tensor.Tensor, most float64) *tensor.Tensor {
	rows, columns := n.Dim(1), n.Dim(2)
	y := bandOf(rows, sigma, most).Reshape(1, rows, rows).MatMul(n)
	return y.MatMul(bandOf(columns, sigma, most).Reshape(1, columns, columns)).Mul(sigma.Reshape(1, 1, 1))
}
