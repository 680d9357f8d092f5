package preprocessing

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// histograms counts the bins of pixels, whole numbers from 0 to below n, which
// may be of several kinds from 0 to below kinds: float32 [kinds n]. kind and
// bin are int32 and broadcast.
func histograms(kind, bin *tensor.Tensor, kinds, n int) *tensor.Tensor {
	at := kind.MulScalar(float64(n)).Add(bin)
	return tensor.Ones(dtype.Float32, at.Shape()...).ScatterAdd(at, kinds*n).Reshape(kinds, n)
}

// cumulative adds up the rows of x from left to right.
func cumulative(x *tensor.Tensor) *tensor.Tensor {
	n := x.Dim(-1)
	row, column := tensor.Iota(dtype.Int32, n).Reshape(n, 1), tensor.Iota(dtype.Int32, 1, n)
	return x.MatMul(row.LessEqual(column).Cast(x.DType()))
}

// Equalization equalizes the histogram of each channel. Pixels of ValueRange,
// scaled to 0 … 255, are counted in bins, over all images of the batch, as in
// Keras. A pixel in a bin becomes
//
//	round(255·(c(bin) - c₀)/(c(last) - c₀))
//
// scaled back, where c is the cumulative count and c₀ the count of the first
// bin that is not empty. A channel with a single bin does not change.
//
// Shapes: [batch rows columns channels] → the same.
type Equalization struct {
	ValueRange  []float64 `default:"[0, 255]"`
	Bins        int       `default:"256"`
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	layers.Base
	image randomImage
}

// Config returns the fields Name and DType.
func (e *Equalization) Config() layers.Config { return layers.Config{Name: e.Name, DType: e.DType} }

// Build checks the fields.
func (e *Equalization) Build(in ...layers.Shape) error { return e.check(in) }

func (e *Equalization) check(in []layers.Shape) error {
	c := layers.Defaults(*e)
	if err := pair("ValueRange", c.ValueRange); err != nil {
		return err
	}
	if err := support.Positive("Bins", c.Bins); err != nil {
		return err
	}
	return e.CheckInput(in...)
}

// CheckInput requires rank 4 and at least one pixel.
func (e *Equalization) CheckInput(in ...layers.Shape) error {
	return e.image.fits(layers.Defaults(*e).DataFormat, in)
}

// Call computes the layer on x.
func (e *Equalization) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	if x = floats(&e.Base, x); still(p, x) {
		return x
	}
	return e.transform(nil, x)
}

func (e *Equalization) transform(_ *draws, x *tensor.Tensor) *tensor.Tensor {
	c := layers.Defaults(*e)
	wide := e.image.last(x).Cast(x.DType().Accumulator())
	channels, last := wide.Dim(3), float64(c.Bins-1)
	pixels := ranged(wide, c.ValueRange, eightBits)
	// Two ways to a bin, which are rounded differently, as in Keras.
	counted := pixels.MulScalar(last).DivScalar(255).Clip(0, last).Cast(dtype.Int32)
	read := pixels.DivScalar(255).MulScalar(last).Clip(0, last).Cast(dtype.Int32)
	channel := tensor.Iota(dtype.Int32, 1, 1, 1, channels)

	counts := histograms(channel, counted, channels, c.Bins).Cast(dtype.Float64)
	up := cumulative(counts)
	zero := tensor.Scalar(dtype.Float64, 0)
	all := up.MaxKeep(1)
	// The first number above 0 is the least of those that are.
	first := tensor.Where(up.Greater(zero), up, all).Neg().MaxKeep(1).Neg()
	rest := all.Sub(first)
	table := up.Sub(first).MulScalar(255).Div(tensor.Where(rest.Greater(zero), rest, tensor.Scalar(dtype.Float64, 1))).Round().Clip(0, 255)

	at := channel.MulScalar(float64(c.Bins)).Add(read)
	y := table.Cast(wide.DType()).Reshape(channels * c.Bins).Gather(at)
	// All in the first bin: the rest is empty.
	y = tensor.Where(rest.Greater(zero).Reshape(1, 1, 1, channels), y, pixels)
	return e.image.back(ranged(y, eightBits, c.ValueRange).Cast(x.DType()))
}

// ContrastLimitedAdaptiveHistogramEqualization equalizes the histogram of each
// channel within tiles of images, with limited contrast (CLAHE, Zuiderveld
// 1994), also at inference. In each tile the pixels of each value 0 … 255 are
// counted. Counts above ClipLimit times the mean count are clipped, and the
// excess is distributed over all values. A value becomes 255·(c(value) -
// c(0))/(n - c(0)), where c is the cumulative count and n the number of pixels
// of a tile. Between the centers of tiles the results of the nearest four are
// interpolated. Images are padded to whole tiles by reflection.
//
// Shapes: [batch rows columns channels] → the same, of known sizes.
type ContrastLimitedAdaptiveHistogramEqualization struct {
	ValueRange   []float64 `default:"[0, 255]"`
	ClipLimit    *float64  `default:"4"`             // 0: nothing is cut off
	TileGridSize []int     `default:"[8, 8]"`        // number of tiles: in a column, in a row
	DataFormat   string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType  string

	layers.Base
	image randomImage
}

// Config returns the fields Name and DType.
func (l *ContrastLimitedAdaptiveHistogramEqualization) Config() layers.Config {
	return layers.Config{Name: l.Name, DType: l.DType}
}

