//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math/bits"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// columnSums calls a kernel of columns.cu on matrices of which x is one operand,
// and one that joins the segments that the rows were cut into, with more
// parameters of its own: how many rows there are, and how many a segment has.
func (b *builder) columnSums(v *ir.Value, name, join string, withRows bool, args ...any) {
	s, acc := v.Args[0].Type.Shape, v.Type.DType
	outer, rows, columns := s[0], s[1], s[2]
	all := outer * columns
	if all == 0 {
		return
	}
	const threads, most, wish, least = 256, 32, 512, 64
	across := min(most, 1<<bits.Len(uint(columns-1)))
	blocks := outer * ((columns + across - 1) / across)
	segments := max(1, min(wish/blocks, rows/least))
	per := max(1, (rows+segments-1)/segments)
	segments = max(1, (rows+per-1)/per)
	var out any = v
	if segments > 1 {
		out = scratch(0)
		b.scratch = max(b.scratch, segments*2*all*acc.Size())
	}
	b.call(v, name, [3]int{blocks, segments, 1}, [3]int{threads, 1, 1}, append(args, out, rows, columns, all, across, per)...)
	if segments > 1 {
		args := []any{out, v, all, segments}
		if withRows {
			args = append(args, rows, per)
		}
		b.call(v, join+acc.String(), [3]int{(all + 7) / 8, 1, 1}, [3]int{threads, 1, 1}, args...)
	}
}

func (b *builder) moments(v *ir.Value) error {
	x := v.Args[0]
	b.columnSums(v, "column_moments_"+x.Type.DType.String(), "join_moments_", true, x)
	return nil
}

func (b *builder) batchNormReduce(v *ir.Value) error {
	x, g := v.Args[0], v.Args[2]
	if !paired(x.Type.DType, g.Type.DType) {
		return &backend.UnsupportedError{Device: b.p.device.Name(), Op: v.Op, DType: g.Type.DType, Path: v.Path}
	}
	b.columnSums(v, fmt.Sprintf("centered_sums_%v_%v", x.Type.DType, g.Type.DType), "join_sums_", false, x, v.Args[1], g)
	return nil
}
