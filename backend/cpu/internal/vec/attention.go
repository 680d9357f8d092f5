package vec

import "unsafe"

// Scores are the loops over blocks of scores of attention: rows of float32,
// ld bytes apart, in memory that has room for whole vectors. Those with BF16
// in their names leave bfloat16s in the place of a row, from its beginning, and
// are as coarse as that type lets them be.
type Scores struct {
	// Weigh converts n scores of a row into exponentials of their differences from the
	// largest of them and top[r], which becomes that, times s[0], above 0; the sum is
	// in sum[r]. If all are -∞, so are exponentials 0. What is behind them is 0 up to
	// all, a multiple of Lanes.
	Weigh, WeighBF16 func(x unsafe.Pointer, ld, n, all, rows int, top, sum, s unsafe.Pointer)

	// Slopes converts n scores of a row into x, exponentials of their differences from
	// top[r], of which none is above it, times s[0], and times inverse[r], and dx into
	// x·(dx·s[1] - mean[r]). What is behind them is 0 up to all.
	Slopes, SlopesBF16 func(x, dx unsafe.Pointer, ld, n, all, rows int, top, inverse, mean, s unsafe.Pointer)

	// Choose puts v, of which a half has the upper 16 bits, where flags, in rows
	// step bytes apart, are 0.
	Choose, ChooseU16 func(x, flags unsafe.Pointer, ld, step, n, rows int, v float32)

	// CopyRows copies rows of n bytes, an even number, from and to bytes apart.
	CopyRows func(dst, src unsafe.Pointer, to, from, n, rows int)

	// DotRows, by the type of elements, is dst[r] = Σ x[r][i]·y[r][i] for i < n, of
	// rows ld bytes apart.
	DotRows, DotRowsF16, DotRowsBF16 func(dst, x, y unsafe.Pointer, ld, n, rows int)

	// RowScales, by the type of dst, are dst[r][i] = x[r][i]·by[r] for i < n, of
	// rows to and ld and of factors step bytes apart. RowScalesNT writes
	// with non-temporal stores, to rows of whole cache lines.
	RowScales, RowScalesNT RowScales
}

// RowScales are those by type.
type RowScales struct{ F32, F16, BF16 RowScale }

// RowScale is one of the loops that scale rows.
type RowScale func(dst, x unsafe.Pointer, to, ld, n, rows int, by unsafe.Pointer, step int)

// scores adds the loops over scores to s, where registers are enough.
func (l *loops) scores(s *Set) {
	if l.weigh != nil {
		s.Scores = &Scores{
			Weigh: l.weigh, WeighBF16: l.weighBF16, Slopes: l.slopes, SlopesBF16: l.slopesBF16,
			Choose: l.choose, ChooseU16: l.chooseU16, CopyRows: l.copyRows,
			DotRows: l.dotRows, DotRowsF16: l.dotRowsF16, DotRowsBF16: l.dotRowsBF16,
			RowScales:   RowScales{l.scaleRows, l.scaleRowsF16, l.scaleRowsBF16},
			RowScalesNT: RowScales{l.scaleRowsNT, l.scaleRowsF16NT, l.scaleRowsBF16NT},
		}
	}
}
