package preprocessing

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/initializers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// STFTSpectrogram is the short-time Fourier transform of signals: of frames of
// FrameLength samples, FrameStep apart, in a window. It is a convolution with
// kernels that start as those of the transform, and are trained like others
// unless the layer is frozen. It computes in float32 for 16-bit types.
//
// Mode is what is made of a frequency z: log ln|z|, magnitude |z|, psd its power
// |z|², twice that between the lowest and highest, real, imag, angle, and stft,
// the real parts of all and then the imaginary ones.
//
// Shapes: [batch samples channels] → [batch frames channels·F] with F =
// FFTLength/2+1 frequencies, twice as many in mode stft; with ExpandDims
// [batch frames F channels]. With channels_first [batch channels samples] →
// [batch channels·F frames], with ExpandDims [batch channels frames F].
// Weights: real_kernel and imag_kernel [FrameLength 1 FFTLength/2+1], those
// that the mode needs.
type STFTSpectrogram struct {
	Mode        string `default:"log"`
	FrameLength *int   `default:"256"`
	FrameStep   *int   // at most FrameLength; default: half of it
	FFTLength   *int   // at least FrameLength; default: the next power of two
	Window      string `default:"hann"` // or hamming, blackman, nuttall, blackmanharris, flattop, boxcar, none
	Periodic    bool   // whether the window is periodic rather than symmetric
	Scaling     string `default:"density"` // divides by the window's norm; or spectrum: by its sum, none
	Padding     string `default:"valid"`   // or same
	ExpandDims  bool   // whether frequencies have an axis of their own
	DataFormat  string `default:"channels_last"` // or channels_first
	Name, DType string

	layers.Base
	windows         support.Windows
	channels        int
	frequencies     int
	real, imaginary *layers.Weight
}

// spectra are the modes of STFTSpectrogram.
var spectra = []string{"log", "magnitude", "psd", "real", "imag", "angle", "stft"}

// Config returns the fields Name and DType.
func (s *STFTSpectrogram) Config() layers.Config { return layers.Config{Name: s.Name, DType: s.DType} }

// Build makes the kernels.
func (s *STFTSpectrogram) Build(in ...layers.Shape) (err error) {
	c := layers.Defaults(*s)
	if !slices.Contains(spectra, c.Mode) {
		return fmt.Errorf("Mode is %q, want one of %q", c.Mode, spectra)
	}
	if !slices.Contains(initializers.Windows(), c.Window) {
		return fmt.Errorf("Window is %q, want one of %q", c.Window, initializers.Windows())
	}
	if c.Scaling != "density" && c.Scaling != "spectrum" && c.Scaling != "none" {
		return fmt.Errorf("Scaling is %q, want density, spectrum or none", c.Scaling)
	}
	frame := *c.FrameLength
	if err := support.Positive("FrameLength", frame); err != nil {
		return err
	}
	step := max(frame/2, 1)
	if c.FrameStep != nil {
		if step = *c.FrameStep; step < 1 || step > frame {
			return fmt.Errorf("FrameStep is %d, want a number from 1 to FrameLength, %d", step, frame)
		}
	}
	fft := 1
	for fft < frame {
		fft *= 2
	}
	if c.FFTLength != nil {
		if fft = *c.FFTLength; fft < frame {
			return fmt.Errorf("FFTLength is %d, want at least FrameLength, %d", fft, frame)
		}
	}
	s.frequencies = fft/2 + 1
	if err := s.windows.Of(1, "FrameLength", []int{frame}, []int{step}, []int{1}, c.Padding, "valid", "same"); err != nil {
		return err
	}
	if s.channels, err = s.windows.Field.Channels(c.DataFormat, in, 1); err != nil {
		return err
	}
	kernel := func(side string) (*layers.Weight, error) {
		return s.AddWeight(side+"_kernel", layers.Shape{frame, 1, s.frequencies},
			fmt.Sprintf("stft(side=%s, window=%s, scaling=%s, periodic=%v)", side, c.Window, c.Scaling, c.Periodic))
	}
	if c.Mode != "imag" {
		if s.real, err = kernel("real"); err != nil {
			return err
		}
	}
	if c.Mode != "real" {
		s.imaginary, err = kernel("imag")
	}
	return err
}

