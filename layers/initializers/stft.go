package initializers

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/portablemath"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// stft is Keras's STFT: kernels [frame 1 fft/2+1] of a convolution that makes
// the real or imaginary part of a short-time Fourier transform, e^(-2πi·t·f/fft)
// in a window. scaling divides by the window's Euclidean norm (density) or the
// sum of its magnitudes (spectrum). Where Keras has None, it is none.
func stft(s callspec.Spec) (Initializer, error) {
	side, window, scaling, periodic := "real", "hann", "density", false
	err := s.Bind(callspec.Optional("side", &side), callspec.Optional("window", &window), callspec.Optional("scaling", &scaling), callspec.Optional("periodic", &periodic))
	if err == nil {
		err = s.OneOf("side", side, "real", "imag")
	}
	if err == nil {
		err = s.OneOf("scaling", scaling, "density", "spectrum", "none")
	}
	if err == nil {
		err = s.OneOf("window", window, Windows()...)
	}
	if err != nil {
		return nil, err
	}
	return func(dst []float64, shape tensor.Shape, _ uint64) error {
		if len(shape) != 3 || shape[1] != 1 {
			return fmt.Errorf("got shape %v, want [frame 1 frequencies]", shape)
		}
		w := Window(window, shape[0], periodic)
		scale := 0.0
		for _, v := range w {
			if scaling == "density" {
				scale += float64(v * v)
			} else {
				scale += math.Abs(v)
			}
		}
		switch {
		case scaling == "density":
			scale = math.Sqrt(scale)
		case scaling == "none":
			scale = 1
		}
		if window == "none" { // as in Keras
			scale = 1
		}
		fft := 2 * (shape[2] - 1)
		for i := range dst {
			t, f := i/shape[2], i%shape[2]
			// The angle less whole turns, which are exact in integers.
			angle := -2 * math.Pi * float64(t*f%max(fft, 1)) / float64(max(fft, 1))
			sin, cos := portablemath.Sin(angle), portablemath.Cos(angle)
			dst[i] = cos * w[t] / scale
			if side == "imag" {
				dst[i] = sin * w[t] / scale
			}
		}
		return nil
	}, nil
}

// cosines are the windows that are sums of cosines, by their coefficients:
// SciPy's of these names.
var cosines = map[string][]float64{
	"none":           {1},
	"boxcar":         {1},
	"hann":           {0.5, 0.5},
	"hamming":        {0.54, 0.46},
	"blackman":       {0.42, 0.5, 0.08},
	"nuttall":        {0.3635819, 0.4891775, 0.1365995, 0.0106411},
	"blackmanharris": {0.35875, 0.48829, 0.14128, 0.01168},
	"flattop":        {0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368},
}

// Windows lists the names that Window knows, sorted.
func Windows() []string { return slices.Sorted(maps.Keys(cosines)) }

// Window is a window of n elements by its name, one of Windows: symmetric, or
// periodic, which is a symmetric one of n+1 without its end.
func Window(name string, n int, periodic bool) []float64 {
	w := make([]float64, n)
	last := n - 1
	if periodic {
		last = n
	}
	for t := range w {
		if n == 1 { // whatever the window
			w[t] = 1
			continue
		}
		for k, a := range cosines[name] {
			w[t] += float64(a * portablemath.Cos(float64(k)*(2*float64(t)/float64(last)-1)*math.Pi))
		}
	}
	return w
}
