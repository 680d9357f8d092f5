// Package ptx writes kernels of element-wise chains as PTX, the assembly that
// NVIDIA's drivers compile for the device at hand.
//
// The operations themselves are functions in C++ (backend/cuda/kernels),
// which NVRTC has compiled to PTX and a [Library] holds; this package writes
// what is around them: which element a thread computes, where its operands
// lie, and the order of the functions.
package ptx

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Threads is the size of a block, PerThread how many elements each of its
// threads computes. They lie together where the operands can be read that many
// at a time, else Threads apart, so that neighbouring threads read neighbouring
// elements.
const (
	Threads   = 256
	PerThread = 4
)

// Chain is a kernel: Body over the elements of a box.
//
// Its parameters are the addresses of the operands in order, then of the
// results, then, if Predicated, of a 32-bit word: unless that is 0, the kernel does
// nothing.
type Chain struct {
	Name       string
	Dims       []int   // of the box, without sizes of 1; results lie in row-major order
	Strides    [][]int // of each operand, in elements for each of Dims; 0 repeats
	Body       *op.Body
	Results    []int // which instructions are results
	Predicated bool
	Group      *Group // or nil: then Dims are those of any of its boxes

	// Eight has "e4m3" or "e5m2" for results that are stored as 8-bit floats, which
	// have all of their numbers, and "" for others; nil: there is none.
	Eight []string

	// Aligned says that what is addressed begins where PerThread of its
	// elements, or 16 bytes if they are more, would lie.
	Aligned bool
}

// Blocks is the number of blocks to launch for a box of n elements.
func Blocks(n int) int { return (n + Threads*PerThread - 1) / (Threads * PerThread) }

// Module writes kernels and the functions that they call. Chains with the same text are
// one kernel, that of the first of them: names are those of each chain's kernel.
func (l *Library) Module(chains []Chain) (text string, names []string, err error) {
	used := map[string]bool{}
	var kernels strings.Builder
	written := map[string]string{} // names by the text without the name
	for i := range chains {
		var one strings.Builder
		if err := l.kernel(&one, &chains[i], used); err != nil {
			return "", nil, err
		}
		name := chains[i].Name
		key := strings.Replace(one.String(), ".entry "+name+"(", "", 1)
		if first, ok := written[key]; ok {
			names = append(names, first)
			continue
		}
		written[key] = name
		names = append(names, name)
		kernels.WriteString(one.String())
	}
	var s strings.Builder
	s.WriteString(l.header)
	done := map[string]bool{}
	for _, name := range sortedKeys(used) {
		l.declare(&s, name, done)
	}
	s.WriteString(kernels.String())
	return s.String(), names, nil
}

// writer makes one kernel.
type writer struct {
	strings.Builder
	l      *Library
	c      *Chain
	used   map[string]bool
	index  string // type of positions: u32, or u64 for large boxes
	vector bool
	regs   strings.Builder
	n      int      // registers and labels so far
	base   []string // of a group: the addresses of the operands and results
}

// reg makes a register of a class: "f32", "b32".
func (w *writer) reg(class string) string {
	w.n++
	fmt.Fprintf(&w.regs, "\t.reg .%s %%x%d;\n", class, w.n)
	return fmt.Sprintf("%%x%d", w.n)
}

func (w *writer) line(format string, v ...any) { fmt.Fprintf(w, "\t"+format+";\n", v...) }

// class is the type of the registers that hold a type.
func class(d dtype.DType) string {
	switch d {
	case dtype.Float64:
		return "f64"
	case dtype.Int64:
		return "b64"
	case dtype.Float16, dtype.BFloat16, dtype.Float32:
		return "f32"
	}
	return "b32"
}

// suffix names a type's functions: 16-bit floats are computed on as float32.
func suffix(d dtype.DType) string {
	if d == dtype.Float16 || d == dtype.BFloat16 {
		d = dtype.Float32
	}
	return d.String()
}

