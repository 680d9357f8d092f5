//go:build js

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"syscall/js"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Every so often the worker looks for messages between two steps.
const look = 40 * time.Millisecond

// A worker has the model of a page. Messages from the page, by their type:
//
//	train {policy, epochs, batch}   stop   save
//	draw {ink, width, height}       sample
//
// and to it:
//
//	ready   step   epoch   done   file   error   prediction {pixels, probabilities}
type worker struct {
	model    *keras.Model
	messages []js.Value    // received and not answered yet
	arrived  chan struct{} // has an element when there are messages
	training *keras.Run    // nil when nothing is trained
	test     []byte        // images to choose samples from
}

func main() {
	w := &worker{arrived: make(chan struct{}, 1)}
	js.Global().Set("onmessage", js.FuncOf(func(_ js.Value, args []js.Value) any {
		w.messages = append(w.messages, args[0].Get("data"))
		select {
		case w.arrived <- struct{}{}:
		default: // it has been told already
		}
		return nil
	}))
	err := w.build("float32")
	if err != nil {
		post("error", fields{"text": err.Error()})
		return
	}
	post("ready", nil)
	for range w.arrived {
		w.answer()
	}
}

type fields map[string]any

// post sends a message to the page.
func post(kind string, f fields) {
	message := map[string]any{"type": kind}
	for k, v := range f {
		message[k] = v
	}
	js.Global().Call("postMessage", message)
}

// answer answers the messages that have arrived.
func (w *worker) answer() {
	for len(w.messages) > 0 {
		m := w.messages[0]
		w.messages = w.messages[1:]
		if err := w.handle(m); err != nil {
			post("error", fields{"text": err.Error()})
		}
	}
}

func (w *worker) handle(m js.Value) error {
	switch kind := m.Get("type").String(); kind {
	case "train":
		if w.training != nil {
			return nil // one at a time
		}
		return w.train(m.Get("policy").String(), m.Get("epochs").Int(), m.Get("batch").Int())
	case "stop":
		if w.training != nil {
			w.training.Stop = true
		}
		return nil
	case "draw":
		ink := make([]byte, m.Get("ink").Length())
		js.CopyBytesToGo(ink, m.Get("ink"))
		return w.predict(center(ink, m.Get("width").Int(), m.Get("height").Int()))
	case "sample":
		if w.test == nil {
			w.test, _ = digits.Raw(500, 2)
		}
		x := make([]float32, side*side)
		for i, v := range w.test[rand.IntN(len(w.test)/len(x))*len(x):][:len(x)] {
			x[i] = float32(v) / 255
		}
		return w.predict(x)
	case "save":
		var b bytes.Buffer
		if err := saving.Write(&b, w.model); err != nil {
			return err
		}
		post("file", fields{"bytes": uint8Array(b.Bytes())})
		return nil
	default:
		return fmt.Errorf("unknown message %q", kind)
	}
}

// build makes the guide's model, with random weights.
func (w *worker) build(policyName string) error {
	policy.SetGlobal(policyName)
	model := keras.Sequential(
		&layers.Dense{Units: 64, Activation: "relu", Name: "dense_1"},
		&layers.Dense{Units: 64, Activation: "relu", Name: "dense_2"},
		&layers.Dense{Units: 10, Name: "dense_logits"},
		// Softmax and the model's output are float32.
		&layers.Activation{Activation: "softmax", DType: "float32", Name: "predictions"},
	)
	err := model.Compile(keras.CompileConfig{
		Loss:      &losses.SparseCategoricalCrossentropy{},
		Optimizer: &optimizers.RMSprop{},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err == nil {
		err = model.Build(side * side)
	}
	if err == nil {
		w.model = model
	}
	return err
}

// train trains a new model and tells the page of every step.
func (w *worker) train(policyName string, epochs, batch int) error {
	if err := w.build(policyName); err != nil {
		return err
	}
	train, test, err := digits.Load()
	if err != nil {
		return err
	}
	defer func() { w.training = nil }()
	ctx := context.Background()
	looked := time.Now()
	began := looked
	var sums [2]float64 // of loss and accuracy, over the steps of the epoch
	hooks := keras.Callback{
		TrainBegin: func(_ context.Context, r *keras.Run) error { w.training = r; return nil },
		EpochBegin: func(context.Context, *keras.Run) error { sums = [2]float64{}; return nil },
		BatchBegin: func(context.Context, *keras.Run) error { began = time.Now(); return nil },
		BatchEnd: func(_ context.Context, r *keras.Run) error {
			logs, err := r.Read() // means of the epoch so far
			if err != nil {
				return err
			}
			took := time.Since(began)
			f := fields{"epoch": r.Epoch + 1, "step": r.Step, "steps": r.Steps, "milliseconds": took.Seconds() * 1e3}
			for i, name := range []string{"loss", "accuracy"} {
				sum := logs.Get(name) * float64(r.Step)
				f[name], sums[i] = sum-sums[i], sum // of this step alone
			}
			post("step", f)
			if time.Since(looked) > look {
				// WebAssembly has one thread: messages arrive only while Go sleeps.
				time.Sleep(time.Millisecond)
				w.answer()
				looked = time.Now()
			}
			return nil
		},
		EpochEnd: func(_ context.Context, r *keras.Run) error {
			f := fields{"epoch": r.Epoch + 1, "epochs": epochs}
			for _, name := range []string{"loss", "accuracy", "val_loss", "val_accuracy"} {
				f[name] = r.Logs.Get(name)
			}
			post("epoch", f)
			return nil
		},
	}
	_, err = w.model.Fit(ctx, train, keras.FitConfig{
		BatchSize:       batch,
		Epochs:          epochs,
		ValidationSplit: 0.2,
		Verbose:         keras.VerbositySilent,
		Callbacks:       []keras.Callback{hooks},
	})
	if err != nil {
		return err
	}
	scores, err := w.model.Evaluate(ctx, test)
	if err != nil {
		return err
	}
	post("done", fields{"accuracy": scores.Get("accuracy"), "loss": scores.Get("loss")})
	return nil
}

// predict classifies an image; nil is an empty one.
func (w *worker) predict(image []float32) error {
	if image == nil {
		image = make([]float32, side*side)
	}
	y, err := w.model.Predict(context.Background(), keras.NewTensor(image, 1, len(image)))
	if err != nil {
		return err
	}
	p, err := y.Values()
	if err != nil {
		return err
	}
	y.Release()
	probabilities := make([]any, len(p))
	for i, v := range p {
		probabilities[i] = v
	}
	pixels := make([]byte, len(image))
	for i, v := range image {
		pixels[i] = byte(v*255 + 0.5)
	}
	post("prediction", fields{"pixels": uint8Array(pixels), "probabilities": probabilities})
	return nil
}

func uint8Array(b []byte) js.Value {
	a := js.Global().Get("Uint8Array").New(len(b))
	js.CopyBytesToJS(a, b)
	return a
}
