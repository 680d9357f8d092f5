package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// separableBytes is the most memory of a pair's values and of its source, which are live
// together.
const separableBytes = 1 << 20

// joinSeparable marks each convolution of single pixels, directly behind a depthwise one that
// nothing else reads, as Joined. Both together are a separable convolution: a worker computes
// rows of the first one that stay in its L1 until the second one has read them.
//
// The result of the second one cannot lie where the source of the first one does, so liveness
// must follow.
func joinSeparable(g *Graph) {
	users := map[*Value]int{}
	for _, v := range g.Values {
		for _, a := range v.Args {
			users[a]++
		}
	}
	for i := 1; i < len(g.Values); i++ {
		a, v := g.Values[i-1], g.Values[i]
		if len(v.Args) < 2 || v.Args[0] != a || !depthwise(a) || !pointwise(v) || users[a] > 1 || slices.Contains(g.Outputs, a) || a.Joined || a.Concurrent {
			continue
		}
		v.Joined = a.Args[0].Type.Bytes()+a.Type.Bytes()+v.Type.Bytes() <= separableBytes
	}
}

// depthwise reports whether v is a convolution of images with one kernel for each channel.
func depthwise(v *Value) bool {
	if v.Op != op.Conv || len(v.Type.Shape) != 4 {
		return false
	}
	in, out := v.Args[0].Type.Shape[3], v.Type.Shape[3]
	return v.Attr.Groups > 1 && v.Attr.Groups == in && in == out
}

// pointwise reports whether v is a convolution whose windows are single pixels.
func pointwise(v *Value) bool {
	if v.Op != op.Conv || v.Attr.Groups > 1 || len(v.Type.Shape) != 4 {
		return false
	}
	x, w, y := v.Args[0].Type.Shape, v.Args[1].Type.Shape, v.Type.Shape
	return w[0] == 1 && w[1] == 1 && x[1] == y[1] && x[2] == y[2] && v.Attr.Stride[0] == 1 && v.Attr.Stride[1] == 1
}
