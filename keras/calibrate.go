package keras

import (
	"context"
	"fmt"
	"math"
	"regexp"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
)

// Methods of calibration: how the range of a convolution's input is chosen.
const (
	CalibrationMinMax     = "min_max"    // from the smallest number seen to the largest one
	CalibrationPercentile = "percentile" // without the farthest numbers: see CalibrationConfig.Percentile
	CalibrationMSE        = "mse"        // that with the smallest mean squared error of the quantized numbers
)

// CalibrationConfig is the configuration of [Model.QuantizeStatic].
type CalibrationConfig struct {
	Method     string   // CalibrationMinMax (default), CalibrationPercentile or CalibrationMSE
	Percentile float64  // percentage of the numbers that are in the range; default 99.99
	Filters    []string // regular expressions; only layers are quantized whose path one of them matches (Keras: filters)
}

// QuantizeStatic is [Model.Quantize] of the whole model, convolutions too: kernels of Conv1D,
// Conv2D, Conv3D and, with DepthMultiplier 1, DepthwiseConv1D and DepthwiseConv2D become 8-bit
// integers with a scale for each channel of the result, and their inputs are quantized with one scale and one zero point, which calibration has found (ONNX Runtime:
// quantize_static; Jacob et al. 2018). Dense, EinsumDense and Embedding are those of
// Quantize, whose inputs are quantized as they come. Sums are int32; bias, normalization
// and activation are computed on floats while the sums are in the cache.
//
// The model first computes predictions of d, some hundred samples like those that it will
// see: once, or twice for the methods that need a histogram of each input. It keeps no more
// of them than one batch. Datasets must end: use Take.
//
// Layers of policy P have policy int8_static_from_P afterwards, or int8_from_P; the rest of
// what Quantize says holds here. Keras has no such layers and does not load files with
// them. If an error is returned before the first layer is quantized, such as one of the
// dataset, of a layer that d does not reach or whose input is not finite, nothing changes.
func (m *Model) QuantizeStatic(ctx context.Context, d Dataset, c CalibrationConfig) (err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "QuantizeStatic"); err != nil {
		return err
	}
	if isNil(d) {
		return m.errorf("QuantizeStatic: no dataset given")
	}
	if !m.built {
		return m.errorf("QuantizeStatic: the model is not built; call it on data, or build it with Input")
	}
	filter, err := c.check()
	if err != nil {
		return m.errorf("QuantizeStatic: %w", err)
	}
	all, err := m.quantizable("QuantizeStatic", func(l layers.Layer) bool {
		return (layers.Quantizable(l) || layers.QuantizableStatic(l)) && filter(layers.BaseOf(l).Path())
	})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return m.errorf("QuantizeStatic: no layer that the filters match has a quantized form; Conv1D, Conv2D, Conv3D, DepthwiseConv1D, DepthwiseConv2D, Dense, EinsumDense and Embedding have")
	}
	cal := &calibration{model: m, config: c}
	for _, l := range all {
		if layers.QuantizableStatic(l) {
			cal.observed = append(cal.observed, &observed{layer: l, low: math.Inf(1), high: math.Inf(-1)})
		}
	}
	if len(cal.observed) > 0 {
		if err := cal.run(ctx, d); err != nil {
			return m.errorf("QuantizeStatic: %w", pipeline.WithCause(ctx, err))
		}
	}
	for _, o := range cal.observed {
		if err := layers.QuantizeStatic(o.layer, o.low, o.high); err != nil {
			return m.errorf("QuantizeStatic: %w", err)
		}
	}
	for _, l := range all {
		if layers.Quantizable(l) {
			if err := layers.Quantize(l); err != nil {
				return m.errorf("QuantizeStatic: %w", err)
			}
		}
	}
	return m.forget()
}

// check fills in defaults and compiles the filters.
func (c *CalibrationConfig) check() (filter func(path string) bool, err error) {
	switch c.Method {
	case "":
		c.Method = CalibrationMinMax
	case CalibrationMinMax, CalibrationPercentile, CalibrationMSE:
	default:
		return nil, fmt.Errorf("Method is %q, want %q, %q or %q", c.Method, CalibrationMinMax, CalibrationPercentile, CalibrationMSE)
	}
	if c.Percentile == 0 {
		c.Percentile = 99.99
	}
	if !(c.Percentile > 50 && c.Percentile <= 100) {
		return nil, fmt.Errorf("Percentile is %g, want more than 50 and at most 100", c.Percentile)
	}
	var any []*regexp.Regexp
	for _, f := range c.Filters {
		r, err := regexp.Compile(f)
		if err != nil {
			return nil, fmt.Errorf("Filters: %w", err)
		}
		any = append(any, r)
	}
	return func(path string) bool {
		for _, r := range any {
			if r.MatchString(path) {
				return true
			}
		}
		return len(any) == 0
	}, nil
}

// calibration observes the inputs of convolutions.
type calibration struct {
	model    *Model
	config   CalibrationConfig
	observed []*observed
}

