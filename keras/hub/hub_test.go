package hub

import (
	"flag"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/policy"
)

// large are models of a more realistic size than those of testdata.
var large = flag.String("large", "", "directory that testdata/models.py --large wrote: compare its models too")

// directories lists the models to compare.
func directories(name string) []string {
	all := []string{filepath.Join("testdata", name)}
	if *large != "" {
		all = append(all, filepath.Join(*large, name))
	}
	return all
}

// under sets the global policy for the rest of a test.
func under(t *testing.T, name string) {
	t.Helper()
	old := policy.Global().Name
	policy.SetGlobal(name)
	t.Cleanup(func() { policy.SetGlobal(old) })
}

// expected opens what transformers computed.
func expected(t *testing.T, dir string) *saving.Safetensors {
	t.Helper()
	s, err := saving.ReadSafetensors(filepath.Join(dir, "expected.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// tolerances by policy: relative to the root mean square of a result, the
// largest difference and the root mean square of all.
var tolerances = map[string][2]float64{
	"float32":        {1e-5, 2e-6},
	"mixed_bfloat16": {0.08, 0.014},
	"mixed_float16":  {0.01, 0.0018},
}

// near compares a result with what transformers has.
func near(t *testing.T, what string, got *keras.Tensor, s *saving.Safetensors, name string) {
	t.Helper()
	want := must(must(s.Tensor(name)).Float64s())
	have := must(got.Float64s())
	if len(want) != len(have) {
		t.Fatalf("%s: got %v, want %d elements", what, got.Type(), len(want))
	}
	var largest, sum, size float64
	for i := range want {
		d := math.Abs(want[i] - have[i])
		largest = max(largest, d)
		sum += d * d
		size += want[i] * want[i]
		if math.IsNaN(d) {
			t.Fatalf("%s: got NaN", what)
		}
	}
	scale := math.Sqrt(size / float64(len(want)))
	largest, rms := largest/scale, math.Sqrt(sum/size)
	limit := tolerances[policy.Global().Name]
	t.Logf("%s: largest difference %.2g, root mean square %.2g", what, largest, rms)
	if largest > limit[0] || rms > limit[1] {
		t.Errorf("%s: largest difference %.2g, root mean square %.2g, want at most %.2g and %.2g", what, largest, rms, limit[0], limit[1])
	}
}

// input is the tuple of inputs of these names.
func input(s *saving.Safetensors, names ...string) *keras.Tensor {
	var all []*keras.Tensor
	for _, n := range names {
		all = append(all, must(s.Tensor(n)))
	}
	return keras.Tuple(all...)
}

func TestBERT(t *testing.T) {
	for name := range tolerances {
		under(t, name)
		for _, dir := range directories("bert") {
			s := expected(t, dir)
			m, err := BERT(dir)
			if err != nil {
				t.Fatal(err)
			}
			if len(m.Report.Missing) > 0 || slices.ContainsFunc(m.Report.Unused, func(n string) bool { return n[:4] != "cls." }) {
				t.Errorf("got %v, want the head left over", m.Report)
			}
			y := must(m.Predict(t.Context(), input(s, "token_ids", "segment_ids", "padding_mask"))).Unpack()
			near(t, name+" "+dir+": sequence_output", y[0], s, "sequence_output")
			near(t, name+" "+dir+": pooled_output", y[1], s, "pooled_output")
		}
	}
}

func TestDistilBERT(t *testing.T) {
	for name := range tolerances {
		under(t, name)
		for _, dir := range directories("distilbert") {
			s := expected(t, dir)
			m, err := DistilBERT(dir)
			if err != nil {
				t.Fatal(err)
			}
			y := must(m.Predict(t.Context(), input(s, "token_ids", "padding_mask")))
			near(t, name+" "+dir+": sequence_output", y, s, "sequence_output")
		}
	}
}

func TestGPT2(t *testing.T) {
	for name := range tolerances {
		under(t, name)
		for _, dir := range directories("gpt2") {
			s := expected(t, dir)
			m, err := GPT2(dir)
			if err != nil {
				t.Fatal(err)
			}
			y := must(m.Predict(t.Context(), input(s, "token_ids", "padding_mask"))).Unpack()
			near(t, name+" "+dir+": sequence_output", y[0], s, "sequence_output")
			near(t, name+" "+dir+": logits", y[1], s, "logits")
		}
	}
}
