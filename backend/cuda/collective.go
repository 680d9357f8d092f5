//go:build cuda && linux && amd64

package cuda

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Exchanges with other ranks run on a stream of their own, between two events: one
// recorded when what a rank sends is packed, one that AllReduceDone waits for. Both are
// captured in the graph of a run. NCCL moves bytes: an all-to-all of parts, then a kernel
// adds up this rank's part in the tree of op.AllReduce, then an all-gather of the sums.
// So the bits are those of the CPU, for any number of ranks. An exchange that is Native
// is ncclAllReduce.

// exchange is an AllReduce or AllGather of a program.
type exchange struct {
	attr   *op.AllReduce
	gather bool // AllGather
	path   string
	number int // in ranks.exchanges

	recv, own, sums tableAt // what other ranks send; sums of this rank's part; of all parts

	packed, done api.Event
	awaited      bool       // AllReduceDone is in the program
	call, first  int        // its place among the calls and words of the program
	sum          api.Launch // of the tree's kernel
}

// Words of the parameters of an exchange: those of its kernel first.
const (
	wordOwn  = 0
	wordRecv = 2
	wordSend = 3
	wordSums = 8
)

// exchangeCall is where a program begins an exchange, or waits for it.
type exchangeCall struct {
	call int
	x    *exchange
	wait bool
}

// newExchange reserves the memory of an exchange between its start and its end.
func (b *builder) newExchange(v *ir.Value) (*exchange, error) {
	a, d := v.Attr.AllReduce, b.p.device
	if _, err := d.openNCCL(); err != nil {
		return nil, fmt.Errorf("cuda: layer %s: %v of %d ranks: %w", v.Path, v.Op, a.Ranks, err)
	}
	if len(b.p.exchanges) > 0 && b.p.exchanges[0].attr.Group != a.Group {
		return nil, fmt.Errorf("cuda: layer %s: %v: the program exchanges with two groups of ranks", v.Path, v.Op)
	}
	b.number()
	x := &exchange{attr: a, gather: v.Op == op.AllGatherStart, path: v.Path}
	d.ranks.add(x)
	b.p.exchanges = append(b.p.exchanges, x)
	size := a.Wire.Size()
	part := a.Part() * size
	switch {
	case x.gather:
		x.sums = b.reserve(a.Ranks * a.Gathered() * size)
	case a.Native:
	default:
		x.recv, x.own = b.reserve(a.Ranks*a.Rows()*part), b.reserve(part)
		if !a.Scatter {
			x.sums = b.reserve(a.Ranks * part)
		}
	}
	var err error
	if x.packed, err = api.NewEvent(); err == nil {
		x.done, err = api.NewEvent()
	}
	return x, err
}

// reserve takes memory of the program that nothing else uses.
func (b *builder) reserve(bytes int) tableAt {
	at := aligned(b.bytes)
	b.bytes = at + bytes
	return tableAt(at)
}

// number gives the program a number, by which the device knows it.
func (b *builder) number() int {
	p := b.p
	if p.number == 0 {
		p.device.numbered++
		p.number = p.device.numbered
		p.device.programs[p.number] = p
	}
	return p.number
}

// allReduceStart packs what this rank sends, and begins the exchange.
func (b *builder) allReduceStart(v *ir.Value) error {
	a := v.Attr.AllReduce
	n, mine := len(a.Shapes), len(op.Partials(a.Rank, a.Ranks, a.Shards))
	part, rows := a.Part(), a.Rows()
	sections := a.Sections()
	var list pieces
	row := func(rank, p int) int { return (rank*rows + p) * part }
	for p := range rows {
		if p >= mine { // rows that this rank has no partial sum for: nobody reads them
			for rank := range a.Ranks {
				list.zeros(row(rank, p), part)
			}
			continue
		}
		for i := range n {
			x, size := v.Args[p*n+i], a.Shapes[i].Size()
			if a.Scatter {
				per := op.PartOf(size, a.Ranks)
				for rank := range a.Ranks {
					at := row(rank, p) + sections[i].Start
					lo, hi := min(size, rank*per), min(size, (rank+1)*per)
					list.add(x, lo, hi-lo, at)
					list.zeros(at+hi-lo, per-(hi-lo))
				}
				continue
			}
			for lo := 0; lo < size; {
				at := sections[i].Start + lo
				rank := at / part
				hi := min(size, lo+(rank+1)*part-at)
				list.add(x, lo, hi-lo, row(rank, p)+at-rank*part)
				lo = hi
			}
		}
		for rank := range a.Ranks { // behind the last tensor
			lo := min(part, max(0, a.Results()-rank*part))
			if a.Scatter {
				lo = a.Results()
			}
			list.zeros(row(rank, p)+lo, part-lo)
		}
	}
	list.move(b, v, "pieces_pack", v)
	return b.begin(v)
}

// allGatherStart packs this rank's parts.
func (b *builder) allGatherStart(v *ir.Value) error {
	a := v.Attr.AllReduce
	var list pieces
	at := 0
	for i, s := range a.Shapes {
		n := op.PartOf(s.Size(), a.Ranks)
		list.add(v.Args[i], 0, n, at)
		at += n
	}
	list.move(b, v, "pieces_pack", v)
	return b.begin(v)
}

