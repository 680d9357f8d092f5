package cpu

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// passes are the loops of vec.Passes for any length: what is left after whole
// vectors is done in Go. Sums are in s, after the numbers.
type passes struct {
	v     *vec.Passes
	lanes int
}

func newPasses() passes {
	if v := vectors(); v != nil {
		return passes{&v.Passes, v.Lanes}
	}
	return passes{}
}

// whole is how many of n elements are whole vectors.
func (p passes) whole(n int) int {
	if p.v == nil {
		return 0
	}
	return n / p.lanes * p.lanes
}

func (p passes) deviations(x, s []float32) {
	n := p.whole(len(x))
	s[1], s[2] = 0, 0
	if n > 0 {
		p.v.Deviations(x[:n], s)
	}
	var a, b float64 // without vectors there is one sum of each, of up to a whole row
	for _, v := range x[n:] {
		d := float64(v - s[0])
		a += d
		b += d * d
	}
	s[1] += float32(a)
	s[2] += float32(b)
}

// products is Σ x·y, in float64 but for parts.
func (p passes) products(x, y, s []float32) (sum float64) {
	const part = 4096
	n := p.whole(len(x))
	for at := 0; at < n; at += part {
		end := min(at+part, n)
		p.v.Products(x[at:end], y[at:end], s)
		sum += float64(s[0])
	}
	for i := n; i < len(x); i++ {
		sum += float64(x[i]) * float64(y[i])
	}
	return sum
}

// exp2Sum is dst = 2 to the power of x·scale + shift, where there are vectors,
// and the sum, in float64 but for parts. rest is scratch memory for a vector,
// ahead what is read next.
func (p passes) exp2Sum(dst, x []float32, scale, shift float32, s, rest []float32, ahead []byte) (sum float64) {
	const part = 4096
	n := p.whole(len(x))
	powers := func(dst, x []float32, ahead []byte) {
		s[0], s[1] = scale, shift
		p.v.Exp2SumAhead(dst, x, s, ahead)
		sum += float64(s[2])
	}
	for at := 0; at < n; at += part {
		end := min(at+part, n)
		powers(dst[at:end], x[at:end], ahead[min(4*at, len(ahead)):])
	}
	if n < len(x) {
		copy(rest, x[n:])
		last := wholeRow(rest[:len(x)-n], p.lanes)
		powers(last, last, nil)
		copy(dst[n:], last)
	}
	return sum
}

// lessRow is dst = x - s[0] - s[1].
func (p passes) lessRow(dst, x, s []float32) {
	n := p.whole(len(dst))
	if n > 0 {
		p.v.LessRow(dst[:n], x, s)
	}
	for i := n; i < len(dst); i++ {
		dst[i] = x[i] - s[0] - s[1]
	}
}

// normalizeRow also asks the caches for what is read next.
func (p passes) normalizeRow(dst, x, gain, shift, s []float32, ahead []byte) {
	n := p.whole(len(dst))
	if n > 0 {
		p.v.NormalizeRow(dst[:n], x, gain, shift, s, ahead)
	}
	for i := n; i < len(dst); i++ {
		dst[i] = (x[i]-s[0])*s[1]*gain[i] + shift[i]
	}
}

func (p passes) gradRowSums(dgain, dshift, x, grad, gain, s []float32) {
	n := p.whole(len(dgain))
	s[2], s[3] = 0, 0
	if n > 0 {
		p.v.GradRowSums(dgain[:n], dshift, x, grad, gain, s)
	}
	var a, b float64
	for i := n; i < len(dgain); i++ {
		h, g := (x[i]-s[0])*s[1], grad[i]
		dgain[i] += g * h
		dshift[i] += g
		g *= gain[i]
		a += float64(g)
		b += float64(g) * float64(h)
	}
	s[2] += float32(a)
	s[3] += float32(b)
}

func (p passes) gradRow(dst, x, grad, gain, s []float32) {
	n := p.whole(len(dst))
	if n > 0 {
		p.v.GradRow(dst[:n], x, grad, gain, s)
	}
	for i := n; i < len(dst); i++ {
		dst[i] = grad[i]*gain[i]*s[1] + (x[i]-s[0])*s[2] + s[3]
	}
}

// momentsOf are the mean and the biased variance of a row. Sums of parts of it
// are in float32, that of the parts in float64; deviations are from a mean that
// is right but for rounding.
func (p passes) momentsOf(x []float32, uncentered bool, s []float32) (mean, variance float64) {
	const part = 8192
	n := float64(len(x))
	sums := func(from float64) (a, b float64) {
		for at := 0; at < len(x); at += part {
			s[0] = float32(from)
			p.deviations(x[at:min(at+part, len(x))], s)
			a += float64(s[1])
			b += float64(s[2])
		}
		return a, b
	}
	if uncentered {
		_, b := sums(0)
		return 0, b / n
	}
	a, _ := sums(0)
	from := float64(float32(a / n))
	a, b := sums(from)
	return from + a/n, math.Max(0, (b-a*a/n)/n)
}
