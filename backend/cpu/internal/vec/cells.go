package vec

import "unsafe"

// Operand is a matrix that a [CellLoop] reads or writes: the address of its first row, and the
// bytes between rows.
type Operand struct {
	P      unsafe.Pointer
	Stride int
}

// CellLoop computes the functions of a recurrent cell on rows of n elements, a
// multiple of Set.CellLanes. It changes the list of operands.
type CellLoop func(operands []Operand, rows, n int)

// Cells is the recurrent cells whose functions are computed in one pass. Sums, states and
// their gradients are float32; stored values have the stored type. Functions are within 16
// units in the last place of float32; where bfloat16 is stored, within 2⁻¹² of the result.
type Cells struct {
	// LSTM has the operands zi, zf, zg, zo, c, next, then, stored, i, f, g, o, h,
	// state.
	LSTM CellLoop
	// LSTMGrad has, stored, i, f, g, o, c, last, then dh and dc, then, stored, di,
	// df, dg, do.
	LSTMGrad CellLoop
	// GRU has zz, zr, zg, zq, then, stored, last, z, r, g, q, h.
	GRU CellLoop
	// GRUGrad has, stored, z, r, g, q, last, then dh and pass, then, stored, dz, dr, dg, dq.
	// Pass is the part of dh that does not go through the sums.
	GRUGrad CellLoop
}

// upward reverses the rows of operands. A loop goes from the last row to the first, and so it
// reads memory upwards, as the hardware prefetcher does.
func upward(operands []Operand, rows int) {
	for i := range operands {
		o := &operands[i]
		o.P, o.Stride = unsafe.Add(o.P, (rows-1)*o.Stride), -o.Stride
	}
}

func cellsOf(lstm, lstmGrad, gru, gruGrad func(p unsafe.Pointer, rows, n int)) Cells {
	loop := func(f func(p unsafe.Pointer, rows, n int)) CellLoop {
		if f == nil {
			return nil
		}
		return func(operands []Operand, rows, n int) {
			if rows > 0 && n > 0 {
				upward(operands, rows)
				f(data(operands), rows, n)
			}
		}
	}
	return Cells{loop(lstm), loop(lstmGrad), loop(gru), loop(gruGrad)}
}
