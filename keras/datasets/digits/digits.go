// Package digits makes handwritten-looking digits out of nothing: 28x28
// grey-scale images of ten classes in the format of MNIST, for examples,
// tests and benchmarks on machines that have no data set and no network.
//
// Each image is a glyph (one of three or four ways of writing the digit) whose
// control points are shaken and which is then rotated, sheared, scaled and
// moved by random amounts and drawn with a round pen of random width. The
// pixels are those of MNIST: 0 is background, 255 is full ink, and the digit
// stands in a box of about 20x20 pixels near the centre.
//
// The generator is a pure function: image i of a seed depends on that seed and
// i alone, never on how many images are asked for, on how many processors draw
// them or on the processor's architecture. Different seeds give independent
// sets, so one seed can serve for training and another for testing.
//
// The set is about as hard as MNIST for small models: a nearest-class-mean
// classifier gets about 70 % right, and a dense 784-64-64-10 network gets to
// about 96 % within five epochs over 10,000 images.
package digits

import (
	"math"
	"runtime"
	"sync"
)

const (
	side   = 28          // height and width of an image in pixels
	pixels = side * side // bytes of one image

	// perWorker is the fewest images worth a goroutine of their own.
	perWorker = 64
)

// Raw returns n images of 28*28 bytes each (row-major, 0 is background, 255
// ink; shape (n, 28, 28)) and their n labels, 0 to 9 with equal probability.
// Image i is the same in every call with the same seed. An n below 1 gives two
// empty slices.
func Raw(n int, seed uint64) (images []byte, labels []byte) {
	if n < 1 {
		return []byte{}, []byte{}
	}
	images = make([]byte, n*pixels)
	labels = make([]byte, n)
	parts := min(runtime.GOMAXPROCS(0), (n+perWorker-1)/perWorker)
	var wg sync.WaitGroup
	for w := range parts {
		wg.Go(func() {
			var c canvas
			for i := w * n / parts; i < (w+1)*n/parts; i++ {
				labels[i] = c.image(images[i*pixels:(i+1)*pixels], seed, uint64(i))
			}
		})
	}
	wg.Wait()
	return images, labels
}

// stream is the random stream of one image: a counter hashed by the finalizer
// of SplitMix64 (Steele, Lea and Flood, 2014).
type stream uint64

const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// newStream hashes the seed before the index is mixed in, so that neighbouring
// seeds do not share images.
func newStream(seed, index uint64) stream {
	return stream(mix(mix(seed+golden) + (index+1)*golden))
}

func (s *stream) next() uint64 {
	*s += golden
	return mix(uint64(*s))
}

// uniform returns a number in [lo, hi).
func (s *stream) uniform(lo, hi float64) float64 {
	return lo + float64((hi-lo)*(float64(s.next()>>11)*0x1p-53))
}

// bell returns a number in (-1, 1) with the bell shape of a sum of three
// uniform ones, standard deviation 1/3.
func (s *stream) bell() float64 {
	r := s.next()
	const third = 1.0 / (1 << 21)
	sum := float64(r>>43) + float64(r>>22&(1<<21-1)) + float64(r>>1&(1<<21-1))
	return float64(sum*third*(2.0/3)) - 1
}

// How much the images vary; lengths are in units of the glyph's height except
// where pixels are named. Every bell-shaped amount has a standard deviation of
// a third of the value given here.
const (
	maxTurn   = 0.27 // tangent of half the rotation: 30 degrees
	maxShear  = 0.45
	maxShake  = 0.13 // of a control point
	maxShift  = 3.5  // pixels, each way
	minHeight = 15.0 // pixels
	maxHeight = 21.0
	minAspect = 0.72 // width of the box against its height
	maxAspect = 1.02
	minPen    = 0.75 // radius in pixels
	maxPen    = 1.75
	grain     = 0.14 // noise of the ink, relative
)

// canvas draws images one after another; it holds only scratch memory.
type canvas struct {
	dist [pixels]float64 // squared distance of each pixel's centre to the pen's path
	path []pt
}

