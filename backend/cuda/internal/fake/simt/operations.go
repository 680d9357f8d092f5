package simt

import (
	"fmt"
	"slices"
	"strings"
)

// decoders are the instructions that are no plain function of lanes, by the first
// part of their name.
var decoders map[string]func(b *builder, in instruction, name string, args []string) error

func init() {
	decoders = map[string]func(b *builder, in instruction, name string, args []string) error{
		"mov": (*builder).move, "setp": (*builder).setp, "selp": (*builder).selp, "bfi": (*builder).insert,
		"and": (*builder).logic, "or": (*builder).logic, "xor": (*builder).logic, "not": (*builder).logic,
		"add": (*builder).carry, "addc": (*builder).carry, "sub": (*builder).carry, "subc": (*builder).carry,
		"mad": (*builder).carry, "madc": (*builder).carry,
		"ld": (*builder).load, "st": (*builder).store, "atom": (*builder).atomic, "bra": (*builder).branch,
		"ret": (*builder).leave, "exit": (*builder).leave, "call": (*builder).call,
		"bar": (*builder).barrier, "membar": (*builder).fence, "shfl": (*builder).shuffle,
		"ldmatrix": (*builder).matrix, "mma": (*builder).mma, "cp": (*builder).copy,
	}
}

// vectors are the instructions that are plain functions of lanes.
var vectors = func() map[string]operation {
	all := map[string]operation{}
	for _, m := range []map[string]operation{integers, floats, conversions} {
		for name, o := range m {
			all[name] = o
		}
	}
	return all
}()

var errUnknown = fmt.Errorf("the interpreter does not have this instruction")

// instruction decodes one instruction, with its guard already read.
func (b *builder) instruction(in instruction, name string, args []string) error {
	if slices.Contains(args, "") {
		return fmt.Errorf("an operand is missing")
	}
	first, _, _ := strings.Cut(name, ".")
	o, ok := vectors[name]
	special := first == "mov" && len(args) == 2 && (isSpecial(args[1]) || args[0][0] == '{' || args[1][0] == '{')
	if !ok || special {
		if in.guard != none && slices.Contains([]string{"bar", "shfl", "ldmatrix", "mma"}, first) {
			return fmt.Errorf("a guard before what all lanes do together")
		}
		if d := decoders[first]; d != nil {
			return d(b, in, name, args)
		}
		return errUnknown
	}
	if len(args) != o.args+1 {
		return fmt.Errorf("%d operands, want %d", len(args), o.args+1)
	}
	in.kind, in.f = computes, o.f
	return b.finish(in, args)
}

// finish reads a destination and up to three operands.
func (b *builder) finish(in instruction, args []string) error {
	d, err := b.destination(args[0])
	if err != nil {
		return err
	}
	in.d = d.number
	for i, to := range []*int32{&in.a, &in.b, &in.c} {
		if i+1 < len(args) {
			if *to, err = b.operand(args[i+1]); err != nil {
				return err
			}
		}
	}
	b.add(in)
	return nil
}

// specials are the registers that tell a thread where it is.
var specials = []string{"%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z",
	"%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%warpid"}

func isSpecial(s string) bool { return slices.Contains(specials, s) }

// move is mov of predicates, special registers, and several registers at once.
func (b *builder) move(in instruction, name string, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%d operands, want 2", len(args))
	}
	switch {
	case name == "mov.pred":
		return b.logic(in, name, args)
	case isSpecial(args[1]):
		in.kind, in.how = reads, uint8(slices.Index(specials, args[1]))
		return b.finish(in, args[:1])
	case args[1][0] == '{':
		in.kind = packs
		if err := b.list(&in, args[1], sizeOf(lastPart(name))); err != nil {
			return err
		}
		return b.finish(in, args[:1])
	case args[0][0] == '{':
		in.kind = unpacks
		if err := b.list(&in, args[0], sizeOf(lastPart(name))); err != nil {
			return err
		}
		var err error
		in.a, err = b.operand(args[1])
		b.add(in)
		return err
	}
	return errUnknown
}

