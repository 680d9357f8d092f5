package preprocessing

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// mixing is what layers that mix images of a batch have in common. They take
// images, or a tuple of images and labels, and return the like.
type mixing struct{ randomImage }

// build makes the state of the random numbers, unless it cannot be built.
func (m *mixing) build(b *layers.Base, seed *int64, err error) error {
	// Labels keep their type: shares of images are no numbers for 16 bits.
	b.SetAutocast(false)
	return m.seeded(b, seed, err)
}

// check wants images, and as many labels.
func (m *mixing) check(format string, in []layers.Shape) error {
	if len(in) != 1 && len(in) != 2 {
		return fmt.Errorf("got %d inputs, want images, or images and labels", len(in))
	}
	if err := m.fits(format, in[:1]); err != nil || len(in) == 1 {
		return err
	}
	images, labels := in[0], in[1]
	if len(labels) == 0 || labels[0] != images[0] && labels[0] != tensor.Unknown && images[0] != tensor.Unknown {
		return fmt.Errorf("labels %v do not fit images %v, want one for each image", labels, images)
	}
	return nil
}

// call mixes images x, and labels if there are any, while training. mix returns
// other images, and the share, [batch 1 1 1], of those that an image keeps, and
// which image, int32 [batch], the rest is from.
func (m *mixing) call(b *layers.Base, p layers.Pass, x *tensor.Tensor, mix func(d *draws, x *tensor.Tensor) (y, share, order *tensor.Tensor)) *tensor.Tensor {
	images := floats(b, x.Unpack()[0])
	images = support.CastFloats(images, b.ComputeDType())
	var labels *tensor.Tensor
	if x.IsTuple() {
		if labels = x.Unpack()[1]; !labels.DType().IsFloat() {
			tensor.Fail("Call", "labels are %v, want floats, such as one-hot vectors", labels.Type())
		}
	}
	if !still(p, images) {
		var share, order *tensor.Tensor
		images, share, order = mix(m.draws(images), images)
		if labels != nil {
			shape := make([]int, labels.Rank())
			for i := range shape {
				shape[i] = 1
			}
			shape[0] = images.Dim(0)
			wide := labels.Cast(labels.DType().Accumulator())
			labels = blended(wide, wide.Gather(order), share.Reshape(shape...).CastLike(wide)).Cast(labels.DType())
		}
	}
	if labels == nil {
		return images
	}
	return tensor.Tuple(images, labels)
}

// blended is share·x + (1-share)·y.
func blended(x, y, share *tensor.Tensor) *tensor.Tensor {
	return share.Mul(x).Add(share.Neg().AddScalar(1).Mul(y))
}

// MixUp returns weighted sums of pairs of images of a batch, and of their
// labels (Zhang et al. 2018): y = w·x + (1-w)·x′, where x′ are the images in
// random order and w is drawn for each from the beta distribution with
// parameters Alpha and Alpha.
//
// Shapes: [batch rows columns channels], or a tuple of these and labels [batch
// …], floats such as one-hot vectors, which keep their type → the same.
type MixUp struct {
	Alpha       float64 `default:"0.2"`           // above 0: small ones mix few images much
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Seed        *int64  // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	mixing mixing
}

// Config returns the fields Name and DType.
func (m *MixUp) Config() layers.Config { return layers.Config{Name: m.Name, DType: m.DType} }

// MixesLabels implements LabelMixer.
func (m *MixUp) MixesLabels() {}

// Build makes the state of the random numbers.
func (m *MixUp) Build(in ...layers.Shape) error {
	if err := aboveZero("Alpha", layers.Defaults(*m).Alpha); err != nil {
		return err
	}
	return m.mixing.build(&m.Base, m.Seed, m.CheckInput(in...))
}

// CheckInput requires images of rank 4 and as many labels.
func (m *MixUp) CheckInput(in ...layers.Shape) error {
	return m.mixing.check(layers.Defaults(*m).DataFormat, in)
}

