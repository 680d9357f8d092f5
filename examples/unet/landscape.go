package main

import (
	"math"
	"math/rand/v2"
)

// The numbers of the classes, in the order of classes.
const (
	sky = iota
	tree
	grass
	earth
	mountain
	plant
	water
	sea
	river
)

// colours are the mean colours of the classes, red, green and blue.
var colours = [...][3]float64{
	sky: {0.60, 0.75, 0.92}, tree: {0.12, 0.30, 0.14}, grass: {0.40, 0.58, 0.22}, earth: {0.50, 0.38, 0.26}, mountain: {0.48, 0.46, 0.52},
	plant: {0.30, 0.48, 0.10}, water: {0.30, 0.48, 0.62}, sea: {0.10, 0.30, 0.50}, river: {0.38, 0.58, 0.66},
}

// draw makes n landscapes of size by size pixels. Scene i is the same however
// many are drawn.
func draw(n, size int) []scene {
	scenes := make([]scene, n)
	for i := range scenes {
		scenes[i] = landscape(rand.New(rand.NewPCG(uint64(i), 2)), size)
	}
	return scenes
}

// landscape draws one scene from back to front: sky, a range of mountains,
// then either the sea or land with earth, a pond, a river, trees and plants.
// Colours vary from scene to scene, and from pixel to pixel.
func landscape(rng *rand.Rand, size int) scene {
	s := scene{size: size, labels: make([]int32, size*size), pixels: make([]float32, size*size*3)}
	n := float64(size)
	horizon := n * (0.4 + 0.2*rng.Float64())
	ridge := wave(rng, n, 0.25*n)
	ground := grass
	if rng.IntN(4) == 0 {
		ground = sea
	}
	shore := wave(rng, n, 0.06*n)
	bed, width := wave(rng, n, 0.25*n), n*(0.05+0.06*rng.Float64())
	hasRiver, hasPond := rng.IntN(2) == 0, rng.IntN(2) == 0
	middle, pond := n*rng.Float64(), n*(0.1+0.12*rng.Float64())
	for r := range size {
		for c := range size {
			x, y := float64(c), float64(r)
			class := sky
			switch depth := y - horizon; {
			case depth < 0 && y > horizon-0.15*n-ridge(x):
				class = mountain
			case depth < 0:
			case ground == sea && y < n*0.85+shore(x):
				class = sea
			case ground == sea || y > n*0.88+shore(x):
				class = earth
			case hasRiver && math.Abs(x-n/2-bed(y)) < width*(0.4+depth/n):
				class = river
			case hasPond && math.Hypot((x-middle)/2, y-horizon-0.25*n) < pond/2:
				class = water
			default:
				class = grass
			}
			s.labels[r*size+c] = int32(class)
		}
	}
	blob := func(class int, x, y, across, up float64) {
		for r := max(0, int(y-up)); r < min(size, int(y+up)+1); r++ {
			for c := max(0, int(x-across)); c < min(size, int(x+across)+1); c++ {
				if math.Hypot((float64(c)-x)/across, (float64(r)-y)/up) <= 1 {
					s.labels[r*size+c] = int32(class)
				}
			}
		}
	}
	for range 2 + rng.IntN(4) {
		up := n * (0.08 + 0.12*rng.Float64())
		blob(tree, n*rng.Float64(), horizon+0.1*n*rng.Float64()-up/2, up/2, up)
	}
	for range 2 + rng.IntN(4) {
		up := n * (0.04 + 0.04*rng.Float64())
		blob(plant, n*rng.Float64(), n*(0.75+0.2*rng.Float64()), 1.6*up, up)
	}
	light := 0.9 + 0.2*rng.Float64()
	var tint [len(colours)][3]float64
	for i := range tint {
		for k := range tint[i] {
			tint[i][k] = light*colours[i][k] + 0.03*rng.NormFloat64()
		}
	}
	for i, class := range s.labels {
		fade := 0.1 * (float64(i/size)/n - 0.5)
		shade := 0.04 * rng.NormFloat64()
		for k := range 3 {
			s.pixels[3*i+k] = float32(min(max(tint[class][k]+fade+shade+0.02*rng.NormFloat64(), 0), 1))
		}
	}
	return s
}

// wave is a smooth random curve over n pixels that goes up to about ±height.
func wave(rng *rand.Rand, n, height float64) func(float64) float64 {
	var amplitude, phase [4]float64
	for i := range amplitude {
		amplitude[i], phase[i] = rng.NormFloat64()/float64(i+2), 2*math.Pi*rng.Float64()
	}
	return func(x float64) float64 {
		sum := 0.0
		for i, a := range amplitude {
			sum += a * math.Sin(2*math.Pi*float64(i+1)*x/n/1.5+phase[i])
		}
		return height * sum
	}
}
