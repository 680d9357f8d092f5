package main

import (
	"math"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
)

// Device is a statistical model of a phase-change memory cell: the one of
// Nandakumar, Le Gallo, Boybat, Rajendran, Sebastian and Eleftheriou 2018 (A
// phase-change memory model for neuromorphic computing), simplified so that a pulse
// depends on the conductance alone. Conductances are in µS, times in seconds.
type Device struct {
	// A SET pulse adds Slope·G + Step on average, with a standard deviation of
	// Spread·G + SpreadStep: fewer and less the more the cell conducts.
	Slope, Step, Spread, SpreadStep float64
	// A RESET pulse leaves Low, with a standard deviation of LowSpread. No cell conducts
	// more than High, or less than a tenth of Low.
	Low, LowSpread, High float64
	// Drift is the exponent ν of G(t) = G·((t+Onset)/Onset)^-ν, t after the last pulse.
	Drift, Onset float64
	// A read sees noise of the standard deviation Noise·G + NoiseFloor.
	Noise, NoiseFloor float64
}

// PCM is the cell that the papers measured.
var PCM = Device{
	Slope: -0.084, Step: 0.892, Spread: 0.09, SpreadStep: 0.575,
	Low: 0.1, LowSpread: 0.01, High: 20,
	Drift: 0.04, Onset: 38.6,
	Noise: 0.03, NoiseFloor: 0.13,
}

// Mean returns the mean conductance after n SET pulses to cells that conduct g: the
// means of single pulses in sequence, in closed form.
func (d *Device) Mean(g, n *keras.Tensor) *keras.Tensor {
	if d.Slope == 0 {
		return g.Add(n.MulScalar(d.Step))
	}
	kept := n.MulScalar(math.Log1p(d.Slope)).Exp() // (1+Slope)ⁿ
	limit := -d.Step / d.Slope
	return g.Mul(kept).Add(kept.Neg().AddScalar(1).MulScalar(limit))
}

// Set returns the conductance of cells that conduct g after n SET pulses, which may be
// 0; noise is normal with the standard deviation 1.
func (d *Device) Set(g, n, noise *keras.Tensor) *keras.Tensor {
	deviation := g.MulScalar(d.Spread).AddScalar(d.SpreadStep).Mul(n.Sqrt())
	return d.Mean(g, n).Add(noise.Mul(deviation)).Clip(d.Low/10, d.High)
}

// Reset returns the conductance after a RESET pulse.
func (d *Device) Reset(noise *keras.Tensor) *keras.Tensor {
	return noise.MulScalar(d.LowSpread).AddScalar(d.Low).Clip(d.Low/10, d.High)
}

// Drifted returns the conductance age seconds after cells were programmed to g.
func (d *Device) Drifted(g, age *keras.Tensor) *keras.Tensor {
	if d.Drift == 0 {
		return g
	}
	return g.Mul(age.MulScalar(1 / d.Onset).Log1p().MulScalar(-d.Drift).Exp())
}

// Variance returns the variance of what a read of cells that conduct g sees.
func (d *Device) Variance(g *keras.Tensor) *keras.Tensor {
	return g.MulScalar(d.Noise).AddScalar(d.NoiseFloor).Square()
}

// quantized rounds x to 8 bits between 0 and limit, or -limit and limit if it is
// signed: a converter between the digital and the analog part.
func quantized(x *keras.Tensor, limit float64, signed bool) *keras.Tensor {
	levels, least := 255.0, 0.0
	if signed {
		levels, least = 127, -limit
	}
	return x.Clip(least, limit).MulScalar(levels / limit).Round().MulScalar(limit / levels)
}

// scaled is quantized, signed, for rows that are divided by their largest magnitude
// before the converter and multiplied by it after the product. It returns both.
func scaled(x *keras.Tensor) (rows, scale *keras.Tensor) {
	scale = x.Abs().MaxKeep(1)
	scale = ops.Where(scale.GreaterScalar(0), scale, ops.Scalar(keras.Float32, 1))
	return quantized(x.Div(scale), 1, true), scale
}
