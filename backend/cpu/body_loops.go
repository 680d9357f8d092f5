package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// loop makes the loop of an instruction whose first argument is of type from.
func loop(ins op.Instr, from dtype.DType, dst int, args []int, through int) lanes.Loop {
	switch ins.Op {
	case op.Cast, op.Identity:
		a, to := args[0], ins.DType
		return func(r [][]byte, n int) { cast(r[dst], r[a], r[through], n, lanes.TypeOf(from), to) }
	case op.Where:
		switch lanes.TypeOf(ins.DType) {
		case lanes.F32:
			return lanes.Choose(dst, args, lanes.OfF32().Where)
		case lanes.F64:
			return lanes.Choose(dst, args, lanes.Where[float64])
		case lanes.I64:
			return lanes.Choose(dst, args, lanes.Where[int64])
		}
		return lanes.Choose(dst, args, lanes.Where[uint8])
	}
	switch lanes.TypeOf(from) {
	case lanes.F32:
		return lanes.OfF32().Bind(ins.Op, dst, args)
	case lanes.F64:
		return lanes.F64Table.Bind(ins.Op, dst, args)
	case lanes.I64:
		return lanes.I64Table.Bind(ins.Op, dst, args)
	}
	return lanes.BoolTable.Bind(ins.Op, dst, args)
}

// hasLoop reports whether there is a loop for an operation on a type.
func hasLoop(c op.Code, d dtype.DType) bool {
	if c == op.Cast || c == op.Identity || c == op.Where {
		return true
	}
	switch lanes.TypeOf(d) {
	case lanes.F32:
		return lanes.F32Table.Has(c)
	case lanes.F64:
		return lanes.F64Table.Has(c)
	case lanes.I64:
		return lanes.I64Table.Has(c)
	}
	return lanes.BoolTable.Has(c)
}

// rounding makes the loop that brings a register of instruction ins to values
// of the instruction's type, or nil where they are that already.
func rounding(ins op.Instr, dst int) lanes.Loop {
	if ins.Op == op.Cast || exact[ins.Op] {
		return nil
	}
	switch d := ins.DType; d {
	case dtype.Float16, dtype.BFloat16:
		return func(r [][]byte, n int) {
			x := dtype.View[float32](r[dst])[:n]
			lanes.RoundTo(x, x, d)
		}
	case dtype.Uint8, dtype.Int32:
		return func(r [][]byte, n int) { lanes.Wrap(dtype.View[int64](r[dst])[:n], d) }
	}
	return nil
}

// roundedLoop makes the loop of an instruction and its rounding where they are
// one, or nil.
func roundedLoop(ins op.Instr, dst int, args []int) lanes.Loop {
	v := vec.Current()
	if v == nil {
		return nil
	}
	var f vec.Binary
	switch ins.DType {
	case dtype.Float16:
		f = map[op.Code]vec.Binary{op.Add: v.AddF16, op.Sub: v.SubF16, op.Mul: v.MulF16}[ins.Op]
	case dtype.BFloat16:
		f = map[op.Code]vec.Binary{op.Add: v.AddBF16, op.Sub: v.SubBF16, op.Mul: v.MulBF16}[ins.Op]
	}
	if f == nil {
		return nil
	}
	l := &lanes.Table[float32]{Binary: map[op.Code]func(dst, a, b []float32){ins.Op: f}}
	return l.Bind(ins.Op, dst, args)
}

// exact operations give a value that one of their arguments has, or its
// negative, and so one of the type.
var exact = map[op.Code]bool{
	op.Identity: true, op.Where: true, op.Relu: true, op.Maximum: true, op.Minimum: true, op.Sign: true,
}

// slow operations are costly though they may run in 16 bits.
var slow = map[op.Code]bool{
	op.Sin: true, op.Cos: true, op.Tanh: true, op.Sigmoid: true, op.Erf: true, op.NormalCDF: true, op.NormalPDF: true,
	op.Div: true, op.Mod: true, op.Sqrt: true, op.Rsqrt: true, op.Reciprocal: true,
}

// cast converts the first n elements of register src to type to, as a
// register; through is a register for elements of that type on their way.
func cast(dst, src, through []byte, n int, from lanes.Type, to dtype.DType) {
	dom := lanes.TypeOf(to)
	dst, src = dst[:n*dom.Size()], src[:n*from.Size()]
	switch {
	case from == lanes.Bool && dom == lanes.F32:
		lanes.ToF32(dtype.View[float32](dst), src, dtype.Bool)
	case from == lanes.Bool && dom == lanes.F64:
		dtype.ToF64(dtype.View[float64](dst), src, dtype.Bool)
	case from == lanes.Bool && dom == lanes.I64:
		dtype.ToI64(dtype.View[int64](dst), src, dtype.Bool)
	case from == lanes.F32 && to.Is16():
		lanes.RoundTo(dtype.View[float32](dst), dtype.View[float32](src), to)
	case lanes.Native(to):
		castStore(dst, src, from, to)
	default:
		through = through[:n*to.Size()]
		castStore(through, src, from, to)
		lanes.Load(dst, through, to, lanes.TypeOf(to))
	}
}

// castStore converts a register to elements of another domain's type to.
func castStore(data, reg []byte, from lanes.Type, to dtype.DType) {
	n := len(data) / to.Size()
	switch from {
	case lanes.F32:
		lanes.FromF32(data, dtype.View[float32](reg)[:n], to)
	case lanes.F64:
		dtype.FromF64(data, dtype.View[float64](reg)[:n], to)
	case lanes.I64:
		dtype.FromI64(data, dtype.View[int64](reg)[:n], to)
	case lanes.Bool:
		switch {
		case to == dtype.Bool:
			for i, b := range reg[:n] {
				data[i] = lanes.Truth(b != 0)
			}
		case to.IsInt():
			for i, b := range reg[:n] {
				putInt(data, i, to, int64(lanes.Truth(b != 0)))
			}
		default:
			one := [...]uint16{dtype.Float16: 0x3c00, dtype.BFloat16: 0x3f80}[to]
			for i, b := range reg[:n] {
				dtype.View[uint16](data)[i] = one * uint16(lanes.Truth(b != 0))
			}
		}
	}
}

func putInt(data []byte, i int, d dtype.DType, x int64) {
	if d == dtype.Uint8 {
		data[i] = uint8(x)
		return
	}
	dtype.View[int32](data)[i] = int32(x)
}