// begin makes the call that begins the exchange of what is packed in v.
func (b *builder) begin(v *ir.Value) error {
	a := v.Attr.AllReduce
	if a.Ranks == 1 {
		return nil
	}
	x, err := b.newExchange(v)
	if err != nil {
		return err
	}
	b.begun[v] = x
	name, part := "", a.Part()
	var leaves any = uint64(0)
	count := 0
	if !x.gather && !a.Native {
		name, leaves, count = "tree_sum_"+a.Wire.String(), b.leaves(a, part), (len(a.Tree())+1)/2
	}
	b.call(v, name, [3]int{min((part+255)/256, 1<<20), 1, 1}, [3]int{256, 1, 1}, x.own, int(a.Wire), x.recv, v, leaves, count, part, scaleOf(a), x.sums)
	b.pending[len(b.pending)-1].exchange = x
	return nil
}

// scaleOf is the factor of a sum, as the kernel multiplies by it.
func scaleOf(a *op.AllReduce) float64 {
	if a.Wire == dtype.Float64 {
		return a.Scale
	}
	return float64(float32(a.Scale))
}

// leaves returns the tree of sums as the kernel takes it.
func (b *builder) leaves(a *op.AllReduce, part int) tableAt {
	var words []any
	first, end := a.Rank*a.Rows(), (a.Rank+1)*a.Rows()
	for _, row := range a.Tree() {
		if row == op.AddSums {
			last := len(words) - 1
			words[last] = words[last].(int) + 1
			continue
		}
		own := 0
		if row >= first && row < end {
			own = 1
		}
		words = append(words, row*part, own, 0)
	}
	return b.table(words)
}

// table makes a table of words.
func (b *builder) table(words []any) tableAt {
	at := b.reserve(8 * len(words))
	b.tables = append(b.tables, table{int(at), words})
	return at
}

// await makes the call that waits for the exchange that v ends.
func (b *builder) await(v *ir.Value) (*exchange, error) {
	x := b.begun[v.Args[0]]
	if x == nil {
		return nil, fmt.Errorf("cuda: layer %s: %v: another program has begun %v", v.Path, v.Op, v.Attr.AllReduce)
	}
	x.awaited = true
	b.call(v, "", [3]int{}, [3]int{})
	b.pending[len(b.pending)-1].exchange = x
	b.pending[len(b.pending)-1].waits = true
	return x, nil
}

// allReduceDone waits for the sums and unpacks them.
func (b *builder) allReduceDone(v *ir.Value) error {
	a := v.Attr.AllReduce
	var from any = v.Args[0]
	if a.Ranks > 1 {
		x, err := b.await(v)
		if err != nil {
			return err
		}
		switch {
		case a.Native:
		case a.Scatter:
			from = x.own
		default:
			from = x.sums
		}
	}
	n := a.Results()
	if a.Native || a.Ranks == 1 { // what was sent, times Scale
		leaves := b.table([]any{0, 1, 0})
		if n > 0 {
			b.call(v, "tree_sum_"+a.Wire.String(), [3]int{min((n+255)/256, 1<<20), 1, 1}, [3]int{256, 1, 1}, v, int(v.Type.DType), from, from, leaves, 1, n, scaleOf(a))
		}
		return nil
	}
	var list pieces
	list.add(v, 0, n, 0)
	list.move(b, v, "pieces_unpack", from)
	return nil
}

// allGatherDone waits for the parts of all ranks and unpacks them.
func (b *builder) allGatherDone(v *ir.Value) error {
	a := v.Attr.AllReduce
	var from any = v.Args[0]
	if a.Ranks > 1 {
		x, err := b.await(v)
		if err != nil {
			return err
		}
		from = x.sums
	}
	var list pieces
	to, section := 0, 0
	for _, s := range a.Shapes {
		n := s.Size()
		per := op.PartOf(n, a.Ranks)
		for rank := range a.Ranks {
			lo, hi := min(n, rank*per), min(n, (rank+1)*per)
			list.add(v, to+lo, hi-lo, rank*a.Gathered()+section)
		}
		to, section = to+n, section+per
	}
	list.move(b, v, "pieces_unpack", from)
	return nil
}

// pieceElements is the most elements of a piece, which a block moves.
const pieceElements = 8192

// piece is neighbouring elements of a value, and where they lie among what is packed. A
// nil value is zeros.
type piece struct {
	x            *ir.Value
	first, n, at int
}

type pieces []piece

// add appends n elements of x.
func (l *pieces) add(x *ir.Value, first, n, at int) {
	for n > 0 {
		m := min(n, pieceElements)
		*l = append(*l, piece{x, first, m, at})
		first, at, n = first+m, at+m, n-m
	}
}

func (l *pieces) zeros(at, n int) { l.add(nil, 0, n, at) }

// move makes the calls that pack or unpack. Addresses in buffers of the caller are known
// when the program runs, too late for a table: the values there have a call each.
func (l pieces) move(b *builder, v *ir.Value, kernel string, packed any) {
	type call struct {
		other *ir.Value
		words []any
		n     int
	}
	calls := []*call{{}}
	for _, p := range l {
		c := calls[0]
		var x any = uint64(0)
		kind, outside := dtype.Float32, 0
		if p.x != nil {
			kind = p.x.Type.DType
			x = behind{p.x, p.first * kind.Size()}
			if place := p.x.Slot.Place; place == ir.Input || place == ir.Output {
				x, outside = p.first*kind.Size(), 1
				c = nil
				for _, k := range calls {
					if k.other == p.x {
						c = k
					}
				}
				if c == nil {
					c = &call{other: p.x}
					calls = append(calls, c)
				}
			}
		}
		c.words = append(c.words, x, p.n, int(kind), p.at, outside)
		c.n++
	}
	for _, c := range calls {
		if c.n > 0 {
			b.call(v, kernel, [3]int{c.n, 1, 1}, [3]int{256, 1, 1}, packed, int(v.Attr.AllReduce.Wire), b.table(c.words), pointer(c.other))
		}
	}
}