// image draws image index of a seed into dst and returns its label.
//
// Products are wrapped in float64() where a sum follows (2*t is t+t): a compiler
// may fuse x*y+z otherwise, and then pixels would differ between architectures.
// For the same reason the rotation is computed from the tangent of half the
// angle and not from sines.
func (c *canvas) image(dst []byte, seed, index uint64) byte {
	rnd := newStream(seed, index)
	label := byte(rnd.next() >> 32 * 10 >> 32)
	variants := glyphs[label]
	glyph := variants[rnd.next()>>32*uint64(len(variants))>>32]

	t := float64(maxTurn * rnd.bell())
	tt := float64(t * t)
	cos, sin := (1-tt)/(1+tt), 2*t/(1+tt)
	shear := maxShear * rnd.bell()
	height := rnd.uniform(minHeight, maxHeight)
	width := height * rnd.uniform(minAspect, maxAspect)
	cx := side/2.0 + float64(maxShift*rnd.bell())
	cy := side/2.0 + float64(maxShift*rnd.bell())
	radius := rnd.uniform(minPen, maxPen)
	ink := rnd.uniform(0.78, 1)
	shake := maxShake * rnd.uniform(0.3, 1.4)

	reach := radius + 0.5
	for i := range c.dist {
		c.dist[i] = reach * reach
	}
	for _, st := range glyph {
		c.path = c.path[:0]
		for _, p := range st.p {
			x := float64((p.x - 0.5 + float64(shake*rnd.bell())) * width)
			y := float64((p.y - 0.5 + float64(shake*rnd.bell())) * height)
			x -= float64(shear * y)
			c.path = append(c.path, pt{
				cx + float64(cos*x) - float64(sin*y),
				cy + float64(sin*x) + float64(cos*y),
			})
		}
		for i := 1; i < len(c.path); i++ {
			if st.curved {
				c.spline(i, reach)
			} else {
				c.line(c.path[i-1], c.path[i], reach)
			}
		}
	}

	for i, d := range c.dist {
		dst[i] = 0
		if d >= reach*reach {
			continue
		}
		// The edge falls from full ink to none over one pixel.
		cover := min(reach-math.Sqrt(d), 1)
		v := float64(255 * ink * cover * (1 + float64(grain*rnd.bell())))
		dst[i] = byte(min(v+0.5, 255))
	}
	return label
}

// spline draws the piece of the path that ends at point i as a uniform
// Catmull-Rom curve, in straight lines of a few pixels.
func (c *canvas) spline(i int, reach float64) {
	p := c.path
	p0, p1, p2, p3 := p[max(i-2, 0)], p[i-1], p[i], p[min(i+1, len(p)-1)]
	const pieces = 4
	from := p1
	for k := 1; k <= pieces; k++ {
		t := float64(k) / pieces
		to := pt{cubic(p0.x, p1.x, p2.x, p3.x, t), cubic(p0.y, p1.y, p2.y, p3.y, t)}
		c.line(from, to, reach)
		from = to
	}
}

// cubic is one coordinate of the Catmull-Rom curve from p1 (t = 0) to p2
// (t = 1).
func cubic(p0, p1, p2, p3, t float64) float64 {
	a := float64(3*(p1-p2)) + p3 - p0
	b := float64(2*p0) - float64(5*p1) + float64(4*p2) - p3
	return p1 + float64(0.5*t*(p2-p0+float64(t*(b+float64(t*a)))))
}

// line lowers the distances of the pixels within reach of the segment a-b.
func (c *canvas) line(a, b pt, reach float64) {
	x0, x1 := span(a.x, b.x, reach)
	y0, y1 := span(a.y, b.y, reach)
	dx, dy := b.x-a.x, b.y-a.y
	scale := 0.0
	if l := float64(dx*dx) + float64(dy*dy); l > 0 {
		scale = 1 / l
	}
	for y := y0; y < y1; y++ {
		py := float64(y) + 0.5 - a.y
		row := c.dist[y*side : (y+1)*side]
		for x := x0; x < x1; x++ {
			px := float64(x) + 0.5 - a.x
			// Where the pixel's foot lies on the segment, 0 at a and 1 at b.
			f := min(max(float64((float64(px*dx)+float64(py*dy))*scale), 0), 1)
			ex, ey := px-float64(f*dx), py-float64(f*dy)
			if d := float64(ex*ex) + float64(ey*ey); d < row[x] {
				row[x] = d
			}
		}
	}
}

// span is the range of pixels within reach of the interval between a and b.
func span(a, b, reach float64) (int, int) {
	lo := int(max(min(a, b)-reach, 0))
	hi := int(min(max(a, b)+reach, side-1)) + 1
	return min(lo, side), max(hi, 0)
}
