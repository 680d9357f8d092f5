package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// loop makes the loop of an instruction whose first argument is of type from.
func loop(ins op.Instr, from dtype.DType, dst int, args []int, through int) exec {
	switch ins.Op {
	case op.Cast, op.Identity:
		a, to := args[0], ins.DType
		return func(r [][]byte, n int) { cast(r[dst], r[a], r[through], n, domainOf(from), to) }
	case op.Where:
		switch domainOf(ins.DType) {
		case inF32:
			return choose(dst, args, ofF32().where)
		case inF64:
			return choose(dst, args, where[float64])
		case inI64:
			return choose(dst, args, where[int64])
		}
		return choose(dst, args, where[uint8])
	}
	switch domainOf(from) {
	case inF32:
		return ofF32().exec(ins.Op, dst, args)
	case inF64:
		return loopsF64.exec(ins.Op, dst, args)
	case inI64:
		return loopsI64.exec(ins.Op, dst, args)
	}
	return loopsBool.exec(ins.Op, dst, args)
}

// hasLoop reports whether there is a loop for an operation on a type.
func hasLoop(c op.Code, d dtype.DType) bool {
	if c == op.Cast || c == op.Identity || c == op.Where {
		return true
	}
	switch domainOf(d) {
	case inF32:
		return loopsF32.has(c)
	case inF64:
		return loopsF64.has(c)
	case inI64:
		return loopsI64.has(c)
	}
	return loopsBool.has(c)
}

// rounding makes the loop that brings a register of instruction ins to values
// of the instruction's type, or nil where they are that already.
func rounding(ins op.Instr, dst int) exec {
	if ins.Op == op.Cast || exact[ins.Op] {
		return nil
	}
	switch d := ins.DType; d {
	case dtype.Float16, dtype.BFloat16:
		return func(r [][]byte, n int) {
			x := dtype.View[float32](r[dst])[:n]
			roundTo(x, x, d)
		}
	case dtype.Uint8, dtype.Int32:
		return func(r [][]byte, n int) { wrap(dtype.View[int64](r[dst])[:n], d) }
	}
	return nil
}

// roundedLoop makes the loop of an instruction and its rounding where they are
// one, or nil.
func roundedLoop(ins op.Instr, dst int, args []int) exec {
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
	l := &loops[float32]{binary: map[op.Code]func(dst, a, b []float32){ins.Op: f}}
	return l.exec(ins.Op, dst, args)
}

// wrap brings each element into the range of an integer type, modulo its size.
func wrap(x []int64, d dtype.DType) {
	switch d {
	case dtype.Uint8:
		for i, v := range x {
			x[i] = int64(uint8(v))
		}
	case dtype.Int32:
		for i, v := range x {
			x[i] = int64(int32(v))
		}
	}
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
func cast(dst, src, through []byte, n int, from domain, to dtype.DType) {
	dom := domainOf(to)
	dst, src = dst[:n*dom.size()], src[:n*from.size()]
	switch {
	case from == inBool && dom == inF32:
		toF32(dtype.View[float32](dst), src, dtype.Bool)
	case from == inBool && dom == inF64:
		dtype.ToF64(dtype.View[float64](dst), src, dtype.Bool)
	case from == inBool && dom == inI64:
		dtype.ToI64(dtype.View[int64](dst), src, dtype.Bool)
	case from == inF32 && to.Is16():
		roundTo(dtype.View[float32](dst), dtype.View[float32](src), to)
	case native(to):
		castStore(dst, src, from, to)
	default:
		through = through[:n*to.Size()]
		castStore(through, src, from, to)
		load(dst, through, to, domainOf(to))
	}
}

// castStore converts a register to elements of another domain's type to.
func castStore(data, reg []byte, from domain, to dtype.DType) {
	n := len(data) / to.Size()
	switch from {
	case inF32:
		fromF32(data, dtype.View[float32](reg)[:n], to)
	case inF64:
		dtype.FromF64(data, dtype.View[float64](reg)[:n], to)
	case inI64:
		dtype.FromI64(data, dtype.View[int64](reg)[:n], to)
	case inBool:
		switch {
		case to == dtype.Bool:
			for i, b := range reg[:n] {
				data[i] = truth(b != 0)
			}
		case to.IsInt():
			for i, b := range reg[:n] {
				putInt(data, i, to, int64(truth(b != 0)))
			}
		default:
			one := [...]uint16{dtype.Float16: 0x3c00, dtype.BFloat16: 0x3f80}[to]
			for i, b := range reg[:n] {
				dtype.View[uint16](data)[i] = one * uint16(truth(b != 0))
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