// Call computes the layer on x.
func (m *MixUp) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return m.mixing.call(&m.Base, p, x, func(d *draws, x *tensor.Tensor) (y, share, order *tensor.Tensor) {
		order = d.order()
		share = d.beta(d.constant(layers.Defaults(*m).Alpha), d.batch).Reshape(d.batch, 1, 1, 1)
		return m.mix(x, share, order), share, order
	})
}

func (m *MixUp) mix(x, share, order *tensor.Tensor) *tensor.Tensor {
	wide := x.Cast(x.DType().Accumulator())
	return blended(wide, wide.Gather(order), share.CastLike(wide)).Cast(x.DType())
}

// CutMix replaces a rectangle of each image by the same rectangle of another
// image of the batch, and mixes their labels in proportion to the areas (Yun et al. 2019).
// The other images are the images of the batch in random order. A number a is drawn
// from Factor for all images, then w for each image from the beta distribution
// with parameters a and a: the rectangle has √(1-w) of the rows and of the
// columns, at a random place.
//
// Shapes: [batch rows columns channels], or a tuple of these and labels [batch
// …], floats such as one-hot vectors, which keep their type → the same.
type CutMix struct {
	Factor      Factor `default:"1"` // from 0 to 1; 1 number f: 0 to f
	Seed        *int64 // default: derived from the model's seed and the layer's path
	DataFormat  string `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	layers.Base
	mixing   mixing
	from, to float64
}

// Config returns the fields Name and DType.
func (c *CutMix) Config() layers.Config { return layers.Config{Name: c.Name, DType: c.DType} }

// MixesLabels implements LabelMixer.
func (c *CutMix) MixesLabels() {}

// Build makes the state of the random numbers.
func (c *CutMix) Build(in ...layers.Shape) (err error) {
	if c.from, c.to, err = layers.Defaults(*c).Factor.ends("Factor", 0, 1); err != nil {
		return err
	}
	return c.mixing.build(&c.Base, c.Seed, c.CheckInput(in...))
}

// CheckInput requires images of rank 4 and as many labels.
func (c *CutMix) CheckInput(in ...layers.Shape) error {
	return c.mixing.check(layers.Defaults(*c).DataFormat, in)
}

// Call computes the layer on x.
func (c *CutMix) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return c.mixing.call(&c.Base, p, x, func(d *draws, x *tensor.Tensor) (y, share, order *tensor.Tensor) {
		// Not 0, which is no parameter.
		alpha := d.between(c.from, c.to, 1).AddScalar(1e-6)
		side := d.beta(alpha, d.batch).Neg().AddScalar(1).Sqrt().Reshape(d.batch, 1, 1)
		columns := d.interval(side, x.Dim(c.mixing.field.First()+1))
		rows := d.interval(side, x.Dim(c.mixing.field.First()))
		order = d.order()
		y, share = c.mix(x, rows, columns, order)
		return y, share, order
	})
}

// mix also returns the shares that images keep.
func (c *CutMix) mix(x *tensor.Tensor, rows, columns interval, order *tensor.Tensor) (y, share *tensor.Tensor) {
	first := c.mixing.field.First()
	area := rows.size().Mul(columns.size()).DivScalar(float64(x.Dim(first) * x.Dim(first+1)))
	return tensor.Where(c.mixing.inside(x, rows, columns), x.Gather(order), x), area.Neg().AddScalar(1).ExpandDims(-1)
}

// interval is a part of an axis of each image, in pixels: from one place to
// before another, [batch 1 1].
type interval struct{ from, to *tensor.Tensor }

// interval draws a part of n pixels, with shares [batch 1 1] of them.
func (d *draws) interval(share *tensor.Tensor, n int) interval {
	size := share.MulScalar(float64(n))
	from := d.place(0, 1).Mul(size.Neg().AddScalar(float64(n)))
	return interval{from, from.Add(size)}
}

func (i interval) size() *tensor.Tensor { return i.to.Sub(i.from) }

// has reports which places lie in it.
func (i interval) has(at *tensor.Tensor) *tensor.Tensor {
	return at.GreaterEqual(i.from).And(at.Less(i.to))
}

// inside are the pixels of x in rectangles, bool, with 1 in the axis of the
// channels.
func (r *randomImage) inside(x *tensor.Tensor, rows, columns interval) *tensor.Tensor {
	first, d := r.field.First(), rows.from.DType()
	row := tensor.Iota(d, 1, x.Dim(first)).Reshape(1, x.Dim(first), 1)
	return rows.has(row).And(columns.has(tensor.Iota(d, 1, 1, x.Dim(first+1)))).ExpandDims(r.channels())
}

// Fill is a fill value: one number for all channels, or one for each; nil for
// the layer's default.
type Fill []float64

// MarshalJSON implements json.Marshaler. One number is written without a list,
// as in Keras.
func (f Fill) MarshalJSON() ([]byte, error) { return oneOrList(f) }

// RandomErasing fills a rectangle of each image with noise, with a probability
// drawn from Factor (Zhong et al. 2020). The rectangle has √s of the rows and
// of the columns, at a random place, with s drawn from Scale for each image.
//
// Shapes: [batch rows columns channels] → the same.
type RandomErasing struct {
	Factor      Factor    `default:"1"`            // from 0 to 1; 1 number f: 0 to f
	Scale       Factor    `default:"[0.02, 0.33]"` // from 0 to 1; 1 number s: 0 to s
	FillValue   Fill      // default: normal noise times the upper end of ValueRange
	ValueRange  []float64 `default:"[0, 255]"` // what is filled in is limited to it
	Seed        *int64    // default: derived from the model's seed and the layer's path
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	layers.Base
	image       randomImage
	span, scale span
}

// Config returns the fields Name and DType.
func (r *RandomErasing) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomErasing) Build(in ...layers.Shape) (err error) {
	c := layers.Defaults(*r)
	if err := r.span.of(c.Factor, 0, 1, c.ValueRange); err != nil {
		return err
	}
	if r.scale.from, r.scale.to, err = c.Scale.ends("Scale", 0, 1); err != nil {
		return err
	}
	return r.image.seeded(&r.Base, r.Seed, r.CheckInput(in...))
}

// CheckInput requires rank 4 and len(FillValue) channels.
func (r *RandomErasing) CheckInput(in ...layers.Shape) error {
	if err := r.image.fits(layers.Defaults(*r).DataFormat, in); err != nil {
		return err
	}
	axis := r.image.channels()
	if n := in[0][axis]; len(r.FillValue) > 1 && n != len(r.FillValue) && n != tensor.Unknown {
		return fmt.Errorf("FillValue is %v, want 1 number, or %d as axis %d of input %v has", []float64(r.FillValue), n, axis, in[0])
	}
	return nil
}

// Call computes the layer on x.
func (r *RandomErasing) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		side := func() *tensor.Tensor { return d.place(r.scale.from, r.scale.to).Sqrt() }
		first := r.image.field.First()
		columns := d.interval(side(), x.Dim(first+1))
		rows := d.interval(side(), x.Dim(first))
		return r.erase(d, x, d.chance(r.span.from, r.span.to), rows, columns)
	})
}

// erase fills rectangles of some images.
func (r *RandomErasing) erase(d *draws, x, some *tensor.Tensor, rows, columns interval) *tensor.Tensor {
	between := layers.Defaults(*r).ValueRange
	var fill *tensor.Tensor
	if r.FillValue == nil {
		fill = d.normal(x.Shape()...).MulScalar(between[1])
	} else {
		shape := layers.Shape{1, 1, 1, 1}
		shape[r.image.channels()] = len(r.FillValue)
		fill = tensor.New([]float64(r.FillValue), shape...)
	}
	return tensor.Where(some.And(r.image.inside(x, rows, columns)), fill.Clip(between[0], between[1]).Cast(x.DType()), x)
}

// aboveZero wants a number above 0.
func aboveZero(field string, v float64) error {
	if !(v > 0 && v <= math.MaxFloat64) {
		return fmt.Errorf("%s is %v, want a number above 0", field, v)
	}
	return nil
}
