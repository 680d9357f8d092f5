package preprocessing

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// RandomPerspective applies a random perspective transform to images, each
// with a probability drawn from Factor. Corners (x, y) move to (x+x·u, y+y·v),
// with u and v from -Scale/2 to Scale/2 for each, so the first corner does not
// move. Pixels from outside the image are FillValue.
//
// Shapes: [batch rows columns channels] → the same.
type RandomPerspective struct {
	Factor        Factor   `default:"1"`        // from 0 to 1; 1 number f: 0 to f
	Scale         *float64 `default:"1"`        // from 0 to 1
	Interpolation string   `default:"bilinear"` // or nearest
	FillValue     float64
	Seed          *int64 // default: derived from the model's seed and the layer's path
	DataFormat    string `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	layers.Base
	affine   randomAffine
	from, to float64
}

// Config returns the fields Name and DType.
func (r *RandomPerspective) Config() layers.Config {
	return layers.Config{Name: r.Name, DType: r.DType}
}

// Build makes the state of the random numbers.
func (r *RandomPerspective) Build(in ...layers.Shape) (err error) {
	c := layers.Defaults(*r)
	if r.from, r.to, err = c.Factor.ends("Factor", 0, 1); err != nil {
		return err
	}
	if s := *c.Scale; !(s >= 0 && s <= 1) {
		return fmt.Errorf("Scale is %v, want a number from 0 to 1", s)
	}
	return r.affine.seeded(&r.Base, r.Seed, r.affine.check("constant", c.Interpolation, c.FillValue, c.DataFormat, in))
}

// CheckInput requires rank 4 and at least one pixel.
func (r *RandomPerspective) CheckInput(in ...layers.Shape) error {
	return r.affine.fits(layers.Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomPerspective) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	half := *layers.Defaults(*r).Scale / 2
	return r.affine.call(&r.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		some := d.chance(r.from, r.to)
		y := r.affine.read(d, x, func(d *draws, height, width int) affineMap {
			var end [4]*tensor.Tensor
			for i, size := range []int{width, height, width, height} {
				end[i] = d.place(-half, half).AddScalar(1).MulScalar(float64(max(size-1, 1)))
			}
			return perspective(end, height, width)
		})
		return tensor.Where(some, y, x)
	})
}

// perspective moves the corners of images: the first one stays, the second one
// goes to (end[0], 0), the third, below the first, to (0, end[1]), and the last
// one to (end[2], end[3]). These are above 0.
func perspective(end [4]*tensor.Tensor, height, width int) affineMap {
	// In units of end[0] and end[1] three corners are those of the unit square.
	// A map (x, y) → ((1+g)x, (1+h)y)/(1+gx+hy) leaves them where they are, and
	// takes the fourth, (u, v), to (1, 1) where gu = v-1 and hv = u-1.
	one := tensor.Scalar(dtype.Float64, 1)
	var e [4]*tensor.Tensor
	for i := range e {
		e[i] = end[i].Cast(dtype.Float64)
	}
	u, v := e[2].Div(e[0]), e[3].Div(e[1])
	g, h := v.Sub(one).Div(u), u.Sub(one).Div(v)
	zero := u.MulScalar(0)
	d := end[0].DType()
	scaled := func(by *tensor.Tensor, size int, end *tensor.Tensor) *tensor.Tensor {
		return by.Add(one).MulScalar(float64(size - 1)).Div(end).Cast(d)
	}
	none := zero.Cast(d)
	return affineMap{
		a: [3]*tensor.Tensor{scaled(g, width, e[0]), none, none},
		b: [3]*tensor.Tensor{none, scaled(h, height, e[1]), none},
		k: &[2]*tensor.Tensor{g.Div(e[0]).Cast(d), h.Div(e[1]).Cast(d)},
	}
}

// RandomElasticTransform distorts images elastically, each with a probability
// drawn from Factor (Simard et al. 2003). A number s is drawn from Scale for
// all images of a batch. Each pixel is read from a place displaced by
// 0.1·s·max(rows, columns) times two numbers, down and to the right: normal
// noise of deviation σ = 0.05·s·min(rows, columns) for each pixel, blurred
// with the same deviation over up to 3·⌊σ⌋ pixels. All images are limited to
// ValueRange.
//
// Shapes: [batch rows columns channels] → the same.
type RandomElasticTransform struct {
	Factor        Factor    `default:"1"`        // from 0 to 1; 1 number f: 0 to f
	Scale         Factor    `default:"1"`        // from 0 to 1; 1 number s: 0 to s
	Interpolation string    `default:"bilinear"` // or nearest
	FillMode      string    `default:"reflect"`  // or wrap, constant, nearest
	FillValue     float64   // of FillMode constant
	ValueRange    []float64 `default:"[0, 255]"`
	Seed          *int64    // default: derived from the model's seed and the layer's path
	DataFormat    string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	layers.Base
	affine      randomAffine
	span, scale span
}

// Config returns the fields Name and DType.
func (r *RandomElasticTransform) Config() layers.Config {
	return layers.Config{Name: r.Name, DType: r.DType}
}

// Build makes the state of the random numbers.
func (r *RandomElasticTransform) Build(in ...layers.Shape) (err error) {
	c := layers.Defaults(*r)
	if err := r.span.of(c.Factor, 0, 1, c.ValueRange); err != nil {
		return err
	}
	if r.scale.from, r.scale.to, err = c.Scale.ends("Scale", 0, 1); err != nil {
		return err
	}
	return r.affine.seeded(&r.Base, r.Seed, r.affine.check(c.FillMode, c.Interpolation, c.FillValue, c.DataFormat, in))
}

// CheckInput requires rank 4 and at least one pixel.
func (r *RandomElasticTransform) CheckInput(in ...layers.Shape) error {
	return r.affine.fits(layers.Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomElasticTransform) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	if r.span.to == 0 || r.scale.to == 0 {
		return floats(&r.Base, x)
	}
	return r.affine.call(&r.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		some := d.chance(r.span.from, r.span.to)
		// Not 0, which nothing can be divided by.
		by := d.between(r.scale.from, r.scale.to, 1, 1).MaximumScalar(1e-6)
		y := r.affine.last(x)
		down, across := d.normal(y.Dim(0), y.Dim(1), y.Dim(2)), d.normal(y.Dim(0), y.Dim(1), y.Dim(2))
		between := layers.Defaults(*r).ValueRange
		y = tensor.Where(some, r.bend(y, by, down, across), y)
		return r.affine.back(y.Clip(between[0], between[1]))
	})
}

// bend reads images [batch rows columns channels] at places that differ by
// noise [batch rows columns]; scale is [1 1].
func (r *RandomElasticTransform) bend(x, scale, down, across *tensor.Tensor) *tensor.Tensor {
	rows, columns := x.Dim(1), x.Dim(2)
	least := 0.05 * float64(min(rows, columns))
	far := scale.MulScalar(0.1*float64(max(rows, columns))).Reshape(1, 1, 1)
	moved := func(noise, at *tensor.Tensor) *tensor.Tensor {
		return at.Add(normalFields(noise, scale.MulScalar(least), least*r.scale.to).Mul(far))
	}
	ys := moved(down, tensor.Iota(scale.DType(), 1, rows).Reshape(1, rows, 1))
	xs := moved(across, tensor.Iota(scale.DType(), 1, 1, columns))
	return r.affine.sampler.bent(x, xs, ys)
}
