package layers

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// randomAffine is what layers that turn, move or scale images have in common.
type randomAffine struct {
	randomImage
	sampler sampler
}

// build checks the fields.
func (r *randomAffine) build(b *Base, seed *int64, fill, interpolation string, value float64) (err error) {
	if r.sampler, err = newSampler(fill, interpolation, value); err == nil {
		r.state = b.AddRandomState(seed)
	}
	return err
}

// check wants four axes, and pixels.
func (r *randomAffine) check(format string, in []Shape) error {
	s, err := r.field.of(format, in, 2)
	for i := range 2 {
		if err == nil && s[r.field.first()+i] == 0 {
			_, err = sizedAxis(s, r.field.first()+i)
		}
	}
	return err
}

// call reads x where the map of the numbers of this call says.
func (r *randomAffine) call(p Pass, x *tensor.Tensor, of func(now *tensor.Tensor, batch, height, width int) affineMap) *tensor.Tensor {
	if r.still(p, x) {
		return x
	}
	y := r.last(x)
	return r.back(r.sampler.affine(y, of(NextState(r.state, x), y.Dim(0), y.Dim(1), y.Dim(2))))
}

// RandomRotation turns images around their middle.
//
// Shapes: [batch rows columns channels] → the same.
type RandomRotation struct {
	Factor        Factor  // required; in turns of 360°, positive ones counter-clockwise; from -1 to 1
	FillMode      string  `default:"reflect"`  // or wrap, constant, nearest
	Interpolation string  `default:"bilinear"` // or nearest
	Seed          *int64  // default: derived from the model's seed and the layer's path
	FillValue     float64 // of FillMode constant
	DataFormat    string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	Base
	affine   randomAffine
	from, to float64
}

// Config returns the fields Name and DType.
func (r *RandomRotation) Config() Config { return Config{r.Name, r.DType} }

