package preprocessing

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// randomAffine is what layers that turn, move or scale images have in common.
type randomAffine struct {
	randomImage
	sampler sampler
}

// mapped is an augmentation that reads images elsewhere.
type mapped interface {
	augmentation
	// of is the map of the images, of a size.
	of(d *draws, height, width int) affineMap
}

// check checks the fields, and wants four axes, and pixels.
func (r *randomAffine) check(fill, interpolation string, value float64, format string, in []layers.Shape) (err error) {
	if r.sampler, err = newSampler(fill, interpolation, value); err != nil {
		return err
	}
	return r.fits(format, in)
}

// fits wants four axes, and pixels.
func (r *randomImage) fits(format string, in []layers.Shape) error {
	s, err := r.field.Of(format, in, 2)
	for i := range 2 {
		if err == nil && s[r.field.First()+i] == 0 {
			_, err = support.SizedAxis(s, r.field.First()+i)
		}
	}
	return err
}

// read reads x where the map of the draws says.
func (r *randomAffine) read(d *draws, x *tensor.Tensor, of func(d *draws, height, width int) affineMap) *tensor.Tensor {
	y := r.last(x)
	return r.back(r.sampler.affine(y, of(d, y.Dim(1), y.Dim(2))))
}

// RandomRotation rotates images around their center.
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

	layers.Base
	affine   randomAffine
	from, to float64
}

// Config returns the fields Name and DType.
func (r *RandomRotation) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomRotation) Build(in ...layers.Shape) error {
	return r.affine.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomRotation) check(in []layers.Shape) (err error) {
	c := layers.Defaults(*r)
	if r.from, r.to, err = c.Factor.ends("Factor", -1, 1); err != nil {
		return err
	}
	return r.affine.check(c.FillMode, c.Interpolation, c.FillValue, c.DataFormat, in)
}

// CheckInput requires rank 4 and at least one pixel.
func (r *RandomRotation) CheckInput(in ...layers.Shape) error {
	return r.affine.fits(layers.Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomRotation) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.call(&r.Base, p, x, r.transform)
}

func (r *RandomRotation) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.read(d, x, r.of)
}

func (r *RandomRotation) of(d *draws, height, width int) affineMap {
	return rotation(d.place(r.from*2*math.Pi, r.to*2*math.Pi), height, width)
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

// RandomZoom scales images around their middle. With 1+Factor below 1 they look
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

	layers.Base
	affine randomAffine
	ranges [2][2]float64 // of rows and columns
}

// Config returns the fields Name and DType.
func (r *RandomZoom) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomZoom) Build(in ...layers.Shape) error {
	return r.affine.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomZoom) check(in []layers.Shape) (err error) {
	c := layers.Defaults(*r)
	above := math.Nextafter(-1, 0) // a size of 0 has no middle
	if r.ranges[0][0], r.ranges[0][1], err = c.HeightFactor.ends("HeightFactor", above, 1); err != nil {
		return err
	}
	if c.WidthFactor != nil {
		if r.ranges[1][0], r.ranges[1][1], err = c.WidthFactor.ends("WidthFactor", above, 1); err != nil {
			return err
		}
	}
	return r.affine.check(c.FillMode, c.Interpolation, c.FillValue, c.DataFormat, in)
}

// CheckInput requires rank 4 and at least one pixel.
func (r *RandomZoom) CheckInput(in ...layers.Shape) error {
	return r.affine.fits(layers.Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomZoom) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.call(&r.Base, p, x, r.transform)
}

func (r *RandomZoom) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.read(d, x, r.of)
}

func (r *RandomZoom) of(d *draws, height, width int) affineMap {
	rows := d.place(1+r.ranges[0][0], 1+r.ranges[0][1])
	columns := rows
	if r.WidthFactor != nil {
		columns = d.place(1+r.ranges[1][0], 1+r.ranges[1][1])
	}
	return zoom(rows, columns, height, width)
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

	layers.Base
	affine randomAffine
	ranges [2][2]float64 // of rows and columns
}

// Config returns the fields Name and DType.
func (r *RandomTranslation) Config() layers.Config {
	return layers.Config{Name: r.Name, DType: r.DType}
}

// Build makes the state of the random numbers.
func (r *RandomTranslation) Build(in ...layers.Shape) error {
	return r.affine.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomTranslation) check(in []layers.Shape) (err error) {
	c := layers.Defaults(*r)
	if r.ranges[0][0], r.ranges[0][1], err = c.HeightFactor.ends("HeightFactor", -1, 1); err != nil {
		return err
	}
	if r.ranges[1][0], r.ranges[1][1], err = c.WidthFactor.ends("WidthFactor", -1, 1); err != nil {
		return err
	}
	return r.affine.check(c.FillMode, c.Interpolation, c.FillValue, c.DataFormat, in)
}

// CheckInput requires rank 4 and at least one pixel.
func (r *RandomTranslation) CheckInput(in ...layers.Shape) error {
	return r.affine.fits(layers.Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomTranslation) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.call(&r.Base, p, x, r.transform)
}

func (r *RandomTranslation) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.read(d, x, r.of)
}

func (r *RandomTranslation) of(d *draws, height, width int) affineMap {
	return translation(d.place(r.ranges[0][0], r.ranges[0][1]), d.place(r.ranges[1][0], r.ranges[1][1]), height, width)
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

// RandomShear slants images: pixel (x, y) is read from (x + sx·y, sy·x + y),
// where sx and sy are drawn from XFactor and YFactor and have one random sign
// for both.
//
// Shapes: [batch rows columns channels] → the same.
type RandomShear struct {
	XFactor       Factor  `default:"0"`        // from -1 to 1
	YFactor       Factor  `default:"0"`        // from -1 to 1
	Interpolation string  `default:"bilinear"` // or nearest
	FillMode      string  `default:"reflect"`  // or wrap, constant, nearest
	FillValue     float64 // of FillMode constant
	DataFormat    string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Seed          *int64  // default: derived from the model's seed and the layer's path
	Name, DType   string

	layers.Base
	affine randomAffine
	ranges [2][2]float64 // of x and y
}

// Config returns the fields Name and DType.
func (r *RandomShear) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomShear) Build(in ...layers.Shape) error {
	return r.affine.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomShear) check(in []layers.Shape) (err error) {
	c := layers.Defaults(*r)
	if r.ranges[0][0], r.ranges[0][1], err = c.XFactor.ends("XFactor", -1, 1); err != nil {
		return err
	}
	if r.ranges[1][0], r.ranges[1][1], err = c.YFactor.ends("YFactor", -1, 1); err != nil {
		return err
	}
	return r.affine.check(c.FillMode, c.Interpolation, c.FillValue, c.DataFormat, in)
}

// CheckInput requires rank 4 and at least one pixel.
func (r *RandomShear) CheckInput(in ...layers.Shape) error {
	return r.affine.fits(layers.Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomShear) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.call(&r.Base, p, x, r.transform)
}

func (r *RandomShear) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	return r.affine.read(d, x, r.of)
}

func (r *RandomShear) of(d *draws, _, _ int) affineMap {
	sign := d.sign().Squeeze(-1)
	return shear(d.place(r.ranges[0][0], r.ranges[0][1]).Mul(sign), d.place(r.ranges[1][0], r.ranges[1][1]).Mul(sign))
}

// shear adds x times y to columns, and y times x to rows.
func shear(x, y *tensor.Tensor) affineMap {
	zero := x.MulScalar(0)
	one := zero.AddScalar(1)
	return affineMap{
		a: [3]*tensor.Tensor{one, x, zero},
		b: [3]*tensor.Tensor{y, one, zero},
	}
}
