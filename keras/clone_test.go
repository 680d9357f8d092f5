package keras

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// blocks is a residual network whose blocks are models, computed again in the
// backward pass, with an Input of the type of what they are applied to, and one
// with an Input that is float32 under every policy.
func blocks(t *testing.T) *Model {
	t.Helper()
	const units = 8
	x := Input(units)
	y := Apply(&layers.Dense{Units: units}, x)
	for i := range 3 {
		in := InputOf(y.DType(), y.Shape()[1:]...)
		if i == 2 {
			in = Input(units)
		}
		h := Apply(&layers.LayerNormalization{}, in)
		h = Apply(&layers.Dense{Units: 3 * units, Activation: "gelu"}, h)
		h = Apply(&layers.Dense{Units: units}, h)
		m, err := NewModel(in, Apply(&layers.Add{}, in, h))
		check(t, err)
		y = Apply(layers.Remat(m.Layer()), y)
	}
	m, err := NewModel(x, Apply(&layers.Dense{Units: 2}, y))
	check(t, err)
	return m
}

// TestCloneNested: a clone under another policy is the model that would have
// been built under it, to the bit, and so is the memory that MaxBatch plans.
func TestCloneNested(t *testing.T) {
	const rows = 16
	policies := []string{"float32", "mixed_float16", "mixed_bfloat16"}
	b := Batch{X: NewTensor(numbers(rows*8), rows, 8), Y: NewTensor(numbers(rows*2), rows, 2)}
	compile := func(m *Model) {
		t.Helper()
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.MeanSquaredError{}}))
	}
	for _, from := range policies {
		underPolicy(t, from)
		m := blocks(t)
		compile(m)
		start, err := m.GetWeights()
		check(t, err)
		for _, to := range policies {
			what := fmt.Sprintf("%s cloned under %s", from, to)
			underPolicy(t, to)
			want := blocks(t)
			compile(want)
			c, err := m.Clone(to)
			check(t, err)
			compile(c)
			var state [2][]byte
			var logs [2]Logs
			var plans [2]MemoryPlan
			for i, x := range []*Model{c, want} {
				check(t, x.SetWeights(start))
				plans[i], err = x.PlanMemory(b)
				check(t, err)
				for range 2 {
					logs[i], err = x.TrainOnBatch(background, b)
					check(t, err)
				}
				y, err := x.Predict(background, b.X)
				check(t, err)
				data, err := y.Bytes()
				check(t, err)
				state[i] = append(data, flat(bits(t, x))...)
			}
			if string(state[0]) != string(state[1]) || logs[0].Get("loss") != logs[1].Get("loss") {
				t.Errorf("%s: got losses %v, built under it %v: other bits", what, logs[0], logs[1])
			}
			if plans[0] != plans[1] {
				t.Errorf("%s: got memory %v, want %v", what, plans[0], plans[1])
			}
			got, err := m.MaxBatch(b, 1<<20, to)
			check(t, err)
			most, err := want.MaxBatch(b, 1<<20, "")
			check(t, err)
			if got != most {
				t.Errorf("%s: got a batch of at most %d, want %d", what, got, most)
			}
		}
	}
}

func flat(all [][]byte) (out []byte) {
	for _, b := range all {
		out = append(out, b...)
	}
	return out
}

// TestCloneWrapped: a model in a wrapper is cloned with it.
func TestCloneWrapped(t *testing.T) {
	for _, name := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		underPolicy(t, name)
		m := Sequential(&layers.TimeDistributed{Layer: Sequential(&layers.Dense{Units: 3}).Layer()})
		check(t, m.Build(4, 5))
		c, err := m.Clone(name)
		check(t, err)
		w, err := m.GetWeights()
		check(t, err)
		check(t, c.SetWeights(w))
		x := NewTensor(numbers(2*4*5), 2, 4, 5)
		var y [2]*Tensor
		for i, m := range []*Model{m, c} {
			y[i], err = m.Predict(background, x)
			check(t, err)
		}
		if got, want := values(t, y[1]), values(t, y[0]); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
