package preprocessing

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// selection is a list of layers one of which is chosen at a time, at random.
type selection struct {
	randomImage
	sampler sampler        // of maps
	maps    []mapped       // the first ones: read at once, where the one that is chosen says
	others  []augmentation // the ones after
}

// of makes the layers that RandAugment and AugMix choose from, with names of
// Keras, after those that are maps: RandomShear, RandomTranslation and
// RandomRotation.
func (s *selection) of(names string, factor Factor, between []float64, interpolation, format string, in []layers.Shape) (err error) {
	from, to, err := factor.ends("Factor", 0, 1)
	if err != nil {
		return err
	}
	if err := s.colors(format, in, 1); err != nil {
		return err
	}
	if err := s.fits(format, in); err != nil {
		return err
	}
	if err := pair("ValueRange", between); err != nil {
		return err
	}
	if s.sampler, err = newSampler("reflect", interpolation, 0); err != nil {
		return err
	}
	f := Factor{from, to}
	s.maps = []mapped{
		&RandomShear{XFactor: f, YFactor: f},
		&RandomTranslation{HeightFactor: f, WidthFactor: f},
		&RandomRotation{Factor: f},
	}
	made := map[string]augmentation{
		"RandomBrightness":        &RandomBrightness{Factor: f, ValueRange: between},
		"RandomColorDegeneration": &RandomColorDegeneration{Factor: f, ValueRange: between},
		"RandomContrast":          &RandomContrast{Factor: f, ValueRange: between},
		"RandomSharpness":         &RandomSharpness{Factor: f, ValueRange: between},
		"RandomPosterization":     &RandomPosterization{Factor: Factor{max(1, float64(int(8*to)))}, ValueRange: between},
		"Solarization":            &Solarization{AdditionFactor: f, ThresholdFactor: f, ValueRange: between},
		"AutoContrast":            &AutoContrast{ValueRange: between},
		"Equalization":            &Equalization{ValueRange: between},
	}
	s.others = nil
	for _, name := range strings.Fields(names) {
		s.others = append(s.others, made[name])
	}
	shape := in[0]
	if s.field.ChannelsFirst {
		shape = layers.Shape{shape[0], shape[2], shape[3], shape[1]}
	}
	for _, l := range s.all() {
		if err := l.check([]layers.Shape{shape}); err != nil {
			return fmt.Errorf("%s: %w", layers.Class(l.(layers.Layer)), err)
		}
	}
	return nil
}

func (s *selection) all() (all []augmentation) {
	for _, m := range s.maps {
		all = append(all, m)
	}
	return append(all, s.others...)
}

// apply changes images [batch rows columns channels] by the layer with an
// index, float32 [1 1 1 1]; one behind the last layer changes nothing. All
// layers are computed, as which one is chosen is known at the end of recording
// only; but of the maps, which cost most, one.
func (s *selection) apply(d *draws, x, index *tensor.Tensor) *tensor.Tensor {
	is := func(i int) *tensor.Tensor { return index.Equal(d.constant(float64(i))) }
	var m affineMap
	for i, layer := range s.maps {
		n := layer.of(d, x.Dim(1), x.Dim(2))
		if i == 0 {
			m = n
			continue
		}
		chosen := is(i).Squeeze(-1)
		for k := range 3 {
			m.a[k], m.b[k] = tensor.Where(chosen, n.a[k], m.a[k]), tensor.Where(chosen, n.b[k], m.b[k])
		}
	}
	y := tensor.Where(index.LessScalar(float64(len(s.maps))), s.sampler.affine(x, m), x)
	for i, layer := range s.others {
		y = tensor.Where(is(len(s.maps)+i), layer.transform(d, x), y)
	}
	return y
}

// call changes images of layer b while training, which are float32 at least and
// have the channels in the last axis in between.
func (s *selection) call(b *layers.Base, p layers.Pass, x *tensor.Tensor, transform func(d *draws, x *tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	return s.randomImage.call(b, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		return s.back(transform(d, s.last(x).Cast(x.DType().Accumulator())).Cast(x.DType()))
	})
}

// RandAugment applies NumOps layers to images, one after the other, each
// chosen at random for all images of a batch (Cubuk et al. 2020): RandomShear,
// RandomTranslation, RandomRotation, RandomBrightness,
// RandomColorDegeneration, RandomContrast, RandomSharpness,
// RandomPosterization, Solarization, AutoContrast or Equalization. They get
// Factor; RandomPosterization gets 1 to 8 times its upper end.
//
// Shapes: [batch rows columns channels] → the same, with 1 or 3 channels.
type RandAugment struct {
	ValueRange    []float64 `default:"[0, 255]"`
	NumOps        *int      `default:"2"`        // 0 or more
	Factor        Factor    `default:"0.5"`      // from 0 to 1; 1 number f: 0 to f
	Interpolation string    `default:"bilinear"` // or nearest
	Seed          *int64    // default: derived from the model's seed and the layer's path
	DataFormat    string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	layers.Base
	selection selection
}