// list reads the parts of a register of a number of bytes.
func (b *builder) list(in *instruction, s string, bytes int) error {
	parts := elements(s)
	if bytes == 0 || bytes%len(parts) != 0 {
		return fmt.Errorf("%d parts of %d bytes", len(parts), bytes)
	}
	in.bytes = bytes / len(parts)
	for _, p := range parts {
		r, err := b.operand(p)
		if p == "_" && in.kind == unpacks {
			r, err = b.newRegister(), nil
		}
		if err != nil {
			return err
		}
		if r < 0 && in.kind == unpacks {
			return fmt.Errorf("%q is no register", p)
		}
		in.list = append(in.list, r)
	}
	return nil
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// How predicates are computed.
const (
	predicateMove uint8 = iota
	predicateNot
	predicateAnd
	predicateOr
	predicateXor
	predicateSet // to how many lanes a has: mov of a constant
)

func (b *builder) logic(in instruction, name string, args []string) error {
	how := map[string]uint8{"mov.pred": predicateMove, "not.pred": predicateNot, "and.pred": predicateAnd, "or.pred": predicateOr, "xor.pred": predicateXor}
	h, ok := how[name]
	if !ok {
		return errUnknown
	}
	in.kind, in.how = predicates, h
	want := 3
	if h == predicateMove || h == predicateNot {
		want = 2
	}
	if len(args) != want {
		return fmt.Errorf("%d operands, want %d", len(args), want)
	}
	var err error
	if in.p, err = b.predicate(args[0]); err != nil {
		return err
	}
	if u, wrong := number(args[1]); h == predicateMove && wrong == nil {
		in.how = predicateSet
		if u != 0 {
			in.target = 1
		}
		b.add(in)
		return nil
	}
	if in.q, err = b.predicate(args[1]); err == nil && want == 3 {
		in.r, err = b.predicate(args[2])
	}
	b.add(in)
	return err
}

func (b *builder) setp(in instruction, name string, args []string) error {
	c, ok := comparisons[name]
	if !ok || len(args) != 3 {
		return errUnknown
	}
	in.kind, in.compare = compares, c
	var err error
	if in.p, err = b.predicate(args[0]); err != nil {
		return err
	}
	if in.a, err = b.operand(args[1]); err == nil {
		in.b, err = b.operand(args[2])
	}
	b.add(in)
	return err
}

// maskOf is the mask of a type's bits.
func maskOf(bytes int) uint64 { return ^uint64(0) >> (64 - 8*bytes) }

func (b *builder) selp(in instruction, name string, args []string) error {
	bytes := sizeOf(lastPart(name))
	if strings.Count(name, ".") != 1 || bytes == 0 || len(args) != 4 {
		return errUnknown
	}
	in.kind, in.mask = selects, maskOf(bytes)
	var err error
	if in.q, err = b.predicate(args[3]); err != nil {
		return err
	}
	return b.finish(in, args[:3])
}

// insert is bfi with a constant place.
func (b *builder) insert(in instruction, name string, args []string) error {
	bytes := map[string]uint{"bfi.b32": 4, "bfi.b64": 8}[name]
	if bytes == 0 || len(args) != 5 {
		return errUnknown
	}
	position, err := number(args[3])
	if err != nil {
		return errUnknown
	}
	count, err := number(args[4])
	if err != nil {
		return errUnknown
	}
	mask := maskOf(int(bytes))
	in.kind, in.f = computes, func(d, a, b, _ *lanes) {
		for l := range d {
			d[l] = insert(a[l]&mask, b[l]&mask, uint(position), uint(count), 8*bytes) & mask
		}
	}
	return b.finish(in, args[:3])
}

// carryOps are the instructions that read or write the carry.
const (
	carryOut  = 1 << iota // .cc
	carryIn               // addc
	carrySub              // sub
	carryLow              // mad.lo
	carryHigh             // mad.hi
)

func (b *builder) carry(in instruction, name string, args []string) error {
	how, ok := map[string]uint8{
		"add.cc.u32": carryOut, "addc.u32": carryIn, "addc.cc.u32": carryIn | carryOut,
		"sub.cc.u32": carrySub | carryOut, "subc.u32": carrySub | carryIn, "subc.cc.u32": carrySub | carryIn | carryOut,
		"mad.lo.cc.u32": carryLow | carryOut, "madc.lo.u32": carryLow | carryIn, "madc.lo.cc.u32": carryLow | carryIn | carryOut,
		"mad.hi.cc.u32": carryHigh | carryOut, "madc.hi.u32": carryHigh | carryIn, "madc.hi.cc.u32": carryHigh | carryIn | carryOut,
	}[name]
	want := 3
	if how&(carryLow|carryHigh) != 0 {
		want = 4
	}
	if !ok || len(args) != want {
		return errUnknown
	}
	in.kind, in.how = carries, how
	return b.finish(in, args)
}

func (b *builder) branch(in instruction, name string, args []string) error {
	if name != "bra" && name != "bra.uni" || len(args) != 1 {
		return errUnknown
	}
	in.kind = branches
	b.jumps = append(b.jumps, jump{len(b.code), args[0], int(in.line)})
	b.add(in)
	return nil
}

// leave is the end of a thread, or of a function: a branch to its end.
func (b *builder) leave(in instruction, name string, _ []string) error {
	switch {
	case b.f.entry || name == "exit":
		in.kind = exits
	case name == "ret":
		in.kind = branches
		b.out = append(b.out, int32(len(b.code)))
	default:
		return errUnknown
	}
	b.add(in)
	return nil
}

// call writes a function into the kernel.
func (b *builder) call(in instruction, name string, args []string) error {
	if name != "call" && name != "call.uni" || len(args) < 2 || in.guard != none {
		return errUnknown
	}
	inside := func(s string) []string { return split(strings.TrimSuffix(strings.TrimPrefix(s, "("), ")")) }
	result := int32(none)
	if args[0][0] == '(' {
		names := inside(args[0])
		if len(names) != 1 {
			return errUnknown
		}
		r, err := b.parameter(names[0])
		if err != nil {
			return err
		}
		result, args = r, args[1:]
	}
	f := b.m.functions[args[0]]
	if f == nil || f.entry {
		return fmt.Errorf("no function %s", args[0])
	}
	var values []string
	if len(args) > 1 {
		values = inside(args[1])
	}
	if len(values) != len(f.params) {
		return fmt.Errorf("%d arguments for %s, want %d", len(values), f.name, len(f.params))
	}
	params := map[string]int32{}
	for i, p := range f.params {
		r, err := b.parameter(values[i])
		if err != nil {
			return err
		}
		params[p.name] = r
	}
	return b.function(f, params, result)
}

// parameter finds a .param variable: of a call, of the function, or its result.
func (b *builder) parameter(name string) (int32, error) {
	for i := len(b.scopes) - 1; i >= 0; i-- {
		if r, ok := b.scopes[i].params[name]; ok {
			return r, nil
		}
	}
	if r, ok := b.params[name]; ok {
		return r, nil
	}
	if name == b.f.result && name != "" && b.result != none {
		return b.result, nil
	}
	return 0, fmt.Errorf("no parameter %q", name)
}
