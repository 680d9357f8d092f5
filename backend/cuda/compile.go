//go:build cuda && linux && amd64

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/ptx"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// builder makes a program.
type builder struct {
	p         *Program
	pos       map[*ir.Value]int
	chains    []ptx.Chain
	pending   []pending
	scratch   int                   // bytes wanted behind everything else
	base      int                   // where scratch begins
	reserved  int                   // bytes of it that hold a result of the value being built
	temporary map[*ir.Value]scratch // such results
	bytes     int                   // of the memory so far
	wholes    []*ir.Value           // folds that wait for others: see foldWhole
	updates   []update              // chains that do: see update
	early     []update              // chains whose results only those read: see waitsEarly
	rowSums   []rowSum              // sums over rows that do
	drops     []*ir.Value           // masks of dropout that do: see mask
	users     map[*ir.Value][]*ir.Value
	tables    []table

	sums     map[*ir.Value]*droppedSum // that layer normalizations compute
	computed map[*ir.Value]bool        // values whose calls were made with another one's

	partials, mostPartials int                     // bytes of partialSums in use, and at most
	begun                  map[*ir.Value]*exchange // by the value that begins it

	eight   map[*ir.Value]eightProduct // products of 8-bit floats
	packed  map[*ir.Value]packing      // what is stored in 8 bits for those alone
	current *eightProduct              // the one being built
}

// table is an array of numbers that kernels read: parameters that are known when
// the program is made. It lies behind the constants.
type table struct {
	at    int
	words []any
}

// tableAt is a parameter: the address of a table.
type tableAt int

// tableOf makes a table.
func (b *builder) tableOf(words []any) tableAt {
	t := table{aligned(b.bytes), words}
	b.bytes = t.at + 8*len(words)
	b.tables = append(b.tables, t)
	return tableAt(t.at)
}

// pending is a call before its kernel is loaded.
type pending struct {
	name        string
	chain       bool
	grid, block [3]int
	args        []any
	value       int
	product     runner // instead of a kernel
	exchange    *exchange
	waits       bool // for the exchange; else it begins
	moved       int  // bytes that it reads and writes, if those are not values
}

// bytes is the size of what a call reads and writes.
func (c pending) bytes() int {
	n := c.moved
	if n > 0 {
		return n
	}
	for i, a := range c.args {
		if v, ok := a.(*ir.Value); ok && !slices.Contains(c.args[:i], a) {
			n += v.Type.Bytes()
		}
	}
	return n
}

// scratch is a parameter: an address in working memory of the call.
type scratch int

// fault is a parameter: the address of the word for indices out of range.
type faultWord struct{}

func compile(d *Device, g *ir.Graph) (made *Program, err error) {
	p := &Program{device: d, graph: g, ends: make([]int, len(g.Values)), static: map[*ir.Value]int{}}
	defer func() {
		if err != nil {
			p.forget()
		}
	}()
	b := &builder{p: p, pos: make(map[*ir.Value]int, len(g.Values)), temporary: map[*ir.Value]scratch{}, begun: map[*ir.Value]*exchange{}, sums: map[*ir.Value]*droppedSum{}, computed: map[*ir.Value]bool{}, users: map[*ir.Value][]*ir.Value{}}
	b.bytes = aligned(g.ArenaBytes)
	var constants []byte
	for i, v := range g.Values {
		b.pos[v] = i
		for _, a := range v.Args {
			b.users[a] = append(b.users[a], v)
		}
		switch v.Slot.Place {
		case ir.Nowhere:
			return nil, fmt.Errorf("cuda: Compile: value %d (%v) has no place; the graph was not optimized", i, v.Op)
		case ir.Input:
			p.binds = append(p.binds, bind{v.Slot.Index, v.Type.Bytes(), false, slices.Contains(g.Donated, v.Slot.Index)})
		case ir.Output:
			p.binds = append(p.binds, bind{v.Slot.Index, v.Type.Bytes(), true, true})
		}
		if v.Op == op.Const {
			p.static[v] = b.bytes + len(constants)
			constants = append(constants, constant(v)...)
			constants = append(constants, make([]byte, aligned(len(constants))-len(constants))...)
		} else if v.View() && v.Slot.Place == ir.Static {
			p.static[v] = p.static[v.Args[0]]
		}
	}
	constantsAt := b.bytes
	b.bytes += len(constants)
	b.findEight(g)
	for i, v := range g.Values {
		if v.Op != op.Param && v.Op != op.Const && !v.View() && !v.WrittenByArg() && !b.computed[v] {
			if err := b.value(v); err != nil {
				return nil, err
			}
		}
		p.ends[i] = len(b.pending)
	}
	b.flushMasks()
	b.flushUpdates()
	if d.broken != nil {
		return nil, d.broken
	}
	b.base = aligned(b.bytes)
	p.bytes = max(1, b.base+aligned(b.scratch)+b.mostPartials)
	what := fmt.Sprintf("the working memory of a program (%d bytes for its values, %d for constants and kernels): ", g.ArenaBytes, p.bytes-g.ArenaBytes)
	if p.memory, err = d.take(p.bytes, what); err != nil {
		return nil, err
	}
	p.binds = merged(p.binds)
	if err := b.finish(constants, constantsAt); err != nil {
		return nil, errors.Join(err, p.release())
	}
	return p, nil
}

