package keras

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// kept is a Checkpointer in memory.
type kept struct{ last *State }

func (k *kept) Load(context.Context) (*State, error)   { return k.last, nil }
func (k *kept) Save(_ context.Context, s *State) error { k.last = s; return nil }

// TestEvents: what a Logger is told of a training that skips steps, is
// interrupted and resumed.
func TestEvents(t *testing.T) {
	underPolicy(t, "mixed_float16")
	memory := &kept{}
	run := func(ctx context.Context, hook func(*Run)) string {
		var out bytes.Buffer
		text := slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "took", "loss", "gradient_norm", "device":
				return slog.Attr{}
			}
			return a
		}})
		m := Sequential(&layers.Dense{Units: 2})
		check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.LossScaleOptimizer{
			Inner: &optimizers.SGD{LearningRate: 1e-3}, InitialScale: 1 << 23, DynamicGrowthSteps: 3}}))
		x := NewTensor(numbers(16*3), 16, 3)
		_, err := m.Fit(ctx, FromTensors(x, NewTensor(numbers(16*2), 16, 2), nil), silent(FitConfig{BatchSize: 4, Epochs: 2, Checkpoint: memory,
			Logger: slog.New(text), Callbacks: []Callback{{BatchEnd: func(_ context.Context, r *Run) error { hook(r); return nil }}}}))
		if ctx.Err() == nil {
			check(t, err)
		}
		return out.String()
	}
	ctx, cancel := context.WithCancel(background)
	first := run(ctx, func(r *Run) {
		if r.Epoch == 1 && r.Step == 2 {
			cancel()
		}
	})
	second := run(background, func(*Run) {})
	for _, c := range []struct{ got, want string }{
		{first, `^level=INFO msg="fit begins" epoch=1 step=0 model=sequential epochs=2\n`},
		{first, `level=WARN msg="step skipped" epoch=1 step=1 skipped_steps=1 loss_scale=\S+\n`},
		{first, `level=INFO msg="loss scale changed" epoch=1 step=\d from=8.388608e\+06 to=4.194304e\+06\n`},
		{first, `level=INFO msg="epoch done" epoch=1 step=4 loss_scale=\S+ skipped_steps=\d learning_rate=0.0010\d*\nlevel=INFO msg="checkpoint saved" epoch=1 step=4\n`},
		{first, `level=INFO msg="checkpoint saved" epoch=2 step=2\nlevel=WARN msg=interrupted epoch=2 step=2 saved=true error="context canceled"\n$`},
		{second, `^level=INFO msg="fit begins" epoch=1 step=0 model=sequential epochs=2\nlevel=INFO msg="training resumed" epoch=2 step=2\n`},
		{second, `level=INFO msg="checkpoint saved" epoch=2 step=4\n$`},
	} {
		if !regexp.MustCompile(c.want).MatchString(c.got) {
			t.Errorf("got\n%swant %s", c.got, c.want)
		}
	}
	if strings.Contains(first+second, "fallback") {
		t.Errorf("a fallback where there is no other device:\n%s", first)
	}
}
