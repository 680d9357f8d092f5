// Copyright 2009 The Go Authors. All rights reserved.
// Use of this source code is governed by a BSD-style license that is in the file LICENSE.

package portablemath

import "math"

var tanhP = [...]float64{
	-9.64399179425052238628e-1,
	-9.92877231001918586564e1,
	-1.61468768441708447952e3,
}
var tanhQ = [...]float64{
	1.12811678491632931402e2,
	2.23548839060100448583e3,
	4.84406305325125486048e3,
}

// Tanh returns the hyperbolic tangent of x.
func Tanh(x float64) float64 {
	const MAXLOG = 8.8029691931113054295988e+01
	z := math.Abs(x)
	switch {
	case z > 0.5*MAXLOG:
		if x < 0 {
			return -1
		}
		return 1
	case z >= 0.625:
		s := Exp(float64(2 * z))
		z = 1 - 2/(s+1)
		if x < 0 {
			z = -z
		}
	default:
		if x == 0 {
			return x
		}
		s := float64(x * x)
		z = x + float64(float64(x*s)*(float64((float64(tanhP[0]*s)+tanhP[1])*s)+tanhP[2]))/(float64((float64((s+tanhQ[0])*s)+tanhQ[1])*s)+tanhQ[2])
	}
	return z
}
