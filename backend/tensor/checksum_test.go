package tensor_test

import (
	"runtime"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestChecksums: they do not depend on goroutines and tell every bit, and parts tell where
// it is.
func TestChecksums(t *testing.T) {
	shapes := []tensor.Shape{{3}, {0}, {4096}, {4097}, {700, 300}, {1}}
	var vs []V
	for i, s := range shapes {
		d := []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Int64}[i%3]
		vs = append(vs, tensor.NewVariable("v", d, s, func(x []float64) error { fill(x, uint64(i+1)); return nil }))
	}
	c := tensor.ChecksumsOf(vs...)
	// Blocks: 1, 0, 2, 2, 26, 1.
	if c.Len() != 32 {
		t.Fatalf("got %d blocks", c.Len())
	}
	sum := func(from, to int) uint64 { return must[uint64](t)(c.Sum(ctx, from, to)) }
	all := make([]uint64, c.Len())
	for i := range all {
		all[i] = sum(i, i+1)
	}
	want := sum(0, c.Len())
	for _, n := range []int{1, 3} {
		old := runtime.GOMAXPROCS(n)
		big := tensor.ChecksumsOf(vs[4], vs[4], vs[4])
		got := must[uint64](t)(big.Sum(ctx, 0, big.Len()))
		runtime.GOMAXPROCS(1)
		if alone := must[uint64](t)(big.Sum(ctx, 0, big.Len())); got != alone {
			t.Errorf("on %d threads: got %x, want %x", n, got, alone)
		}
		runtime.GOMAXPROCS(old)
	}
	flips := 0
	for i, v := range vs {
		b := must[[]byte](t)(v.Bytes())
		for _, bit := range []int{0, 7, 8 * len(b) / 3, 8*len(b) - 1} {
			if len(b) == 0 || bit >= 8*len(b) {
				continue
			}
			b[bit/8] ^= 1 << (bit % 8)
			if err := v.SetBytes(b); err != nil {
				t.Fatal(err)
			}
			if sum(0, c.Len()) == want {
				t.Errorf("variable %d: bit %d does not show", i, bit)
			}
			for k := range all {
				if sum(k, k+1) == all[k] {
					continue
				}
				of, ranges := c.Of(k, k+1)
				if size := v.DType().Size(); len(of) != 1 || of[0] != v || bit/8/size < ranges[0][0] || bit/8/size >= ranges[0][1] {
					t.Errorf("variable %d: bit %d shows in block %d of %v, %v", i, bit, k, of, ranges)
				}
				flips++
			}
			b[bit/8] ^= 1 << (bit % 8)
			if err := v.SetBytes(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	if flips != 20 {
		t.Errorf("%d of 20 bits show in a block", flips)
	}
	if got := sum(0, c.Len()); got != want {
		t.Errorf("got %x, want %x", got, want)
	}
	if sum(3, 3) != sum(40, 50) || sum(-5, 99) != want {
		t.Error("blocks that there are not count")
	}
}

// TestChecksum: of tensors, with their types.
func TestChecksum(t *testing.T) {
	sum := func(ts ...T) uint64 { return must[uint64](t)(tensor.Checksum(ctx, ts...)) }
	x, y := tensor.New([]float32{1, 2, 3, 4}, 2, 2), tensor.New([]int32{7}, 1)
	if sum(x, y) != sum(tensor.Tuple(x, y)) || sum(x, y) == sum(y, x) || sum(x) == sum(x.Reshape(4)) || sum(x) != sum(x.AddScalar(0)) {
		t.Error("order and types count, and how tensors are grouped does not")
	}
	big := tensor.New(randoms(1, 300_000, -1, 1), 300_000)
	want := sum(big)
	data := randoms(1, 300_000, -1, 1) // 147 blocks, in 10 parts of at most 15
	for _, at := range []int{0, 30_719, 30_720, 299_999} {
		data[at]++
		other := tensor.New(data, 300_000)
		var differs []int
		for turn := range 20 {
			part := func(x T) uint64 {
				return must[uint64](t)(tensor.PartialChecksum(ctx, int64(turn), 15*16<<10, x))
			}
			if part(big) != part(other) {
				differs = append(differs, turn)
			}
		}
		if len(differs) != 2 || differs[1] != differs[0]+10 {
			t.Errorf("element %d shows in the turns %v, want two that are 10 apart", at, differs)
		}
		data[at]--
	}
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	if got := sum(big); got != want {
		t.Errorf("on one thread: got %x, want %x", got, want)
	}
}

// BenchmarkChecksums is the speed of checksums of one large variable.
func BenchmarkChecksums(b *testing.B) {
	c := tensor.ChecksumsOf(tensor.NewVariable("v", dtype.Float32, tensor.Shape{4 << 20}, nil))
	b.SetBytes(16 << 20)
	for b.Loop() {
		if _, err := c.Sum(ctx, 0, c.Len()); err != nil {
			b.Fatal(err)
		}
	}
}