// merged leaves one of the binds for each buffer, with the most bytes.
func merged(binds []bind) []bind {
	var list []bind
	at := map[bind]int{}
	for _, b := range binds {
		key := bind{buffer: b.buffer, out: b.out}
		if i, ok := at[key]; ok {
			list[i].bytes = max(list[i].bytes, b.bytes)
			continue
		}
		at[key] = len(list)
		list = append(list, b)
	}
	return list
}

func aligned(n int) int { return (n + 255) &^ 255 }

// constant returns the elements of a Const.
func constant(v *ir.Value) []byte {
	data := make([]byte, v.Type.Bytes())
	if v.Attr.Data != nil {
		copy(data, v.Attr.Data)
		return data
	}
	size := v.Type.DType.Size()
	for at := 0; at < len(data); at += size {
		if at == 0 {
			dtype.FromF64(data[:size], []float64{v.Attr.Value}, v.Type.DType)
		} else {
			copy(data[at:], data[:size])
		}
	}
	return data
}

// value makes the calls that compute v.
func (b *builder) value(v *ir.Value) error {
	t := v.Type.DType
	if len(v.Args) > 0 {
		t = v.Args[0].Type.DType
	}
	if v.Type.DType == dtype.Int8 { // there are no kernels on 8-bit integers
		t = dtype.Int8
	}
	if !b.p.device.Supports(v.Op, t) {
		return &backend.UnsupportedError{Device: b.p.device.Name(), Op: v.Op, DType: t, Path: v.Path}
	}
	if v.Split && !b.p.device.SplitsResults(v.Op) {
		return fmt.Errorf("cuda: Compile: value %d (%v) writes its results one by one; see driver.ResultSplitter", b.pos[v], v.Op)
	}
	if v.Slot.Place == ir.Static {
		return fmt.Errorf("cuda: Compile: value %d (%v) lies among the constants", b.pos[v], v.Op)
	}
	b.meetWaiting(v)
	if v.Op.Info().Class == op.Elementwise {
		return b.elementwise(v)
	}
	if e, ok := b.eight[v]; ok {
		return b.eightValue(v, e)
	}
	if v.Attr.Body != nil && v.Op.Info().Epilogue {
		return b.followed(v)
	}
	return builders[v.Op](b, v)
}

// call appends a call of a kernel. Arguments are *ir.Value, int, uint64,
// float64, scratch, partialSums, tableAt, behind and faultWord.
func (b *builder) call(v *ir.Value, name string, grid, block [3]int, args ...any) {
	b.pending = append(b.pending, pending{name: name, grid: grid, block: block, args: args, value: b.pos[v]})
}

// each calls a kernel that goes through n elements with as many threads.
func (b *builder) each(v *ir.Value, name string, n int, args ...any) {
	if n > 0 {
		b.call(v, name, [3]int{min((n+255)/256, 1<<20), 1, 1}, [3]int{256, 1, 1}, args...)
	}
}