func (l *Library) kernel(s *strings.Builder, c *Chain, used map[string]bool) error {
	n := 1
	for _, d := range c.Dims {
		n *= d
	}
	w := &writer{l: l, c: c, used: used, index: "u32", vector: c.Vector()}
	if n > 1<<30 {
		w.index = "u64"
	}
	w.code(n)
	if err := w.compute(); err != nil {
		return fmt.Errorf("%w in chain %v", err, c.Body)
	}
	fmt.Fprintf(s, ".visible .entry %s(\n", c.Name)
	count := w.parameters()
	for i := range count {
		sep := ","
		if i == count-1 {
			sep = ""
		}
		fmt.Fprintf(s, "\t.param .u64 p%d%s\n", i, sep)
	}
	fmt.Fprintf(s, ")\n.maxntid %d, 1, 1\n{\n%s%s$done:\n\tret;\n}\n", Threads, w.regs.String(), w.String())
	return nil
}

func (w *writer) parameters() int {
	n := len(w.c.Body.Inputs) + len(w.c.Results)
	if w.c.Group != nil {
		n = w.c.Group.Addresses
	}
	if w.c.Predicated {
		n++
	}
	return n
}

// count is the number of elements: of the box, or of a group in a register.
func (w *writer) count(n int) string {
	if w.c.Group != nil {
		return "%n"
	}
	return fmt.Sprint(n)
}

// code writes what comes before the computation: the gate, and the position of
// the thread's first element, in %i.
func (w *writer) code(n int) {
	w.regs.WriteString("\t.reg .b32 %t, %b;\n\t.reg .pred %g;\n")
	fmt.Fprintf(&w.regs, "\t.reg .%s %%i;\n", w.index)
	if w.c.Predicated {
		p, f := w.reg("u64"), w.reg("b32")
		w.line("ld.param.u64 %s, [p%d]", p, w.parameters()-1)
		w.line("ld.global.u32 %s, [%s]", f, p)
		w.line("setp.ne.u32 %%g, %s, 0", f)
		w.line("@%%g bra $done")
	}
	w.line("mov.u32 %%t, %%tid.x")
	w.line("mov.u32 %%b, %%ctaid.x")
	if w.c.Group != nil {
		w.choose()
	}
	if w.vector {
		w.line("mul.lo.u32 %%t, %%t, %d", PerThread)
	}
	if w.index == "u32" {
		w.line("mad.lo.u32 %%i, %%b, %d, %%t", Threads*PerThread)
	} else {
		wide := w.reg("u64")
		w.line("cvt.u64.u32 %s, %%t", wide)
		w.line("mul.wide.u32 %%i, %%b, %d", Threads*PerThread)
		w.line("add.u64 %%i, %%i, %s", wide)
	}
	w.line("setp.ge.%s %%g, %%i, %s", w.index, w.count(n))
	w.line("@%%g bra $done")
}

// compute writes the loads of all elements, then the arithmetic, then the
// stores: a result may lie over an operand, so no load may be moved behind a
// store by the driver's compiler, and loads under way at once hide latency.
func (w *writer) compute() error {
	c := w.c
	n := 1
	for _, d := range c.Dims {
		n *= d
	}
	base := w.base
	for i := range len(c.Body.Inputs) + len(c.Results) {
		if c.Group == nil {
			base = append(base, w.reg("u64"))
			w.line("ld.param.u64 %s, [p%d]", base[i], i)
		}
	}
	per := PerThread
	if n <= Threads && !w.vector && c.Group == nil {
		per = 1
	}
	at, inside := make([]string, per), make([]string, per)
	values := make([][]string, per)
	if w.vector {
		w.loadVectors(base, values)
	} else {
		for e := range per {
			at[e] = w.reg(w.index)
			w.line("add.%s %s, %%i, %d", w.index, at[e], e*Threads)
			if e > 0 {
				inside[e] = w.reg("pred")
				w.line("setp.lt.%s %s, %s, %s", w.index, inside[e], at[e], w.count(n))
			}
			places := w.places(at[e])
			for i, d := range c.Body.Inputs {
				values[e] = append(values[e], w.load(base[i], places[i], inside[e], d))
			}
		}
	}
	results := make([][]string, per)
	for e := range per {
		for i, d := range c.Body.Inputs {
			v, err := w.unpack(values[e][i], d)
			if err != nil {
				return err
			}
			values[e][i] = v
		}
		for _, in := range c.Body.Code {
			v, err := w.instruction(in, values[e])
			if err != nil {
				return err
			}
			values[e] = append(values[e], v)
		}
		for i, r := range c.Results {
			v, err := w.pack(values[e][len(c.Body.Inputs)+r], c.Body.Code[r].DType, c.eight(i))
			if err != nil {
				return err
			}
			results[e] = append(results[e], v)
		}
	}
	if w.vector {
		for i, r := range c.Results {
			w.storeVector(base[len(c.Body.Inputs)+i], i, results, c.stored(i, r))
		}
		return nil
	}
	for e := range per {
		for i, r := range c.Results {
			w.store(base[len(c.Body.Inputs)+i], at[e], inside[e], results[e][i], c.stored(i, r))
		}
	}
	return nil
}