// Build makes the state of the random numbers.
func (r *RandomRotation) Build(in ...Shape) (err error) {
	c := Defaults(*r)
	if r.from, r.to, err = c.Factor.ends("Factor", -1, 1); err != nil {
		return err
	}
	if err := r.affine.build(&r.Base, c.Seed, c.FillMode, c.Interpolation, c.FillValue); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput wants four axes, and pixels.
func (r *RandomRotation) CheckInput(in ...Shape) error {
	return r.affine.check(Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomRotation) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.call(p, x, func(now *tensor.Tensor, batch, height, width int) affineMap {
		return rotation(uniform(now, 0, batch, r.from*2*math.Pi, r.to*2*math.Pi), height, width)
	})
}

// rotation turns by angles in radians around the middle.
func rotation(angle *tensor.Tensor, height, width int) affineMap {
	cos, sin := angle.Cos(), angle.Sin()
	cx, cy := float64(width-1)/2, float64(height-1)/2
	return affineMap{
		a: [3]*tensor.Tensor{cos, sin.Neg(), cos.MulScalar(-cx).Add(sin.MulScalar(cy)).AddScalar(cx)},
		b: [3]*tensor.Tensor{sin, cos, sin.MulScalar(-cx).Sub(cos.MulScalar(cy)).AddScalar(cy)},
	}
}

// RandomZoom scales images around their middle: those of 1+Factor below 1 look
// larger.
//
// Shapes: [batch rows columns channels] → the same.
type RandomZoom struct {
	HeightFactor  Factor  // required; above -1, to 1
	WidthFactor   Factor  // default: the number that the height has
	FillMode      string  `default:"reflect"`  // or wrap, constant, nearest
	Interpolation string  `default:"bilinear"` // or nearest
	Seed          *int64  // default: derived from the model's seed and the layer's path
	FillValue     float64 // of FillMode constant
	DataFormat    string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	Base
	affine randomAffine
	ranges [2][2]float64 // of rows and columns
}

// Config returns the fields Name and DType.
func (r *RandomZoom) Config() Config { return Config{r.Name, r.DType} }

// Build makes the state of the random numbers.
func (r *RandomZoom) Build(in ...Shape) (err error) {
	c := Defaults(*r)
	above := math.Nextafter(-1, 0) // a size of 0 has no middle
	if r.ranges[0][0], r.ranges[0][1], err = c.HeightFactor.ends("HeightFactor", above, 1); err != nil {
		return err
	}
	if c.WidthFactor != nil {
		if r.ranges[1][0], r.ranges[1][1], err = c.WidthFactor.ends("WidthFactor", above, 1); err != nil {
			return err
		}
	}
	if err := r.affine.build(&r.Base, c.Seed, c.FillMode, c.Interpolation, c.FillValue); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput wants four axes, and pixels.
func (r *RandomZoom) CheckInput(in ...Shape) error {
	return r.affine.check(Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomZoom) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.call(p, x, func(now *tensor.Tensor, batch, height, width int) affineMap {
		rows := uniform(now, 0, batch, 1+r.ranges[0][0], 1+r.ranges[0][1])
		columns := rows
		if r.WidthFactor != nil {
			columns = uniform(now, 1, batch, 1+r.ranges[1][0], 1+r.ranges[1][1])
		}
		return zoom(rows, columns, height, width)
	})
}

// zoom reads rows and columns at distances from the middle times factors.
func zoom(rows, columns *tensor.Tensor, height, width int) affineMap {
	zero := rows.MulScalar(0)
	middle := func(factor *tensor.Tensor, n int) *tensor.Tensor {
		return factor.Neg().AddScalar(1).MulScalar(float64(n-1) / 2)
	}
	return affineMap{
		a: [3]*tensor.Tensor{columns, zero, middle(columns, width)},
		b: [3]*tensor.Tensor{zero, rows, middle(rows, height)},
	}
}

// RandomTranslation moves images, down and to the right by positive numbers.
//
// Shapes: [batch rows columns channels] → the same.
type RandomTranslation struct {
	HeightFactor  Factor  // required; share of the rows, from -1 to 1
	WidthFactor   Factor  // required; share of the columns, from -1 to 1
	FillMode      string  `default:"reflect"`  // or wrap, constant, nearest
	Interpolation string  `default:"bilinear"` // or nearest
	Seed          *int64  // default: derived from the model's seed and the layer's path
	FillValue     float64 // of FillMode constant
	DataFormat    string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	Base
	affine randomAffine
	ranges [2][2]float64 // of rows and columns
}

// Config returns the fields Name and DType.
func (r *RandomTranslation) Config() Config { return Config{r.Name, r.DType} }

// Build makes the state of the random numbers.
func (r *RandomTranslation) Build(in ...Shape) (err error) {
	c := Defaults(*r)
	if r.ranges[0][0], r.ranges[0][1], err = c.HeightFactor.ends("HeightFactor", -1, 1); err != nil {
		return err
	}
	if r.ranges[1][0], r.ranges[1][1], err = c.WidthFactor.ends("WidthFactor", -1, 1); err != nil {
		return err
	}
	if err := r.affine.build(&r.Base, c.Seed, c.FillMode, c.Interpolation, c.FillValue); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput wants four axes, and pixels.
func (r *RandomTranslation) CheckInput(in ...Shape) error {
	return r.affine.check(Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomTranslation) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.call(p, x, func(now *tensor.Tensor, batch, height, width int) affineMap {
		return translation(uniform(now, 0, batch, r.ranges[0][0], r.ranges[0][1]), uniform(now, 1, batch, r.ranges[1][0], r.ranges[1][1]), height, width)
	})
}

// translation moves by shares of the rows and of the columns.
func translation(rows, columns *tensor.Tensor, height, width int) affineMap {
	zero := rows.MulScalar(0)
	one := zero.AddScalar(1)
	return affineMap{
		a: [3]*tensor.Tensor{one, zero, columns.MulScalar(-float64(width))},
		b: [3]*tensor.Tensor{zero, one, rows.MulScalar(-float64(height))},
	}
}
