package preprocessing

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/portablemath"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/initializers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// MelSpectrogram returns the loudness of signals over time in NumMelBins bands
// of the mel scale (of HTK). Frames are centered at samples 0, SequenceStride,
// …; signals are mirrored at their ends. For each frame the magnitude of the
// Fourier transform to the power of MagExp is summed in triangular bands. With
// PowerToDB the sums become decibels relative to RefPower, at most TopDB below
// the maximum of the batch. It computes in float32 for 16-bit types.
//
// Shapes: [batch samples] → [batch NumMelBins frames] with
// samples/SequenceStride + 1 frames; the number of samples must be known.
type MelSpectrogram struct {
	FFTLength      *int     `default:"2048"` // samples of a transform
	SequenceStride *int     `default:"512"`  // from one frame to the next
	SequenceLength *int     // samples of the window, in the middle of a frame; default: FFTLength
	Window         string   `default:"hann"`  // or hamming; none weights all FFTLength samples equally, whatever SequenceLength is
	SamplingRate   *int     `default:"16000"` // samples of a second
	NumMelBins     *int     `default:"128"`
	MinFreq        *float64 `default:"20"` // of the lowest band, in hertz
	MaxFreq        *float64 // of the highest; default: half the sampling rate
	PowerToDB      *bool    `default:"true"`
	TopDB          *float64 `default:"80"`
	MagExp         *float64 `default:"2"`
	MinPower       *float64 `default:"1e-10"` // less counts as this
	RefPower       *float64 `default:"1"`     // of 0 decibels
	Name, DType    string

	layers.Base
	cos, sin *tensor.Tensor // [FFTLength 1 FFTLength/2+1]
	bands    *tensor.Tensor // [FFTLength/2+1 NumMelBins]
}

// Config returns the fields Name and DType.
func (m *MelSpectrogram) Config() layers.Config { return layers.Config{Name: m.Name, DType: m.DType} }

