// Package window has the geometry of windows that slide over images, for convolutions
// and pooling.
package window

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Geometry is how windows slide over the three spatial axes of a tensor; missing axes
// have one element. Position p of the input lies under element k of window y if p =
// y·stride + k·dilation - low.
type Geometry struct {
	Batch                       int
	In, Size, Out               [3]int
	Stride, Dilation, Low       [3]int
	InSize, WindowSize, OutSize int // products
}

// New returns the geometry of windows over x with a result of shape y.
func New(a *op.Attr, x, window, y op.Shape) Geometry {
	s := Geometry{
		Batch: x[0], In: [3]int{1, 1, 1}, Size: [3]int{1, 1, 1}, Out: [3]int{1, 1, 1},
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1},
	}
	first := 3 - len(window)
	for i, w := range window {
		j := first + i
		s.In[j], s.Size[j], s.Out[j] = x[i+1], w, y[i+1]
		s.Stride[j], s.Dilation[j], s.Low[j] = a.Stride[i], a.Dilation[i], a.Low[i]
	}
	volume := func(d [3]int) int { return d[0] * d[1] * d[2] }
	s.InSize, s.WindowSize, s.OutSize = volume(s.In), volume(s.Size), volume(s.Out)
	return s
}

// At returns the position along an axis under element k of window y, and whether it
// exists.
func (s *Geometry) At(axis, y, k int) (int, bool) {
	p := y*s.Stride[axis] + k*s.Dilation[axis] - s.Low[axis]
	return p, p >= 0 && p < s.In[axis]
}

// Within returns how many elements of window y along an axis lie on the input.
func (s *Geometry) Within(axis, y int) int {
	dilation, first := s.Dilation[axis], s.Low[axis]-y*s.Stride[axis] // first: from the window's beginning to the input's
	lo := tiling.CeilDiv(max(0, first), dilation)
	hi := min(s.Size[axis], tiling.CeilDiv(max(0, first+s.In[axis]), dilation))
	return max(0, hi-lo)
}

// Window returns the window along an axis whose element k lies on position p, and
// whether it exists.
func (s *Geometry) Window(axis, p, k int) (int, bool) {
	y := p + s.Low[axis] - k*s.Dilation[axis]
	if y < 0 || y%s.Stride[axis] != 0 {
		return 0, false
	}
	y /= s.Stride[axis]
	return y, y < s.Out[axis]
}

// Under returns the windows [lo, hi) of a row whose element kx lies on a pixel, and the
// pixel of the first.
func (s *Geometry) Under(kx int) (lo, hi, x int) {
	d := s.Low[2] - kx*s.Dilation[2] // a pixel is y·stride - d
	lo = tiling.CeilDiv(max(0, d), s.Stride[2])
	hi = min(s.Out[2], tiling.CeilDiv(max(0, s.In[2]+d), s.Stride[2]))
	return lo, max(lo, hi), lo*s.Stride[2] - d
}

// SplitRow splits the index of a row, of images with rows over two axes.
func SplitRow(row int, dims [3]int) (image, z, y int) {
	y = row % dims[1]
	row /= dims[1]
	return row / dims[0], row % dims[0], y
}

// VectorChannels is the channels per step of a vector loop over pixels.
const VectorChannels = 32