// eight is how result i is stored as an 8-bit float, or "".
func (c *Chain) eight(i int) string {
	if c.Eight == nil {
		return ""
	}
	return c.Eight[i]
}

// stored is a type of the size that result i, of instruction r, has in memory.
func (c *Chain) stored(i, r int) dtype.DType {
	if c.eight(i) != "" {
		return dtype.Uint8
	}
	return c.Body.Code[r].DType
}

// places writes the positions of the operands that belong to element i of the
// box; those with equal strides have one.
func (w *writer) places(i string) []string {
	known := map[string]string{}
	var list []string
	for _, s := range w.c.Strides {
		key := fmt.Sprint(s)
		if known[key] == "" {
			known[key] = w.place(i, s)
		}
		list = append(list, known[key])
	}
	return list
}

// place writes the position, in elements, of the operand with these strides
// that belongs to element i of the box.
func (w *writer) place(i string, strides []int) string {
	contiguous, n := true, 1
	for k := len(strides) - 1; k >= 0; k-- {
		contiguous = contiguous && strides[k] == n
		n *= w.c.Dims[k]
	}
	if contiguous {
		return i
	}
	sum := w.reg(w.index)
	w.line("mov.%s %s, 0", w.index, sum)
	rest := i
	for k := len(strides) - 1; k >= 0; k-- {
		if allZero(strides[:k+1]) {
			break
		}
		digit := rest
		if k > 0 {
			q, r := w.reg(w.index), w.reg(w.index)
			w.divide(q, rest, w.c.Dims[k])
			w.line("mul.lo.%s %s, %s, %d", w.index, r, q, w.c.Dims[k])
			w.line("sub.%s %s, %s, %s", w.index, r, rest, r)
			digit, rest = r, q
		}
		if strides[k] != 0 {
			w.line("mad.lo.%s %s, %s, %d, %s", w.index, sum, digit, strides[k], sum)
		}
	}
	return sum
}

func allZero(s []int) bool {
	for _, x := range s {
		if x != 0 {
			return false
		}
	}
	return true
}

// Reciprocal is what a division of numbers below 2^31 by d is made of: x/d is
// the upper half of x·magic, plus x, shifted (Granlund and Montgomery,
// "Division by Invariant Integers using Multiplication", 1994).
func Reciprocal(d int) (magic uint64, shift int) {
	shift = bits.Len(uint(d - 1))
	return (1<<32*(1<<shift-uint64(d)))/uint64(d) + 1, shift
}

// divide writes q = x/d for a constant d.
func (w *writer) divide(q, x string, d int) {
	if w.index == "u64" {
		w.line("div.u64 %s, %s, %d", q, x, d)
		return
	}
	magic, shift := Reciprocal(d)
	w.line("mul.hi.u32 %s, %s, %d", q, x, magic)
	w.line("add.u32 %s, %s, %s", q, q, x)
	w.line("shr.u32 %s, %s, %d", q, q, shift)
}

// address writes base + place times the size of an element.
func (w *writer) address(base, place string, size int) string {
	a := w.reg("u64")
	if w.index == "u32" {
		w.line("mul.wide.u32 %s, %s, %d", a, place, size)
	} else {
		w.line("mul.lo.u64 %s, %s, %d", a, place, size)
	}
	w.line("add.u64 %s, %s, %s", a, a, base)
	return a
}