// Config returns the fields Name and DType.
func (r *RandAugment) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandAugment) Build(in ...layers.Shape) error {
	c := layers.Defaults(*r)
	if *c.NumOps < 0 {
		return fmt.Errorf("NumOps is %d, want a number from 0", *c.NumOps)
	}
	const names = "RandomBrightness RandomColorDegeneration RandomContrast RandomSharpness RandomPosterization Solarization AutoContrast Equalization"
	return r.selection.seeded(&r.Base, r.Seed, r.selection.of(names, c.Factor, c.ValueRange, c.Interpolation, c.DataFormat, in))
}

// CheckInput requires rank 4, at least one pixel, and one or three channels.
func (r *RandAugment) CheckInput(in ...layers.Shape) error {
	return r.selection.colors(layers.Defaults(*r).DataFormat, in, 1)
}

// Call computes the layer on x.
func (r *RandAugment) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.selection.call(&r.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		for range *layers.Defaults(*r).NumOps {
			x = r.selection.apply(d, x, d.index(len(r.selection.all())))
		}
		return x
	})
}

// AugMix mixes each image with NumChains augmented copies (Hendrycks et al.
// 2020). A copy goes through up to ChainDepth layers, chosen at random for all
// images of a batch from the layers of RandAugment. The copies are summed with
// weights from the Dirichlet distribution with parameters Alpha, and the sum
// is mixed with the image; the image's share is drawn from the beta
// distribution with parameters Alpha and Alpha. The result is limited to
// ValueRange.
//
// Shapes: [batch rows columns channels] → the same, with 1 or 3 channels.
type AugMix struct {
	ValueRange    []float64 `default:"[0, 255]"`
	NumChains     int       `default:"3"`
	ChainDepth    int       `default:"3"`
	Factor        Factor    `default:"0.3"`      // from 0 to 1; 1 number f: 0 to f
	Alpha         float64   `default:"1"`        // above 0
	AllOps        *bool     `default:"true"`     // false: without brightness, color degeneration, contrast and sharpness
	Interpolation string    `default:"bilinear"` // or nearest
	Seed          *int64    // default: derived from the model's seed and the layer's path
	DataFormat    string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	layers.Base
	selection selection
}

// Config returns the fields Name and DType.
func (a *AugMix) Config() layers.Config { return layers.Config{Name: a.Name, DType: a.DType} }

// Build makes the state of the random numbers.
func (a *AugMix) Build(in ...layers.Shape) error {
	c := layers.Defaults(*a)
	if err := support.Positive("NumChains", c.NumChains); err != nil {
		return err
	}
	if err := support.Positive("ChainDepth", c.ChainDepth); err != nil {
		return err
	}
	if err := aboveZero("Alpha", c.Alpha); err != nil {
		return err
	}
	names := "RandomPosterization Solarization AutoContrast Equalization"
	if *c.AllOps {
		names += " RandomBrightness RandomColorDegeneration RandomContrast RandomSharpness"
	}
	return a.selection.seeded(&a.Base, a.Seed, a.selection.of(names, c.Factor, c.ValueRange, c.Interpolation, c.DataFormat, in))
}

// CheckInput requires rank 4, at least one pixel, and one or three channels.
func (a *AugMix) CheckInput(in ...layers.Shape) error {
	return a.selection.colors(layers.Defaults(*a).DataFormat, in, 1)
}

// Call computes the layer on x.
func (a *AugMix) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return a.selection.call(&a.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		c := layers.Defaults(*a)
		alpha := d.constant(c.Alpha)
		// Dirichlet: gamma variables over their sum.
		weights := d.logGamma(alpha, 1, c.NumChains).Softmax(1)
		share := d.beta(alpha, 1, 1, 1, 1).CastLike(x)
		var sum *tensor.Tensor
		for i := range c.NumChains {
			y := x
			for range c.ChainDepth {
				y = a.selection.apply(d, y, d.index(len(a.selection.all())+1))
			}
			y = y.Mul(weights.Slice(1, i, i+1).Reshape(1, 1, 1, 1).CastLike(x))
			if sum == nil {
				sum = y
			} else {
				sum = sum.Add(y)
			}
		}
		return blended(x, sum, share).Clip(c.ValueRange[0], c.ValueRange[1])
	})
}
