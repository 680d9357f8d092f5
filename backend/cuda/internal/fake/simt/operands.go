package simt

import (
	"fmt"
	"slices"
	"strings"
)

// access reads what ld and st have in common: the state space, the number of
// elements and their type.
func access(in *instruction, name string) (elements int, typ string, volatile bool, err error) {
	elements = 1
	parts := strings.Split(name, ".")[1:]
	for i, p := range parts {
		switch {
		case p == "volatile" && i == 0:
			volatile = true
		case p == "global":
			in.space = global
		case p == "shared":
			in.space = shared
		case p == "local":
			in.space = local
		case p == "param":
			in.space = param
		case p == "nc" && in.space == global:
		case p == "v2" && i == len(parts)-2:
			elements = 2
		case p == "v4" && i == len(parts)-2:
			elements = 4
		case i == len(parts)-1 && sizeOf(p) > 0:
			typ, in.bytes = p, sizeOf(p)
		default:
			return 0, "", false, errUnknown
		}
	}
	if typ == "" || elements*in.bytes > 16 {
		return 0, "", false, errUnknown
	}
	return elements, typ, volatile, nil
}

// Accesses that wait for others are volatile.
const ordered uint8 = 1

func (b *builder) load(in instruction, name string, args []string) error {
	n, typ, volatile, err := access(&in, name)
	if err != nil || len(args) != 2 {
		return errUnknown
	}
	if in.space == param {
		return b.loadParameter(in, typ, args)
	}
	in.kind, in.signed = loads, typ[0] == 's'
	if volatile {
		in.how = ordered
	}
	names := elements(args[0])
	if len(names) != n {
		return fmt.Errorf("%d registers, want %d", len(names), n)
	}
	for i, s := range names {
		d, err := b.destination(s)
		if err != nil {
			return err
		}
		in.mask = maskOf(d.bytes)
		if i == 0 {
			in.d = d.number
		} else {
			in.list = append(in.list, d.number)
		}
	}
	in.a, in.offset, err = b.address(args[1])
	b.add(in)
	return err
}

// loadParameter is a move: parameters lie in registers, or are constants.
func (b *builder) loadParameter(in instruction, typ string, args []string) error {
	d, err := b.destination(args[0])
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(strings.Trim(args[1], "[]"), "+0")
	in.kind, in.d, in.space = computes, d.number, generic
	if in.a, err = b.parameter(name); err != nil {
		return err
	}
	sign := "u"
	if typ[0] == 's' {
		sign = "s"
	}
	in.f = between(fmt.Sprint(sign, 8*d.bytes), fmt.Sprint(sign, 8*in.bytes)).f
	b.add(in)
	return nil
}

func (b *builder) store(in instruction, name string, args []string) error {
	n, _, volatile, err := access(&in, name)
	if err != nil || len(args) != 2 {
		return errUnknown
	}
	if in.space == param {
		in.kind, in.space = computes, generic
		if in.d, err = b.parameter(strings.TrimSuffix(strings.Trim(args[0], "[]"), "+0")); err != nil {
			return err
		}
		if in.d < 0 {
			return fmt.Errorf("a parameter of a kernel is written")
		}
		bits := fmt.Sprint("u", 8*in.bytes)
		in.f = between(bits, bits).f
		in.a, err = b.operand(args[1])
		b.add(in)
		return err
	}
	in.kind = stores
	if volatile {
		in.how = ordered
	}
	if in.a, in.offset, err = b.address(args[0]); err != nil {
		return err
	}
	names := elements(args[1])
	if len(names) != n {
		return fmt.Errorf("%d registers, want %d", len(names), n)
	}
	for _, s := range names {
		v, err := b.operand(s)
		if err != nil {
			return err
		}
		in.list = append(in.list, v)
	}
	b.add(in)
	return nil
}

// Atomic operations.
const (
	exchange uint8 = iota
	compareExchange
)

func (b *builder) atomic(in instruction, name string, args []string) error {
	switch {
	case name == "atom.global.exch.b32" && len(args) == 3:
		in.how = exchange
	case name == "atom.global.cas.b32" && len(args) == 4:
		in.how = compareExchange
	default:
		return errUnknown
	}
	in.kind, in.space, in.bytes = swaps, global, 4
	d, err := b.destination(args[0])
	if err != nil {
		return err
	}
	in.d = d.number
	if in.a, in.offset, err = b.address(args[1]); err != nil {
		return err
	}
	if in.b, err = b.operand(args[2]); err == nil && len(args) == 4 {
		in.c, err = b.operand(args[3])
	}
	b.add(in)
	return err
}

