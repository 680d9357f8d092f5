package simt

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cuda/kernels"
)

// softmaxCase runs softmax_float32 of a module on rows of n numbers, and returns the
// largest error.
func softmaxCase(t *testing.T, text string) (float64, error) {
	t.Helper()
	const rows, n = 3, 300
	in, out := make([]byte, 4*rows*n), make([]byte, 4*rows*n)
	x := make([]float64, rows*n)
	for i := range x {
		x[i] = float64(i*7919%1000)/100 - 5
		binary.LittleEndian.PutUint32(in[4*i:], math.Float32bits(float32(x[i])))
	}
	const float32Type = 7
	err := launch(t, text, "softmax_float32", rows, []uint64{inBase, outBase, float32Type, 0, n, 1}, in, out)
	worst := 0.0
	for r := range rows {
		sum := 0.0
		for _, v := range x[r*n : r*n+n] {
			sum += math.Exp(v)
		}
		for i := r * n; i < r*n+n; i++ {
			want := math.Exp(x[i]) / sum
			got := float64(getF32(getElement(out[4*i:], 4)))
			worst = max(worst, math.Abs(got-want)/want)
		}
	}
	return worst, err
}

// transposeCase runs transpose_4 on two matrices.
func transposeCase(t *testing.T, text string) (float64, error) {
	t.Helper()
	const rows, columns = 40, 50
	in, out := make([]byte, 8*rows*columns), make([]byte, 8*rows*columns)
	for i := range 2 * rows * columns {
		binary.LittleEndian.PutUint32(in[4*i:], uint32(i))
	}
	err := launch(t, text, "transpose_4", 4, []uint64{outBase, inBase, rows, columns, 2, rows, rows * columns, 2}, in, out)
	wrong := 0.0
	for m := range 2 {
		for r := range rows {
			for c := range columns {
				if got := getElement(out[4*((m*rows+r)*columns+c):], 4); got != uint64(m*rows*columns+c*rows+r) {
					wrong++
				}
			}
		}
	}
	return wrong, err
}

func launch(t *testing.T, text, name string, blocks int, parameters []uint64, in, out []byte) error {
	t.Helper()
	m, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Run(Launch{Grid: [3]int{blocks, 1, 1}, Block: [3]int{256, 1, 1}, Parameters: parameters, Memory: []Region{{inBase, in}, {outBase, out}}})
	return err
}

// TestPlanted: kernels that are kept are right, and the faults that are planted into
// their PTX are found: a barrier that is missing, a lane that is not in a mask, a shared
// array and a result that are too small.
func TestPlanted(t *testing.T) {
	for _, c := range []struct {
		unit, kernel string
		run          func(t *testing.T, text string) (float64, error)
		most         float64 // error
		needed       []int   // barriers; the others are behind the last use of shared memory
	}{
		{"rows", "softmax_float32", softmaxCase, 1e-5, []int{0, 1, 2}},
		{"move", "transpose_4", transposeCase, 0, []int{0, 1}},
	} {
		text, err := kernels.PTX(c.unit, 80)
		if err != nil {
			t.Fatal(err)
		}
		if worst, err := c.run(t, text); err != nil || worst > c.most {
			t.Errorf("%s: error %v, %v, want at most %v", c.kernel, worst, err, c.most)
		}
		begin := strings.Index(text, ".entry "+c.kernel+"(")
		head, body := text[:begin], text[begin:]
		end := strings.Index(body, "\n}\n")
		body, tail := body[:end], body[end:]
		planted := func(what, body, want string) {
			_, err := c.run(t, head+body+tail)
			if f := (*Fault)(nil); !errors.As(err, &f) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: got error %v, want a fault with %q", c.kernel, what, err, want)
			}
		}
		const sync = "bar.sync"
		parts := strings.Split(body, sync)
		for _, i := range c.needed {
			if i+1 >= len(parts) {
				t.Fatalf("%s has %d barriers", c.kernel, len(parts)-1)
			}
			planted("a barrier is missing", strings.Join(parts[:i+1], sync)+"membar.cta; //"+strings.Join(parts[i+1:], sync), "shared address")
		}
		if strings.Contains(body, "shfl.sync") {
			planted("a lane is not in the mask", strings.ReplaceAll(body, ", -1;", ", 0x7fffffff;"), "is without itself")
		}
		if _, err := c.run(t, strings.ReplaceAll(head, "[128]", "[16]")+body+tail); c.unit == "rows" && (err == nil || !strings.Contains(err.Error(), "out of bounds")) {
			t.Errorf("%s: a shared array is too small: got error %v", c.kernel, err)
		}
	}
}