// memory is the type of a load or store, and the class of its register.
func memory(d dtype.DType) (access, register string) {
	switch d.Size() {
	case 1:
		return "u8", "b32"
	case 2:
		return "u16", "b32"
	}
	return class(d), class(d)
}

func (w *writer) load(base, place, inside string, d dtype.DType) string {
	access, register := memory(d)
	v := w.reg(register)
	a := w.address(base, place, d.Size())
	if inside == "" {
		w.line("ld.global.%s %s, [%s]", access, v, a)
		return v
	}
	w.line("mov.%s %s, %s", register, v, map[string]string{"f32": "0f00000000", "f64": "0d0000000000000000", "b32": "0", "b64": "0"}[register])
	w.line("@%s ld.global.%s %s, [%s]", inside, access, v, a)
	return v
}

func (w *writer) store(base, place, inside, v string, d dtype.DType) {
	access, _ := memory(d)
	a := w.address(base, place, d.Size())
	if inside != "" {
		inside = "@" + inside + " "
	}
	w.line("%sst.global.%s [%s], %s", inside, access, a, v)
}

// unpack makes what is computed on of what lies in memory, pack the opposite.
func (w *writer) unpack(v string, d dtype.DType) (string, error) {
	switch d {
	case dtype.Float16, dtype.BFloat16, dtype.Bool:
		return w.apply("load_"+d.String(), class(d), v)
	}
	return v, nil
}

func (w *writer) pack(v string, d dtype.DType, eight string) (string, error) {
	if eight != "" {
		return w.apply("store_"+eight, "b32", v)
	}
	switch d {
	case dtype.Float16, dtype.BFloat16:
		return w.apply("store_"+d.String(), "b32", v)
	}
	return v, nil
}

// apply writes a call of a function, and returns the register of its result.
func (w *writer) apply(name, result string, args ...string) (string, error) {
	r := w.reg(result)
	w.n++
	return r, w.l.call(&w.Builder, name, r, args, w.n, w.used)
}

// round writes the rounding of a float32 to a 16-bit type.
func (w *writer) round(v string, d dtype.DType) (string, error) {
	if d == dtype.Float16 || d == dtype.BFloat16 {
		return w.apply("round_"+d.String(), "f32", v)
	}
	return v, nil
}

// instruction writes one operation of the chain.
func (w *writer) instruction(in op.Instr, values []string) (string, error) {
	inputs := w.c.Body.Inputs
	typeOf := func(i int32) dtype.DType {
		if int(i) < len(inputs) {
			return inputs[i]
		}
		return w.c.Body.Code[int(i)-len(inputs)].DType
	}
	args := make([]string, in.Op.Info().Args)
	for i := range args {
		args[i] = values[in.Args[i]]
	}
	from := typeOf(in.Args[0])
	switch in.Op {
	case op.Identity, op.ExtraOutput:
		return args[0], nil
	case op.Cast:
		return w.cast(args[0], from, in.DType)
	case op.Where:
		from = typeOf(in.Args[1])
	}
	v, err := w.apply(Name(in.Op, from), class(in.DType), args...)
	if err != nil || !in.DType.IsFloat() {
		return v, err
	}
	return w.round(v, in.DType)
}

// cast writes a conversion. To 16-bit floats there is one rounding: from wider
// types through a float32 that is rounded to odd.
func (w *writer) cast(v string, from, to dtype.DType) (string, error) {
	from16, to16 := suffix(from) != from.String(), suffix(to) != to.String()
	switch {
	case from == to || from16 && to == dtype.Float32:
		return v, nil
	case to16 && (from16 || from == dtype.Float32):
		return w.round(v, to)
	}
	if suffix(from) == suffix(to) {
		return v, nil
	}
	name := "Cast_" + suffix(from) + "_" + suffix(to)
	if to16 && (from == dtype.Float64 || from == dtype.Int32 || from == dtype.Int64) {
		name = "Cast_" + suffix(from) + "_odd"
	}
	v, err := w.apply(name, class(to), v)
	if err != nil {
		return v, err
	}
	return w.round(v, to)
}

// Name is that of the device function of an operation on a type.
func Name(c op.Code, d dtype.DType) string { return c.String() + "_" + suffix(d) }