// CheckInput requires signals with the channels it was built for.
func (s *STFTSpectrogram) CheckInput(in ...layers.Shape) error {
	return s.windows.Field.Fits(in, 1, s.channels)
}

// Call computes the layer on x.
func (s *STFTSpectrogram) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	c := layers.Defaults(*s)
	channels, d := s.channels, x.DType()
	x = s.windows.Field.ChannelsLast(x.Cast(d.Accumulator()))
	part := func(w *layers.Weight) *tensor.Tensor {
		if w == nil {
			return nil
		}
		// The same kernels for each channel.
		kernel := tensor.Concat(-1, slices.Repeat([]*tensor.Tensor{w.Variable.Value().CastLike(x)}, channels)...)
		return s.windows.Conv(x, kernel, channels)
	}
	re, im := part(s.real), part(s.imaginary)
	f := s.frequencies
	var y *tensor.Tensor
	switch c.Mode {
	case "real":
		y = re
	case "imag":
		y = im
	case "angle":
		y = atan2(im, re)
	case "stft":
		y = tensor.Concat(-1, s.byChannel(re, f), s.byChannel(im, f))
		f *= 2
		y = reshaped(y, y.Dim(0), y.Dim(1), channels*f)
	default:
		y = spectrum(c.Mode, re.Square().Add(im.Square()), f, channels)
	}
	y = y.Cast(d)
	switch {
	case c.ExpandDims && s.windows.Field.ChannelsFirst:
		return s.byChannel(y, f).Transpose(0, 2, 1, 3)
	case c.ExpandDims:
		return s.byChannel(y, f).Transpose(0, 1, 3, 2)
	}
	return s.windows.Field.Restore(y)
}

// byChannel gives y, [batch frames channels·f], axes for channels and
// frequencies.
func (s *STFTSpectrogram) byChannel(y *tensor.Tensor, f int) *tensor.Tensor {
	return reshaped(y, y.Dim(0), y.Dim(1), s.channels, f)
}

// reshaped is Reshape for shapes of which several sizes may be unknown.
func reshaped(x *tensor.Tensor, shape ...int) *tensor.Tensor {
	return tensor.Record(op.Reshape, op.Attr{Dims: shape}, x)
}

// least is what Keras takes for 0 before roots and logarithms.
const least = 1e-7

// spectrum makes power, of f frequencies of each channel, what mode says.
func spectrum(mode string, power *tensor.Tensor, f, channels int) *tensor.Tensor {
	if mode == "psd" { // those that stand for two
		twice := slices.Repeat([]float64{2}, f)
		twice[0], twice[f-1] = 1, 1
		return power.Mul(support.Constant(power.DType(), slices.Repeat(twice, channels), f*channels))
	}
	y := power.MaximumScalar(least).Sqrt()
	if mode == "log" {
		return y.MaximumScalar(least).Log()
	}
	return y
}

// atan2 is the angle of the point (x, y), from -π to π, to the precision of
// float32 (Moshier's atanf of the Cephes library).
func atan2(y, x *tensor.Tensor) *tensor.Tensor {
	zero := tensor.Scalar(x.DType(), 0)
	ax, ay := x.Abs(), y.Abs()
	// t in [0, 1] is the smaller by the larger, then at most tan(π/8).
	t := ax.Minimum(ay).Div(ax.Maximum(ay).MaximumScalar(math.SmallestNonzeroFloat32 * (1 << 24)))
	upper := t.GreaterScalar(math.Tan(math.Pi / 8))
	r := tensor.Where(upper, t.AddScalar(-1).Div(t.AddScalar(1)), t)
	z := r.Square()
	p := z.MulScalar(8.05374449538e-2).AddScalar(-1.38776856032e-1).Mul(z).AddScalar(1.99777106478e-1).Mul(z).AddScalar(-3.33329491539e-1)
	a := p.Mul(z).Mul(r).Add(r)
	a = tensor.Where(upper, a.AddScalar(math.Pi/4), a)
	a = tensor.Where(ay.Greater(ax), a.Neg().AddScalar(math.Pi/2), a)
	a = tensor.Where(x.Less(zero), a.Neg().AddScalar(math.Pi), a)
	return tensor.Where(y.Less(zero), a.Neg(), a)
}
