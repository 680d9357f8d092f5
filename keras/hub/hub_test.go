package hub

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// policies are compared with the results of these names: "" for float32.
var policies = map[string]string{"float32": "", "mixed_bfloat16": "/bfloat16", "mixed_float16": "/float16"}

// near compares a result with what transformers has. In float32 the largest difference is
// 1e-5 of the root mean square of the result. In 16 bits the differences from float32 are
// at most 2.5 times those of PyTorch's autocast in the root mean square, and 4 times in
// the largest: autocast keeps the sums around blocks and normalizations in float32, which
// Keras's policies round.
func near(t *testing.T, what string, got *keras.Tensor, s *saving.Safetensors, name string) {
	t.Helper()
	want := must(must(s.Tensor(name)).Float64s())
	largest, rms := apart(t, what, must(got.Float64s()), want)
	limit := [2]float64{1e-5, 2e-6}
	if of := policies[policy.Global().Name]; of != "" {
		l, r := apart(t, what, must(must(s.Tensor(name+of)).Float64s()), want)
		limit = [2]float64{4 * l, 2.5 * r}
	}
	t.Logf("%s: largest difference %.2g, root mean square %.2g, of at most %.2g and %.2g", what, largest, rms, limit[0], limit[1])
	if largest > limit[0] || rms > limit[1] {
		t.Errorf("%s: largest difference %.2g, root mean square %.2g, want at most %.2g and %.2g", what, largest, rms, limit[0], limit[1])
	}
}

// apart is the largest difference and the root mean square of all, relative to the root
// mean square of want.
func apart(t *testing.T, what string, have, want []float64) (largest, rms float64) {
	t.Helper()
	if len(want) != len(have) {
		t.Fatalf("%s: got %d elements, want %d", what, len(have), len(want))
	}
	var sum, size float64
	for i := range want {
		d := math.Abs(want[i] - have[i])
		largest = max(largest, d)
		sum += d * d
		size += want[i] * want[i]
		if math.IsNaN(d) {
			t.Fatalf("%s: got NaN", what)
		}
	}
	return largest / math.Sqrt(size/float64(len(want))), math.Sqrt(sum / size)
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
	for name := range policies {
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
	for name := range policies {
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
	for name := range policies {
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

// TestMaskedLM: the logits at some positions are those that transformers has there.
func TestMaskedLM(t *testing.T) {
	for name := range policies {
		under(t, name)
		for _, c := range []struct {
			kind   string
			load   func(string) (*Pretrained, error)
			inputs []string
		}{
			{"bert", BERTMaskedLM, []string{"token_ids", "segment_ids", "padding_mask"}},
			{"distilbert_mlm", DistilBERTMaskedLM, []string{"token_ids", "padding_mask"}},
		} {
			for _, dir := range directories(c.kind) {
				s := expected(t, dir)
				m, err := c.load(dir)
				if err != nil {
					t.Fatal(err)
				}
				if len(m.Report.Missing) > 0 || slices.ContainsFunc(m.Report.Unused, func(n string) bool { return !strings.Contains(n, "pooler") }) {
					t.Errorf("%s: got %v, want all weights but a pooler's", dir, m.Report)
				}
				in := input(s, c.inputs...)
				shape := in.Unpack()[0].Shape()
				every := make([]int32, shape.Size())
				for i := range every {
					every[i] = int32(i % shape[1])
				}
				logits := func(positions *keras.Tensor) *keras.Tensor {
					return must(m.Predict(t.Context(), keras.Tuple(append(slices.Clone(in.Unpack()), positions)...)))
				}
				all := logits(keras.NewTensor(every, shape...))
				near(t, name+" "+dir+": logits", all, s, "logits")
				few := logits(keras.NewTensor([]int32{2, 0, 1, 1, 0, 2}, 3, 2))
				n := all.Dim(2)
				have, of := must(few.Float64s()), must(all.Float64s())
				for i, at := range []int{2, 0, shape[1] + 1, shape[1] + 1, 2 * shape[1], 2*shape[1] + 2} {
					// Other products share a tile, which may round otherwise.
					if largest, _ := apart(t, dir, have[i*n:(i+1)*n], of[at*n:(at+1)*n]); largest > 0.02 || largest > 1e-5 && name == "float32" {
						t.Errorf("%s %s: logits at position %d differ by %v", name, dir, at, largest)
					}
				}
			}
		}
	}
}

// TestMaskedLMErrors: positions outside of their sequence, and checkpoints that are not
// tied or have no head.
func TestMaskedLMErrors(t *testing.T) {
	m := must(BERTMaskedLM("testdata/bert"))
	one := func(v ...int32) *keras.Tensor { return keras.NewTensor(v, 2, len(v)/2) }
	for _, at := range []int32{3, -1} { // 3 would be the first step of the second sequence
		if y, err := m.Predict(t.Context(), keras.Tuple(one(1, 2, 3, 4, 5, 6), one(0, 0, 0, 0, 0, 0), one(1, 1, 1, 1, 1, 1), one(at, 0))); err == nil {
			t.Errorf("got %v for position %d of 3, want an error", y.Type(), at)
		}
	}
	if _, err := DistilBERTMaskedLM("testdata/distilbert"); err == nil || !strings.Contains(err.Error(), `no tensor "vocab_`) {
		t.Errorf("got error %v for a checkpoint without a head", err)
	}
	dir := t.TempDir()
	config := must(os.ReadFile("testdata/bert/config.json"))
	config = bytes.Replace(config, []byte("{"), []byte(`{"tie_word_embeddings": false, `), 1)
	config = bytes.Replace(config, []byte(`"tie_word_embeddings": true,`), nil, 1)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := BERTMaskedLM(dir); err == nil || !strings.Contains(err.Error(), "got tie_word_embeddings false") {
		t.Errorf("got error %v", err)
	}
}

// TestLayerNames: weights have the paths that they have in KerasHub.
func TestLayerNames(t *testing.T) {
	for name, c := range map[string]struct {
		model func() (*keras.Model, error)
		want  []string
	}{
		"BERT": {must(BertConfig("testdata/bert")).MaskedLM, []string{"token_embedding/embeddings", "segment_embedding/embeddings", "transformer_layer_0/self_attention_layer/query/kernel",
			"transformer_layer_0/self_attention_layer_norm/gamma", "transformer_layer_1/feedforward_layer_norm/beta", "mlm_head/intermediate_layer_norm/gamma", "mlm_head/output_bias"}},
		"DistilBERT": {must(DistilBertConfig("testdata/distilbert")).Model, []string{"token_and_position_embedding/token_embedding/embeddings",
			"token_and_position_embedding/position_embedding/position_embeddings", "embeddings_layer_norm/gamma", "transformer_layer_0/feedforward_output_dense/bias"}},
		"GPT-2": {must(GPT2Config("testdata/gpt2")).Model, []string{"token_embedding/embeddings", "transformer_layer_0/self_attention/query/kernel",
			"transformer_layer_0/self_attention_layer_norm/gamma", "transformer_layer_0/feedforward_intermediate_dense/kernel", "layer_norm/beta"}},
	} {
		var names []string
		for _, w := range must(c.model()).Weights() {
			names = append(names, w.Name())
		}
		for _, want := range c.want {
			if !slices.Contains(names, want) {
				t.Errorf("%s: there is no weight %s in %q", name, want, names)
			}
		}
	}
}
