package philox

import (
	"math"
	"slices"
	"testing"
)

// TestBlock holds the known answers that come with Random123.
func TestBlock(t *testing.T) {
	const f = 0xffffffff
	for _, c := range []struct {
		key  [2]uint32
		ctr  [4]uint32
		want [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[2]uint32{f, f}, [4]uint32{f, f, f, f}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := Block(c.key, c.ctr); got != c.want {
			t.Errorf("Block(%x, %x) = %x, want %x", c.key, c.ctr, got, c.want)
		}
	}
}

func TestUniformIsWords(t *testing.T) {
	const seed, counter, stream = 0x123456789abcdef0, 3<<32 | 7, 5<<32 | 9
	words := make([]uint32, 23)
	Words(seed, counter, stream, 0, words)
	// Number 0 of the draw, with the counter words written out.
	ctr := [4]uint32{0, 0, 7, 9 ^ 3<<16 ^ 5<<8}
	if first := Block([2]uint32{0x9abcdef0, 0x12345678}, ctr); !slices.Equal(words[:4], first[:]) {
		t.Fatalf("first words %x, want %x", words[:4], first)
	}
	all := make([]float32, len(words))
	Uniform(seed, counter, stream, all)
	for i, w := range words {
		if want := float32(math.Ldexp(float64(w>>8), -24)); all[i] != want {
			t.Errorf("number %d is %v, want %v", i, all[i], want)
		}
	}
	part := make([]float32, 6)
	UniformAt(seed, counter, stream, 8, part)
	if !slices.Equal(part, all[8:14]) {
		t.Errorf("numbers 8 to 13 drawn alone are %v, want %v", part, all[8:14])
	}
}

// TestMoments checks mean and variance of a draw against those of a uniform
// distribution, within five standard errors.
func TestMoments(t *testing.T) {
	x := make([]float32, 1<<16)
	Uniform(42, 0, 1, x)
	var sum, squares float64
	for _, v := range x {
		if v < 0 || v >= 1 {
			t.Fatalf("%v is outside [0, 1)", v)
		}
		sum += float64(v)
		squares += (float64(v) - 0.5) * (float64(v) - 0.5)
	}
	n := float64(len(x))
	if mean := sum / n; math.Abs(mean-0.5) > 5*math.Sqrt(1/(12*n)) {
		t.Errorf("mean %v", mean)
	}
	// The fourth central moment is 1/80, so the variance of a square is 1/180.
	if v := squares / n; math.Abs(v-1.0/12) > 5*math.Sqrt(1/(180*n)) {
		t.Errorf("variance %v, want 1/12", v)
	}
}

func TestDrawsDiffer(t *testing.T) {
	draw := func(seed, counter, stream uint64) [4]float32 {
		var x [4]float32
		Uniform(seed, counter, stream, x[:])
		return x
	}
	seen := map[[4]float32]bool{}
	for seed := range uint64(4) {
		for counter := range uint64(4) {
			for stream := range uint64(4) {
				seen[draw(seed<<32|seed, counter, stream)] = true
			}
		}
	}
	if len(seen) != 64 {
		t.Errorf("64 draws gave %d different ones", len(seen))
	}
}