// Build checks the fields and makes the tables.
func (m *MelSpectrogram) Build(in ...layers.Shape) error {
	c := layers.Defaults(*m)
	for _, f := range []struct {
		name  string
		value *int
	}{{"FFTLength", c.FFTLength}, {"SequenceStride", c.SequenceStride}, {"SequenceLength", c.SequenceLength},
		{"SamplingRate", c.SamplingRate}, {"NumMelBins", c.NumMelBins}} {
		if f.value != nil {
			if err := support.Positive(f.name, *f.value); err != nil {
				return err
			}
		}
	}
	fft, length, highest := *c.FFTLength, *c.FFTLength, math.Floor(float64(*c.SamplingRate)/2)
	if c.SequenceLength != nil {
		length = *c.SequenceLength
	}
	if c.MaxFreq != nil {
		highest = *c.MaxFreq
	}
	switch {
	case length > fft:
		return fmt.Errorf("SequenceLength is %d, want at most FFTLength, %d", length, fft)
	case c.Window != "hann" && c.Window != "hamming" && c.Window != "none":
		return fmt.Errorf("Window is %q, want hann, hamming or none", c.Window)
	case !(*c.MinFreq >= 0 && *c.MinFreq < highest):
		return fmt.Errorf("MinFreq is %v, want a number from 0 to below MaxFreq, %v", *c.MinFreq, highest)
	case !(highest <= math.MaxFloat32):
		return fmt.Errorf("MaxFreq is %v, want a finite number", highest)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{{"TopDB", *c.TopDB}, {"MagExp", *c.MagExp}, {"MinPower", *c.MinPower}, {"RefPower", *c.RefPower}} {
		if _, err := support.NotNegative(f.name, f.value); err != nil {
			return err
		}
	}
	if err := m.CheckInput(in...); err != nil {
		return err
	}
	m.SetAutocast(false) // sums of squares exceed float16
	bins := fft/2 + 1
	if c.Window == "none" {
		length = fft // Keras applies no window at all: SequenceLength has no effect
	}
	// As TensorFlow has it: windows of odd length are symmetric.
	window := make([]float64, fft)
	copy(window[(fft-length)/2:], initializers.Window(c.Window, length, length%2 == 0))
	kernel := func(side string) (*tensor.Tensor, error) {
		fill, err := initializers.Get("stft(side=" + side + ", window=none, scaling=none)")
		if err != nil {
			return nil, err
		}
		data := make([]float64, fft*bins)
		if err := fill(data, layers.Shape{fft, 1, bins}, 0); err != nil {
			return nil, err
		}
		for i := range data {
			data[i] *= window[i/bins]
		}
		return tensor.New(data, fft, 1, bins), nil
	}
	var err error
	if m.cos, err = kernel("real"); err != nil {
		return err
	}
	if m.sin, err = kernel("imag"); err != nil {
		return err
	}
	if err := support.CheckTable("FFTLength and NumMelBins", bins, *c.NumMelBins); err != nil {
		return err
	}
	m.bands = tensor.New(melBands(*c.NumMelBins, bins, float64(*c.SamplingRate), *c.MinFreq, highest), bins, *c.NumMelBins)
	return nil
}

// melBands are the shares of frequencies, bins up to half the sampling rate, in
// n bands from low to high, [bins n]: triangles in the mel scale, each from the
// middle of the one before to that of the next. The frequency 0 is in none.
func melBands(n, bins int, rate, low, high float64) []float64 {
	mel := func(hertz float64) float64 { return float64(1127 * portablemath.Log(1+hertz/700)) }
	step := (mel(high) - mel(low)) / float64(n+1)
	out := make([]float64, bins*n)
	for i := 1; i < bins; i++ {
		at := (mel(rate/2*float64(i)/float64(bins-1)) - mel(low)) / step
		for k := range n {
			out[i*n+k] = max(0, min(at-float64(k), float64(k+2)-at))
		}
	}
	return out
}

// CheckInput requires signals of known length that can be mirrored.
func (m *MelSpectrogram) CheckInput(in ...layers.Shape) error {
	s, err := support.Single(in, 2)
	if err != nil {
		return err
	}
	if len(s) != 2 {
		return fmt.Errorf("input %v has %d axes, want 2: batch, samples", s, len(s))
	}
	half := *layers.Defaults(*m).FFTLength / 2
	if s[1] == tensor.Unknown || s[1] <= half {
		return fmt.Errorf("input %v has %s samples, want a known number of more than half of FFTLength, %d", s, s[1:], half)
	}
	return nil
}

// Call computes the layer on x.
func (m *MelSpectrogram) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	c := layers.Defaults(*m)
	d := m.ComputeDType()
	x = x.Cast(d.Accumulator())
	frames := mirrored(x, *c.FFTLength/2).ExpandDims(-1)
	o := tensor.ConvOptions{Stride: []int{*c.SequenceStride}}
	power := frames.Conv(m.cos.CastLike(x), o).Square().Add(frames.Conv(m.sin.CastLike(x), o).Square())
	if e := *c.MagExp; e == 1 {
		power = power.Sqrt()
	} else if e != 2 {
		power = power.Pow(tensor.Scalar(power.DType(), e/2))
	}
	y := support.OverLast(power, *c.NumMelBins, func(p *tensor.Tensor) *tensor.Tensor { return p.MatMul(m.bands.CastLike(x)) })
	if *c.PowerToDB {
		const tenLogs = 10 / math.Ln10
		y = y.MaximumScalar(*c.MinPower).Log().MulScalar(tenLogs).AddScalar(-tenLogs * portablemath.Log(max(*c.RefPower, *c.MinPower)))
		y = y.Maximum(y.Max().AddScalar(-*c.TopDB))
	}
	return y.Transpose(0, 2, 1).Cast(d)
}

// mirrored continues x, [batch n], by so many elements at both ends, which are
// not repeated themselves.
func mirrored(x *tensor.Tensor, more int) *tensor.Tensor {
	n := x.Dim(1)
	from := make([]int32, n+2*more)
	for i := range from {
		k := i - more
		if k < 0 {
			k = -k
		}
		if k >= n {
			k = 2*(n-1) - k
		}
		from[i] = int32(k)
	}
	return x.Transpose(1, 0).Gather(tensor.New(from, len(from))).Transpose(1, 0)
}