// Build checks the fields.
func (l *ContrastLimitedAdaptiveHistogramEqualization) Build(in ...layers.Shape) error {
	c := layers.Defaults(*l)
	if err := pair("ValueRange", c.ValueRange); err != nil {
		return err
	}
	if _, err := support.NotNegative("ClipLimit", *c.ClipLimit); err != nil {
		return err
	}
	if g := c.TileGridSize; len(g) != 2 || g[0] < 1 || g[1] < 1 {
		return fmt.Errorf("TileGridSize is %v, want 2 positive numbers", g)
	}
	if err := support.CheckTable("TileGridSize", c.TileGridSize...); err != nil {
		return err
	}
	return l.CheckInput(in...)
}

// CheckInput requires rank 4 and at least one pixel.
func (l *ContrastLimitedAdaptiveHistogramEqualization) CheckInput(in ...layers.Shape) error {
	return l.image.fits(layers.Defaults(*l).DataFormat, in)
}

// Call computes the layer on x.
func (l *ContrastLimitedAdaptiveHistogramEqualization) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	if x = floats(&l.Base, x); x.Symbolic() {
		return x
	}
	c := layers.Defaults(*l)
	wide := l.image.last(x).Cast(x.DType().Accumulator())
	y := l.equalize(ranged(wide, c.ValueRange, eightBits), *c.ClipLimit, c.TileGridSize)
	return l.image.back(ranged(y.Cast(wide.DType()), eightBits, c.ValueRange).Cast(x.DType()))
}

// tiles are those along an axis of images.
type tiles struct {
	pixels, grid, size int
}

// index is the tile of each pixel.
func (t tiles) index() (at []int32) {
	for i := range t.grid * t.size {
		at = append(at, int32(i/t.size))
	}
	return at
}

// source is the pixel that each pixel of the tiles is, those after the last one
// reflected.
func (t tiles) source() (at []int32) {
	for i := range t.grid * t.size {
		i %= 2 * t.pixels
		at = append(at, int32(min(i, 2*t.pixels-1-i)))
	}
	return at
}

// neighbors are the tiles before and after each pixel of the image, as their
// middles lie, and the weight of the second one.
func (t tiles) neighbors() (before, after []int32, weight []float64) {
	for i := range t.pixels {
		at := (float64(i)-float64(t.size)/2)/float64(t.size) + 1
		low := int(at)
		before = append(before, int32(min(max(low-1, 0), t.grid-1)))
		after = append(after, int32(min(low, t.grid-1)))
		weight = append(weight, at-float64(low))
	}
	return before, after, weight
}

// equalize returns pixels from 0 to 255, float32 [batch rows columns channels].
func (l *ContrastLimitedAdaptiveHistogramEqualization) equalize(x *tensor.Tensor, limit float64, grid []int) *tensor.Tensor {
	batch, channels := x.Dim(0), x.Dim(3)
	of := func(axis int) tiles {
		n, g := x.Dim(axis+1), grid[axis]
		return tiles{n, g, (n + g - 1) / g}
	}
	rows, columns := of(0), of(1)
	whole := func(at []int32, shape ...int) *tensor.Tensor { return tensor.New(at, shape...) }
	bins := x.Clip(0, 255).Cast(dtype.Int32)

	// Counts [batch·grid·grid·channels 256].
	full := pick(bins, whole(rows.source(), 1, rows.grid*rows.size, 1), whole(columns.source(), 1, 1, columns.grid*columns.size))
	// kind numbers the table of an image, a tile and a channel.
	image, channel := tensor.Iota(dtype.Int32, batch).Reshape(batch, 1, 1, 1), tensor.Iota(dtype.Int32, 1, 1, 1, channels)
	kind := func(row, column *tensor.Tensor) *tensor.Tensor {
		at := image.MulScalar(float64(rows.grid)).Add(row).MulScalar(float64(columns.grid)).Add(column)
		return at.MulScalar(float64(channels)).Add(channel)
	}
	tileRow := whole(rows.index(), 1, rows.grid*rows.size, 1, 1)
	tileColumn := whole(columns.index(), 1, 1, columns.grid*columns.size, 1)
	counts := histograms(kind(tileRow, tileColumn), full, batch*rows.grid*columns.grid*channels, 256)

	n := float64(rows.size * columns.size)
	if limit > 0 {
		cut := counts.MinimumScalar(limit * n / 256)
		counts = cut.Add(counts.Sub(cut).SumKeep(1).DivScalar(256))
	}
	up := cumulative(counts)
	least := up.Slice(1, 0, 1)
	rest := least.Neg().AddScalar(n)
	some := rest.NotEqual(tensor.Scalar(dtype.Float32, 0))
	table := up.Sub(least).MulScalar(255).Div(tensor.Where(some, rest, tensor.Scalar(dtype.Float32, 1))).Clip(0, 255)
	table = table.Reshape(-1)

	above, below, down := rows.neighbors()
	left, right, across := columns.neighbors()
	value := func(row, column []int32) *tensor.Tensor {
		at := kind(whole(row, 1, len(row), 1, 1), whole(column, 1, 1, len(column), 1))
		return table.Gather(at.MulScalar(256).Add(bins))
	}
	blend := func(a, b, weight *tensor.Tensor) *tensor.Tensor {
		return a.Mul(weight.Neg().AddScalar(1)).Add(b.Mul(weight))
	}
	dx := support.Constant(dtype.Float32, across, 1, 1, len(across), 1)
	line := func(row []int32) *tensor.Tensor { return blend(value(row, left), value(row, right), dx) }
	return blend(line(above), line(below), support.Constant(dtype.Float32, down, 1, len(down), 1, 1))
}