func (b *builder) barrier(in instruction, name string, args []string) error {
	switch {
	case name == "bar.sync" && slices.Equal(args, []string{"0"}):
		in.kind = barrier
		b.add(in)
		return nil
	case name == "bar.warp.sync" && len(args) == 1:
		in.kind = converge
		var err error
		in.c, err = b.operand(args[0])
		b.add(in)
		return err
	}
	return errUnknown
}

// fence is membar: accesses of one thread are in order here.
func (b *builder) fence(_ instruction, name string, _ []string) error {
	if name != "membar.gl" && name != "membar.cta" {
		return errUnknown
	}
	return nil
}

// Modes of shfl.sync.
const (
	shuffleUp uint8 = iota
	shuffleDown
	shuffleXor
	shuffleIndex
)

func (b *builder) shuffle(in instruction, name string, args []string) error {
	how, ok := map[string]uint8{"shfl.sync.up.b32": shuffleUp, "shfl.sync.down.b32": shuffleDown, "shfl.sync.bfly.b32": shuffleXor, "shfl.sync.idx.b32": shuffleIndex}[name]
	if !ok || len(args) != 5 {
		return errUnknown
	}
	in.kind, in.how = shuffles, how
	d, p, two := strings.Cut(args[0], "|")
	r, err := b.destination(d)
	if err != nil {
		return err
	}
	in.d = r.number
	if two {
		if in.p, err = b.predicate(p); err != nil {
			return err
		}
	}
	for i, to := range []*int32{&in.a, &in.b, nil, &in.c} {
		o, err := b.operand(args[i+1])
		if err != nil {
			return err
		}
		if to == nil {
			in.list = []int32{o}
		} else {
			*to = o
		}
	}
	b.add(in)
	return nil
}

func (b *builder) matrix(in instruction, name string, args []string) error {
	if len(args) != 2 {
		return errUnknown
	}
	switch name {
	case "ldmatrix.sync.aligned.m8n8.x4.shared.b16":
	case "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16":
		in.how = 1
	default:
		return errUnknown
	}
	in.kind, in.space, in.bytes = matrices, shared, 2
	names := elements(args[0])
	if len(names) != 4 {
		return fmt.Errorf("%d registers, want 4", len(names))
	}
	for _, s := range names {
		d, err := b.destination(s)
		if err != nil {
			return err
		}
		in.list = append(in.list, d.number)
	}
	var err error
	in.a, in.offset, err = b.address(args[1])
	b.add(in)
	return err
}

// Types of mma.sync.
const (
	mmaF16 uint8 = iota
	mmaBF16
	mmaTF32
)

func (b *builder) mma(in instruction, name string, args []string) error {
	how, ok := map[string]uint8{
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32":   mmaF16,
		"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": mmaBF16,
		"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32":  mmaTF32,
	}[name]
	if !ok || len(args) != 4 {
		return errUnknown
	}
	in.kind, in.how = multiply, how
	for i, n := range []int{4, 4, 2, 4} { // D, A, B, C
		names := elements(args[i])
		if len(names) != n {
			return fmt.Errorf("operand %d has %d registers, want %d", i, len(names), n)
		}
		for _, s := range names {
			r, err := b.operand(s)
			if err != nil {
				return err
			}
			if i == 0 && r < 0 {
				return fmt.Errorf("%q is no register", s)
			}
			in.list = append(in.list, r)
		}
	}
	b.add(in)
	return nil
}

// copy is cp.async: how many bytes there are may be in a register, the rest are zeros.
func (b *builder) copy(in instruction, name string, args []string) error {
	switch {
	case name == "cp.async.commit_group" && len(args) == 0:
		in.kind = commits
		b.add(in)
		return nil
	case name == "cp.async.wait_group" && len(args) == 1:
		in.kind = waits
		n, err := number(args[0])
		in.offset = n
		b.add(in)
		return err
	case name == "cp.async.wait_all" && len(args) == 0:
		in.kind = waits
		in.how = 1 // also what is not committed
		b.add(in)
		return nil
	case (name == "cp.async.ca.shared.global" || name == "cp.async.cg.shared.global") && (len(args) == 3 || len(args) == 4):
	default:
		return errUnknown
	}
	n, err := number(args[2])
	if err != nil || n != 16 && (name == "cp.async.cg.shared.global" || n != 4 && n != 8) {
		return fmt.Errorf("copies of %s bytes", args[2])
	}
	in.kind, in.space, in.bytes = copies, shared, int(n)
	if in.a, in.offset, err = b.address(args[0]); err != nil {
		return err
	}
	var offset uint64
	if in.b, offset, err = b.address(args[1]); err != nil {
		return err
	}
	if offset != 0 {
		return errUnknown
	}
	in.c = b.constant(constant{n, -1})
	if len(args) == 4 {
		in.c, err = b.operand(args[3])
	}
	b.add(in)
	return err
}
