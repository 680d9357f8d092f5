package tensor

import (
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// blockBytes is how many bytes of a variable have one checksum. A block takes about a
// microsecond.
const blockBytes = 16 << 10

// Checksums computes checksums of variables, whose elements it cuts into blocks of at most
// 16 KiB. They tell whether variables have changed, at the speed of memory. It is for one
// goroutine at a time.
type Checksums struct {
	vars  []*Variable
	first []int // the first block of each variable, then the number of all
	data  [][]byte
	sums  []uint64
}

// ChecksumsOf returns the Checksums of variables, in their order. No block spans two variables.
func ChecksumsOf(vs ...*Variable) *Checksums {
	b := &Checksums{vars: slices.Clone(vs), first: make([]int, 1, len(vs)+1), data: make([][]byte, len(vs))}
	for i, v := range vs {
		b.first = append(b.first, b.first[i]+blocksIn(v.typ.Bytes()))
	}
	return b
}

func blocksIn(bytes int) int { return (bytes + blockBytes - 1) / blockBytes }

// Len is the number of blocks.
func (b *Checksums) Len() int { return b.first[len(b.vars)] }

// Of lists the variables that have elements in the blocks from … to-1, and which elements
// of each: [begin, end).
func (b *Checksums) Of(from, to int) (vs []*Variable, ranges [][2]int) {
	for i, v := range b.vars {
		lo, hi := max(from, b.first[i])-b.first[i], min(to, b.first[i+1])-b.first[i]
		if lo >= hi {
			continue
		}
		size := v.typ.DType.Size()
		vs = append(vs, v)
		ranges = append(ranges, [2]int{lo * blockBytes / size, min(hi*blockBytes, v.typ.Bytes()) / size})
	}
	return vs, ranges
}

// Sum returns a 64-bit checksum of the blocks from … to-1, as the variables are between
// two steps. It depends on the bits of the elements alone, NaNs included, and not on the
// number of goroutines. It is no cryptographic hash: it tells accidents, and no one who
// chooses the elements.
func (b *Checksums) Sum(ctx context.Context, from, to int) (sum uint64, err error) {
	defer Catch(&err)
	needs(ctx, "Checksums.Sum")
	from, to = max(from, 0), min(to, b.Len())
	lo, _ := slices.BinarySearchFunc(b.first[1:], from, func(end, from int) int {
		if end <= from {
			return -1
		}
		return 1
	})
	hi := lo
	for ; hi < len(b.vars) && b.first[hi] < to; hi++ {
		if _, err := b.vars[hi].ensure(ctx); err != nil {
			return 0, err
		}
	}
	vars := b.vars[lo:hi]
	defer lockAll(vars, false)()
	for i, v := range vars {
		if b.data[lo+i], err = host(v.store.Load().buf, v.typ.Bytes()); err != nil {
			return 0, err
		}
	}
	b.sums = slices.Grow(b.sums[:0], max(to-from, 0))[:max(to-from, 0)]
	inParallel(len(b.sums), func(begin, end int) {
		v := lo
		for k := begin; k < end; k++ {
			for b.first[v+1] <= from+k {
				v++
			}
			at := (from + k - b.first[v]) * blockBytes
			b.sums[k] = checksum(uint64(k), b.data[v][at:min(at+blockBytes, len(b.data[v]))])
		}
	})
	clear(b.data[lo:hi])
	return joinSums(b.sums), nil
}

// Checksum returns a 64-bit checksum of the elements of tensors, which are computed if
// needed, and of their types.
func Checksum(ctx context.Context, ts ...*Tensor) (sum uint64, err error) {
	return PartialChecksum(ctx, 0, math.MaxInt, ts...)
}

// PartialChecksum is Checksum, but of a tensor of more than most bytes only of a part of
// about as many: of all parts in turn.
func PartialChecksum(ctx context.Context, turn int64, most int, ts ...*Tensor) (sum uint64, err error) {
	defer Catch(&err)
	needs(ctx, "Checksum")
	if err := Eval(ctx, ts...); err != nil {
		return 0, err
	}
	for _, t := range ts {
		for _, t := range t.Unpack() {
			if err := t.data.held(); err != nil {
				return 0, &Error{Op: "Checksum", Err: err}
			}
			data, err := host(t.data.buf, t.typ.Bytes())
			if err != nil {
				return 0, err
			}
			if len(data) > most {
				n := blocksIn(len(data))
				parts := int64((n-1)/max(most/blockBytes, 1) + 1)
				i := int(turn % parts)
				data = data[i*n/int(parts)*blockBytes : min((i+1)*n/int(parts)*blockBytes, len(data))]
			}
			sum = mulFold(sum^checksumOf(data), typeNumber(t.typ)^key1)
		}
	}
	return sum, nil
}

// checksumOf is the checksum of elements in blocks.
func checksumOf(data []byte) uint64 {
	if len(data) <= blockBytes {
		return checksum(0, data)
	}
	sums := make([]uint64, blocksIn(len(data)))
	inParallel(len(sums), func(begin, end int) {
		for k := begin; k < end; k++ {
			sums[k] = checksum(uint64(k), data[k*blockBytes:min((k+1)*blockBytes, len(data))])
		}
	})
	return joinSums(sums)
}

func typeNumber(t op.Type) uint64 {
	n := uint64(t.DType)
	for _, d := range t.Shape {
		n = mulFold(n^uint64(d), key0)
	}
	return n
}

// inParallel runs f on parts of n blocks, in several goroutines if they are worth it.
func inParallel(n int, f func(begin, end int)) {
	const worth = 32 // blocks: some 20 microseconds
	parts := min(n/worth, runtime.GOMAXPROCS(0))
	if parts < 2 {
		f(0, n)
		return
	}
	var wait sync.WaitGroup
	for i := 1; i < parts; i++ {
		wait.Go(func() { f(i*n/parts, (i+1)*n/parts) })
	}
	f(0, n/parts)
	wait.Wait()
}

// Odd numbers with as many bits 1 as 0, drawn at random.
const (
	key0 = 0x9d3a_c64b_2e71_b58d
	key1 = 0x5ac9_71e2_d438_969b
	key2 = 0xc2b4_95d3_3a6c_78e5
	key3 = 0x6e1d_a8b3_c597_1a2d
)

// checksum hashes one block: four lanes take 16 bytes each and multiply. The product of
// 128 bits, folded to 64, is what wyhash (Wang Yi, 2019) is built from.
func checksum(seed uint64, p []byte) uint64 {
	n := uint64(len(p))
	a, b, c, d := seed^key0, seed^key1, seed^key2, seed^key3
	for len(p) >= 64 {
		q := p[:64:64]
		a = mulFold(a^binary.LittleEndian.Uint64(q), binary.LittleEndian.Uint64(q[8:])^key0)
		b = mulFold(b^binary.LittleEndian.Uint64(q[16:]), binary.LittleEndian.Uint64(q[24:])^key1)
		c = mulFold(c^binary.LittleEndian.Uint64(q[32:]), binary.LittleEndian.Uint64(q[40:])^key2)
		d = mulFold(d^binary.LittleEndian.Uint64(q[48:]), binary.LittleEndian.Uint64(q[56:])^key3)
		p = p[64:]
	}
	for ; len(p) >= 8; p = p[8:] {
		a = mulFold(a^binary.LittleEndian.Uint64(p), key0)
	}
	if len(p) > 0 {
		var last [8]byte
		copy(last[:], p)
		b = mulFold(b^binary.LittleEndian.Uint64(last[:]), key1)
	}
	return mulFold(mulFold(a^key2, b^n), mulFold(c, d^key3)^n)
}

// joinSums hashes the checksums of blocks, in order.
func joinSums(sums []uint64) uint64 {
	h := uint64(len(sums)) ^ key3
	for _, s := range sums {
		h = mulFold(h^s, key0)
	}
	return h
}

func mulFold(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}