// run finds the ranges.
func (c *calibration) run(ctx context.Context, d Dataset) error {
	extremes := func(_ *observed, x *Tensor) *Tensor {
		return tensor.Concat(0, x.Min().Reshape(1), x.Max().Reshape(1))
	}
	err := c.pass(ctx, d, extremes, func(o *observed, v []float64) {
		o.low, o.high = min(o.low, v[0]), max(o.high, v[1]) // NaN stays
	})
	if err != nil {
		return err
	}
	for _, o := range c.observed {
		path := layers.BaseOf(o.layer).Path()
		switch {
		case o.low > o.high:
			return fmt.Errorf("layer %s: the model does not call it", path)
		case !(o.low >= -math.MaxFloat32 && o.high <= math.MaxFloat32):
			return fmt.Errorf("layer %s: its inputs are from %g to %g, want finite numbers", path, o.low, o.high)
		}
	}
	if c.config.Method == CalibrationMinMax {
		return nil
	}
	err = c.pass(ctx, d, (*observed).histogram, func(o *observed, v []float64) {
		for i, n := range v {
			o.counts[i] += n
		}
	})
	if err != nil {
		return err
	}
	for _, o := range c.observed {
		if c.config.Method == CalibrationPercentile {
			o.withinPercentile(c.config.Percentile)
		} else {
			o.leastSquares()
		}
	}
	return nil
}

// pass computes predictions of d. It calls add with the vector that f makes of the input
// of each layer in each batch.
func (c *calibration) pass(ctx context.Context, d Dataset, f func(o *observed, x *Tensor) *Tensor, add func(o *observed, v []float64)) error {
	source, err := batchedSource(ctx, c.model, d, FitConfig{BatchSize: readRows(d)}, 0, "use Take")
	if err != nil {
		return err
	}
	var of []*observed // those of the parts of the function's result; a layer may be called twice
	fn := Function(func(x *Tensor) *Tensor {
		var parts []*Tensor
		of = nil
		for _, o := range c.observed {
			layers.Observe(o.layer, func(x *Tensor) {
				of, parts = append(of, o), append(parts, f(o, x.Cast(dtype.Float32)))
			})
			defer layers.Observe(o.layer, nil)
		}
		c.model.call(layers.Pass{}, x, true)
		if len(parts) == 0 {
			return tensor.Zeros(dtype.Float32, 0)
		}
		return tensor.Concat(0, parts...)
	}, c.model)
	n := 0
	for b, err := range source.open(0, 0) {
		if err == nil {
			err = c.model.buildFor(b.X)
		}
		if err != nil {
			return fmt.Errorf("batch %d: %w", n+1, err)
		}
		y, err := fn.Call(ctx, b.X)
		if err != nil {
			return err
		}
		v, err := y.Float64s()
		if err != nil {
			return err
		}
		y.Release()
		b.Release()
		for i, o := range of {
			add(o, v[i*len(v)/len(of):(i+1)*len(v)/len(of)])
		}
		n++
	}
	if n == 0 {
		return ErrEmptyDataset
	}
	return nil
}

// observed is what calibration knows of the input of a layer: its range, and how often
// numbers lie in each of histogramBins equal parts of it.
type observed struct {
	layer     layers.Layer
	low, high float64
	counts    [histogramBins]float64
}

// histogramBins is the bins of a histogram, as many as ONNX Runtime's and PyTorch's.
const histogramBins = 2048

// binsPerUnit is the bins in a unit of numbers.
func (o *observed) binsPerUnit() float64 {
	if n := histogramBins / (o.high - o.low); !math.IsInf(n, 0) {
		return n
	}
	return 0
}

// histogram counts the numbers of x in each bin. What is out of range, as x may be when a
// dataset differs from pass to pass, counts in the first or last one.
func (o *observed) histogram(x *Tensor) *Tensor {
	scalar := func(v float64) *Tensor { return tensor.Scalar(dtype.Float32, v) }
	x = x.Reshape(x.Shape().Size())
	at := x.Sub(scalar(o.low)).Mul(scalar(o.binsPerUnit()))
	at = tensor.Where(at.Greater(scalar(0)), at, scalar(0)).Minimum(scalar(histogramBins - 1))
	return tensor.Ones(dtype.Float32, x.Dim(0)).ScatterAdd(at.Cast(dtype.Int32), histogramBins)
}

// at is the middle of a bin.
func (o *observed) at(bin int) float64 {
	return o.low + (float64(bin)+0.5)/histogramBins*(o.high-o.low)
}

// withinPercentile narrows the range to p percent of the numbers: as many are below it as
// above.
func (o *observed) withinPercentile(p float64) {
	total := 0.0
	for _, n := range o.counts {
		total += n
	}
	outside := total * (1 - p/100) / 2
	first, last := 0, histogramBins-1
	for below := o.counts[first]; below <= outside && first < last; below += o.counts[first] {
		first++
	}
	for above := o.counts[last]; above <= outside && last > first; above += o.counts[last] {
		last--
	}
	half := (o.high - o.low) / histogramBins / 2
	o.low, o.high = o.at(first)-half, o.at(last)+half
}

// leastSquares narrows the range to the one in which the quantized numbers have the
// smallest mean squared error: that of rounding, a twelfth of the square of a step, within
// the range, and that of clipping outside. It tries hundredths of the largest number, and
// then of the smallest one.
func (o *observed) leastSquares() {
	squares := func(low, high float64) (sum float64) {
		low, high = min(low, 0), max(high, 0)
		step := (high - low) / 255
		for i, n := range o.counts {
			x := o.at(i)
			clipped := x - min(max(x, low), high)
			sum += n * (clipped*clipped + step*step/12)
		}
		return sum
	}
	low, high := o.low, o.high
	best := squares(low, high)
	for _, narrow := range []func(by float64) (float64, float64){
		func(by float64) (float64, float64) { return low, o.high * by },
		func(by float64) (float64, float64) { return o.low * by, high },
	} {
		for percent := 99; percent > 0; percent-- {
			if l, h := narrow(float64(percent) / 100); l <= h {
				if e := squares(l, h); e < best {
					best, low, high = e, l, h
				}
			}
		}
	}
	o.low, o.high = low, high
}
