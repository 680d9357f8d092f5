package philox

import (
	"fmt"
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

func TestUniform16IsWords(t *testing.T) {
	const seed, counter, stream = 0x123456789abcdef0, 3<<32 | 7, 5<<32 | 9
	words := make([]uint32, 23)
	Words(seed, counter, stream, 0, words)
	all := make([]float32, 2*len(words))
	Uniform16(seed, counter, stream, all)
	for i, w := range words {
		for j, half := range []uint32{w & 0xffff, w >> 16} {
			if want := float32(math.Ldexp(float64(half), -16)); all[2*i+j] != want {
				t.Errorf("number %d is %v, want %v", 2*i+j, all[2*i+j], want)
			}
		}
	}
	part := make([]float32, 11)
	Uniform16At(seed, counter, stream, 16, part)
	if !slices.Equal(part, all[16:27]) {
		t.Errorf("numbers 16 to 26 drawn alone are %v, want %v", part, all[16:27])
	}
}

// TestUniform16Independent: of numbers at any distance that lie in the same word,
// block or vector of blocks, or in the same place of two draws, as many are below a
// bound together as of independent ones, within five standard errors.
func TestUniform16Independent(t *testing.T) {
	const n = 1 << 18
	x, y := make([]float32, n), make([]float32, n)
	for _, share := range []float64{0x1p-8, 0.1, 0.5, 0.9} {
		p := math.Round(share*(1<<16)) / (1 << 16)
		bothBelow := func(name string, a, b []float32) {
			both := 0
			for i, v := range a[:len(b)] {
				if float64(v) < p && float64(b[i]) < p {
					both++
				}
			}
			if want, m := p*p, float64(len(b)); math.Abs(float64(both)/m-want) > 5*math.Sqrt(want*(1-want)/m) {
				t.Errorf("share %v, %s: %d of %d are both below", share, name, both, len(b))
			}
		}
		Uniform16(42, 0, 1, x)
		bothBelow("half a draw", x, x[n/2:])
		for distance := 1; distance <= 256; distance++ {
			if distance > 64 && distance%64 != 0 { // 64 numbers are a vector's
				continue
			}
			bothBelow(fmt.Sprintf("distance %d", distance), x, x[distance:])
		}
		for _, other := range [][3]uint64{{43, 0, 1}, {42, 1, 1}, {42, 0, 2}} {
			Uniform16(other[0], other[1], other[2], y)
			bothBelow(fmt.Sprint("draw ", other), x, y)
		}
	}
}

// TestMoments checks mean and variance of draws against those of a uniform
// distribution, within five standard errors; of halves in each place of a block, too.
func TestMoments(t *testing.T) {
	x := make([]float32, 1<<16)
	Uniform(42, 0, 1, x)
	checkMoments(t, x)
	Uniform16(42, 0, 1, x)
	checkMoments(t, x)
	for place := range 8 {
		var of []float32
		for i := place; i < len(x); i += 8 {
			of = append(of, x[i])
		}
		checkMoments(t, of)
	}
}

func checkMoments(t *testing.T, x []float32) {
	t.Helper()
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
