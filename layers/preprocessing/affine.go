package preprocessing

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// fills are what lies outside of images: the image reflected at its edges
// (abc|cba), repeated, a value, or its nearest pixel.
var fills = []string{"reflect", "wrap", "constant", "nearest"}

// sampler reads images [batch rows columns channels] at places between pixels,
// as TensorFlow's ImageProjectiveTransformV3 does.
type sampler struct {
	fill     string
	bilinear bool
	value    float64 // outside, for fill constant
}

func newSampler(fill, interpolation string, value float64) (sampler, error) {
	if !slices.Contains(fills, fill) {
		return sampler{}, fmt.Errorf("FillMode is %q, want one of %q", fill, fills)
	}
	if interpolation != "nearest" && interpolation != "bilinear" {
		return sampler{}, fmt.Errorf("Interpolation is %q, want nearest or bilinear", interpolation)
	}
	return sampler{fill, interpolation == "bilinear", value}, nil
}

// affineMap is, for each image, the place (a0·x + a1·y + a2, b0·x + b1·y + b2)
// that pixel (x, y) of the result is read from; with k, that divided by
// k0·x + k1·y + 1. Coefficients are float32 or float64 [batch 1 1].
type affineMap struct {
	a, b [3]*tensor.Tensor
	k    *[2]*tensor.Tensor
}

// affine reads x where m says.
func (s sampler) affine(x *tensor.Tensor, m affineMap) *tensor.Tensor {
	d := m.a[0].DType()
	column := tensor.Iota(d, 1, 1, x.Dim(2))
	row := tensor.Iota(d, 1, x.Dim(1)).Reshape(1, x.Dim(1), 1)
	linear := func(c [2]*tensor.Tensor, last *tensor.Tensor) *tensor.Tensor {
		return c[0].Mul(column).Add(c[1].Mul(row)).Add(last)
	}
	xs, ys := linear([2]*tensor.Tensor(m.a[:2]), m.a[2]), linear([2]*tensor.Tensor(m.b[:2]), m.b[2])
	if m.k != nil {
		by := linear(*m.k, tensor.Scalar(d, 1))
		far := by.Equal(tensor.Scalar(d, 0))
		by = tensor.Where(far, tensor.Scalar(d, 1), by)
		outside := tensor.Scalar(d, -2) // by more than a pixel
		xs, ys = tensor.Where(far, outside, xs.Div(by)), tensor.Where(far, outside, ys.Div(by))
	}
	read := func(row, column *tensor.Tensor) *tensor.Tensor { return s.read(x, row, column) }
	return s.blend(x, s.inside(xs, x.Dim(2)), s.inside(ys, x.Dim(1)), awayFromZero, read)
}

// blend is x at places between its pixels, which read returns at whole rows and
// columns. 16-bit pixels are blended in float32 and rounded once.
func (s sampler) blend(x, xs, ys *tensor.Tensor, round func(*tensor.Tensor) *tensor.Tensor, read func(row, column *tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	if !s.bilinear {
		return read(round(ys), round(xs)).Cast(x.DType())
	}
	wide := x.DType().Accumulator()
	left, top := xs.Floor(), ys.Floor()
	dx, dy := xs.Sub(left).Cast(wide).ExpandDims(-1), ys.Sub(top).Cast(wide).ExpandDims(-1)
	line := func(y *tensor.Tensor) *tensor.Tensor {
		a, b := read(y, left).Cast(wide), read(y, left.AddScalar(1)).Cast(wide)
		return a.Mul(dx.Neg().AddScalar(1)).Add(b.Mul(dx))
	}
	return line(top).Mul(dy.Neg().AddScalar(1)).Add(line(top.AddScalar(1)).Mul(dy)).Cast(x.DType())
}

// bent reads x at places as Keras's map_coordinates does, which fills what lies
// outside pixel by pixel: fill reflect takes places before the first pixel as
// those at the same distance after it.
func (s sampler) bent(x, xs, ys *tensor.Tensor) *tensor.Tensor {
	within := func(at *tensor.Tensor, size int) *tensor.Tensor {
		n := float64(size)
		switch s.fill {
		case "reflect":
			at = at.Abs().Mod(tensor.Scalar(at.DType(), 2*n))
			return tensor.Where(at.LessScalar(n), at, at.Neg().AddScalar(2*n-1))
		case "wrap":
			return at.Mod(tensor.Scalar(at.DType(), n))
		}
		return at
	}
	read := func(row, column *tensor.Tensor) *tensor.Tensor {
		return s.read(x, within(row, x.Dim(1)), within(column, x.Dim(2)))
	}
	return s.blend(x, xs, ys, (*tensor.Tensor).Round, read)
}

// inside brings places on an axis into the image, but for fill constant.
func (s sampler) inside(at *tensor.Tensor, size int) *tensor.Tensor {
	n := float64(size)
	switch s.fill {
	case "constant":
		return at
	case "reflect":
		at = at.Mod(tensor.Scalar(at.DType(), 2*n))
		at = tensor.Where(at.LessScalar(n), at, at.Neg().AddScalar(2*n-1))
	case "wrap":
		if size > 1 {
			// TensorFlow's period: whole images, as many as n-1 goes into it.
			below := at.Add(at.Neg().DivScalar(n - 1).Floor().AddScalar(1).MulScalar(n))
			above := at.Sub(at.DivScalar(n - 1).Floor().MulScalar(n))
			at = tensor.Where(at.LessScalar(0), below, tensor.Where(at.GreaterScalar(n-1), above, at))
		}
	}
	return at.Clip(0, n-1)
}

// awayFromZero rounds halves away from zero, as C does.
func awayFromZero(x *tensor.Tensor) *tensor.Tensor {
	return x.Abs().AddScalar(0.5).Floor().Mul(x.Sign())
}

// read returns the pixels at whole rows and columns [batch h w], and value for
// those outside.
func (s sampler) read(x, row, column *tensor.Tensor) *tensor.Tensor {
	height, width := float64(x.Dim(1)), float64(x.Dim(2))
	pixels := pick(x, row.Clip(0, height-1).Cast(dtype.Int32), column.Clip(0, width-1).Cast(dtype.Int32))
	if s.fill != "constant" {
		return pixels
	}
	zero, last := tensor.Scalar(row.DType(), 0), func(n float64) *tensor.Tensor { return tensor.Scalar(row.DType(), n-1) }
	in := row.GreaterEqual(zero).And(row.LessEqual(last(height))).And(column.GreaterEqual(zero)).And(column.LessEqual(last(width)))
	return tensor.Where(in.ExpandDims(-1), pixels, tensor.Scalar(x.DType(), s.value))
}

// pick returns the pixels of images at rows and columns, int32, which broadcast
// to [batch h w]: [batch h w channels].
func pick(x, row, column *tensor.Tensor) *tensor.Tensor {
	batch, height, width := x.Dim(0), x.Dim(1), x.Dim(2)
	first := tensor.Iota(dtype.Int32, batch).MulScalar(float64(height*width)).Reshape(batch, 1, 1)
	at := first.Add(row.MulScalar(float64(width))).Add(column)
	return x.Reshape(batch*height*width, x.Dim(3)).Gather(at)
}