// finish loads the kernels and writes the list of calls.
func (b *builder) finish(constants []byte, at int) error {
	p := b.p
	shared := map[string]string{} // kernels of chains with the text of another one
	if len(b.chains) > 0 {
		text, names, err := p.device.library.Module(b.chains)
		if err != nil {
			return err
		}
		if p.chains, err = api.Load(text); err != nil {
			return fmt.Errorf("cuda: Compile: %w\n%s", err, text)
		}
		for i, c := range b.chains {
			shared[c.Name] = names[i]
		}
	}
	moved := 0
	for _, c := range b.pending {
		moved += c.bytes()
		if c.product != nil {
			p.products = append(p.products, productCall{len(p.calls), len(p.words), c.product})
			p.calls, p.names = append(p.calls, api.Launch{}), append(p.names, c.name)
			for _, a := range c.args {
				p.words = append(p.words, b.word(a))
			}
			continue
		}
		if c.waits {
			p.exchangeCalls = append(p.exchangeCalls, exchangeCall{len(p.calls), c.exchange, true})
			p.calls, p.names = append(p.calls, api.Launch{}), append(p.names, "AllReduceDone")
			continue
		}
		if x := c.exchange; x != nil {
			p.exchangeCalls = append(p.exchangeCalls, exchangeCall{len(p.calls), x, false})
			x.call, x.first = len(p.calls), len(p.words)
			if c.name != "" {
				f, err := p.device.function(c.name)
				if err != nil {
					return err
				}
				x.sum = api.NewLaunch(f, c.grid, c.block, 0, x.first, wordSums)
			}
			p.calls, p.names = append(p.calls, api.Launch{}), append(p.names, "AllReduceStart")
			for _, a := range c.args {
				p.words = append(p.words, b.word(a))
			}
			continue
		}
		find := p.device.function
		if c.chain {
			find, c.name = p.chains.Function, shared[c.name]
		}
		f, err := find(c.name)
		if err != nil {
			return err
		}
		p.calls = append(p.calls, api.NewLaunch(f, c.grid, c.block, 0, len(p.words), len(c.args)))
		p.names = append(p.names, c.name)
		for _, a := range c.args {
			p.words = append(p.words, b.word(a))
		}
	}
	p.device.moved.Store(max(p.device.moved.Load(), int64(moved)))
	for _, t := range b.tables {
		words := make([]byte, 0, 8*len(t.words))
		for _, a := range t.words {
			words = binary.LittleEndian.AppendUint64(words, b.word(a))
		}
		if err := p.device.stream.CopyIn(p.memory+api.Ptr(t.at), words); err != nil {
			return err
		}
	}
	// The driver may read memory that is not pinned when it gets there.
	return errors.Join(p.device.stream.CopyIn(p.memory+api.Ptr(at), constants), p.device.stream.Wait())
}

// word is the value of a parameter; of those that only Run knows, it is an
// offset.
func (b *builder) word(a any) uint64 {
	p := b.p
	switch a := a.(type) {
	case int:
		return uint64(int64(a))
	case uint64:
		return a
	case float64:
		return floatBits(a)
	case scratch:
		return uint64(p.memory) + uint64(b.base+int(a))
	case partialSums:
		return uint64(p.memory) + uint64(b.base+aligned(b.scratch)+int(a))
	case tableAt:
		return uint64(p.memory) + uint64(a)
	case behind:
		patches := len(p.patches)
		w := b.word(a.v)
		if len(p.patches) > patches { // an address of Run
			p.patches[patches].offset += a.bytes
			return 0
		}
		return w + uint64(a.bytes)
	case faultWord:
		return uint64(p.device.fault)
	case *ir.Value:
		if at, ok := b.temporary[a]; ok {
			return b.word(at)
		}
		switch a.Slot.Place {
		case ir.Arena:
			return uint64(p.memory) + uint64(a.Slot.Offset)
		case ir.Static:
			return uint64(p.memory) + uint64(p.static[a])
		}
		p.patches = append(p.patches, patch{len(p.words), a.Slot.Index, a.Slot.Offset, a.Slot.Place == ir.Output})
		return 0
	}
	panic(fmt.Sprintf("cuda: a parameter of type %T", a))
}
