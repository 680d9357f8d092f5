package policy_test

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestBits: the setting is reported, and a Function that was compiled under another one is
// compiled again. Two products of AVX2 and higher levels differ from those of portable Go.
func TestBits(t *testing.T) {
	defer policy.SetBits(policy.SetBits("fast"))
	if text := policy.EffectiveText(); strings.Contains(text, "bits:") {
		t.Errorf("under fast bits: %s", text)
	}
	x := make([]float32, 300*300)
	for i := range x {
		x[i] = 1 / float32(3+i%97)
	}
	compiled := 0
	product := tensor.Function(func(x *keras.Tensor) *keras.Tensor { compiled++; return x.MatMul(x) })
	result := func() string {
		y, err := product.Call(t.Context(), keras.NewTensor(x, 300, 300))
		if err != nil {
			t.Fatal(err)
		}
		b, err := y.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	fast, before := result(), compiled
	if got := policy.SetBits("portable"); got != "fast" {
		t.Errorf("SetBits returned %q, want fast", got)
	}
	portable := result()
	if compiled == before {
		t.Error("the Function was not compiled again")
	}
	if d, err := policy.Effective(); err != nil || d.Bits != "portable" || !strings.HasSuffix(policy.EffectiveText(), "; bits: portable") {
		t.Errorf("Effective: %q, %v", d.Bits, err)
	} else if fast == portable && d.ISA != "portable Go" {
		t.Log("fast bits are the portable ones")
	}
	policy.SetBits("fast")
	if result() != fast {
		t.Error("back under fast bits the result differs")
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(p.(string), `got "same", want fast or portable`) {
			t.Errorf("an unknown setting: %v", p)
		}
	}()
	policy.SetBits("same")
}
