package keras

import (
	"context"
	"log/slog"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// event reports an event to FitConfig.Logger, with the epoch and the step. Both count
// from 1; the step is the last completed one.
func (f *fitting) event(ctx context.Context, level slog.Level, message string, args ...any) {
	if f.c.Logger != nil {
		f.c.Logger.Log(ctx, level, message, append([]any{slog.Int("epoch", f.run.Epoch+1), slog.Int("step", f.run.Step)}, args...)...)
	}
}

// begins logs the device of the training, and whether it is not the first choice.
func (f *fitting) begins(ctx context.Context) {
	if f.c.Logger == nil {
		return
	}
	if name, err := backend.Fallback(); err != nil {
		f.event(ctx, slog.LevelWarn, "device fallback", slog.String("wanted", name), slog.Any("error", err))
	}
	if text := f.m.outdated(); text != "" {
		f.event(ctx, slog.LevelWarn, "policy set too late", slog.String("text", text))
	}
	f.event(ctx, slog.LevelInfo, "fit begins", slog.String("model", f.m.name), slog.Int("epochs", f.c.Epochs), slog.String("device", policy.EffectiveText()))
}

// scaled tells of a step that was skipped, and of a new loss scale.
func (f *fitting) scaled(ctx context.Context, now optimizers.StepResult) {
	last := f.last
	f.last = now
	if n := now.SkippedSteps - last.SkippedSteps; n > 0 {
		f.event(ctx, slog.LevelWarn, "step skipped", slog.Int64("skipped_steps", now.SkippedSteps), slog.Float64("loss_scale", now.LossScale))
	}
	if last.LossScale != 0 && last.LossScale != now.LossScale {
		f.event(ctx, slog.LevelInfo, "loss scale changed", slog.Float64("from", last.LossScale), slog.Float64("to", now.LossScale))
	}
}

// attrs are the numbers of an epoch as attributes of an event.
func (l Logs) attrs() []any {
	out := make([]any, len(l))
	for i, x := range l {
		out[i] = slog.Float64(x.Name, x.Value)
	}
	return out
}
