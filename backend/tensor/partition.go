package tensor

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Partition divides the elements of tensors among the ranks of a group: of a tensor of n
// elements, as a vector, rank r has the op.PartOf(n, ranks) elements from r·PartOf on,
// with zeros behind the last one. Ranks that divide the state of an optimizer (ZeRO,
// Rajbhandari et al., 2020, stage 1) each keep slots and compute updates of their parts
// alone.
type Partition struct {
	// Scattered says that gradients come as this rank's parts (AllReduceOptions.Scatter),
	// not as wholes: then norms are sums over the ranks.
	Scattered bool

	o AllReduceOptions
}

// NewPartition returns the partition among the ranks of o, whose Group, Rank, Ranks and
// BucketBytes count.
func NewPartition(o AllReduceOptions) *Partition {
	return &Partition{o: AllReduceOptions{Group: o.Group, Rank: o.Rank, Ranks: o.Ranks, Shards: o.Ranks, BucketBytes: o.BucketBytes, Scale: 1}}
}

// Sum records the sum of t over the ranks.
func (p *Partition) Sum(t *Tensor) *Tensor { return AllReduce([][]*Tensor{{t}}, p.o)[0] }

// Rank is the number of this process, Ranks how many there are.
func (p *Partition) Rank() int  { return p.o.Rank }
func (p *Partition) Ranks() int { return p.o.Ranks }

// Equal reports whether p and q, which may be nil, give the same rank the same parts.
func (p *Partition) Equal(q *Partition) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Scattered == q.Scattered && p.o.Group == q.o.Group && p.o.Rank == q.o.Rank && p.o.Ranks == q.o.Ranks
}

// All records whether ok, a bool scalar, is true on all ranks.
func (p *Partition) All(ok *Tensor) *Tensor {
	return p.Sum(ok.Not().Cast(dtype.Float32).Reshape(1)).Reshape().Equal(Scalar(dtype.Float32, 0))
}

// GradientShape returns the shape of the gradient of a variable, which a nil p does not
// change.
func (p *Partition) GradientShape(of Shape) Shape {
	if p == nil || !p.Scattered {
		return of
	}
	return Shape{op.PartOf(of.Size(), p.o.Ranks)}
}

// bounds returns which elements of n this rank has, and how many the others.
func (p *Partition) bounds(n int) (first, end, part int) {
	part = op.PartOf(n, p.o.Ranks)
	return min(n, p.o.Rank*part), min(n, (p.o.Rank+1)*part), part
}

// Own records this rank's part of t.
//
// Shapes: t → [PartOf(elements)].
func (p *Partition) Own(t *Tensor) *Tensor {
	if t.err != nil {
		return t
	}
	n := t.typ.Shape.Size()
	first, end, part := p.bounds(n)
	own := t.Reshape(n).Slice(0, first, end)
	if end-first < part {
		own = own.Pad([]int{0}, []int{part - (end - first)}, 0)
	}
	return own
}

// Gather records the tensors of some shapes whose parts all ranks compute. Parts are
// exchanged in buckets, each of which begins when its parts are there.
func (p *Partition) Gather(parts []*Tensor, shapes []Shape) []*Tensor {
	const where = "AllGather"
	tr := current()
	switch {
	case len(parts) != len(shapes):
		Fail(where, "got %d parts of %d tensors", len(parts), len(shapes))
	case tr == nil:
		Fail(where, "parts of tensors are exchanged outside a Function; record it in a keras.Function")
	case eager() && p.o.Ranks > 1:
		Fail(where, "MEZZO_DEBUG=eager runs single operations, which cannot exchange tensors with other ranks")
	}
	most := max(p.o.BucketBytes, firstBucket)
	whole := make([]*Tensor, len(parts))
	for first := 0; first < len(parts); {
		d := parts[first].DType()
		a := &op.AllReduce{Group: p.o.Group, Rank: p.o.Rank, Ranks: p.o.Ranks, Shards: p.o.Ranks, Bucket: tr.exchanges, Wire: d, Scale: 1}
		end, bytes := first, 0
		for end < len(parts) && parts[end].DType() == d && (end == first || bytes+shapes[end].Size()*d.Size() <= most) {
			bytes += shapes[end].Size() * d.Size()
			a.Shapes = append(a.Shapes, shapes[end])
			end++
		}
		args := append([]*Tensor(nil), parts[first:end]...)
		tr.exchanges++
		if tr.exchanged != nil { // ranks exchange in one order
			args = append(args, tr.exchanged)
		}
		attr := op.Attr{AllReduce: a}
		tr.exchanged = Record(op.AllGatherStart, attr, args...)
		all := Record(op.AllGatherDone, attr, tr.exchanged)
		for i, s := range a.Sections() {
			t := all.part(s)
			t.stop = true
			whole[first+i] = t
		}
		first = end
	}
	return whole
}

// NewState returns a state variable that has this rank's part of one of a shape. init
// fills in the first elements of the part, as in NewVariable.
func (p *Partition) NewState(name string, d dtype.DType, whole Shape, init func(dst []float64) error) *Variable {
	_, _, part := p.bounds(whole.Size())
	v := NewState(name, d, Shape{part}, init)
	v.partition, v.whole = p, op.Type{DType: d, Shape: whole.Clone()}
	return v
}

// Partition returns the partition of which v is a part, and the type of the whole, or nil.
func (v *Variable) Partition() (p *Partition, whole op.Type) { return v.partition, v.whole }

// PartOf returns the part of a whole variable v, as a variable of its own.
func (p *Partition) PartOf(v *Variable) *Variable {
	return p.NewState(v.name, v.typ.DType, v.typ.Shape, func(dst []float64) error {
		all, err := v.Float64s()
		if err != nil {
			return err
		}
		first, end, _ := p.bounds(len(all))
		copy(dst, all[first:end])
		return nil
	})
}

// Cut returns the bytes of this rank's part of a whole with a type: the inverse of Join.
func (p *Partition) Cut(whole []byte, t op.Type) ([]byte, error) {
	if len(whole) != t.Bytes() {
		return nil, fmt.Errorf("got %d bytes, want %d of %v", len(whole), t.Bytes(), t)
	}
	first, end, part := p.bounds(t.Shape.Size())
	size := t.DType.Size()
	own := make([]byte, part*size)
	copy(own, whole[first*size:end*size])
	return own, nil
}

// Join returns the bytes of a whole with a type, whose parts of all ranks follow each other.
func (p *Partition) Join(parts []byte, t op.Type) ([]byte, error) {
	if want := p.o.Ranks * op.PartOf(t.Shape.Size(), p.o.Ranks) * t.DType.Size(); len(parts) != want {
		return nil, fmt.Errorf("got parts of %d bytes, want %d of %v", len(parts), want, t)
	}
	return parts[:t.Bytes()], nil // what fills up parts is behind
}
