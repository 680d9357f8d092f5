package keras

import (
	"runtime"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestMeasuredMemory: what the device has given away after some steps is what
// PlanMemory said, to the byte. Sizes are those of no other test, whose
// programs would be there already.
func TestMeasuredMemory(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	if backend.DebugFromEnv().Check {
		t.Skip("MEZZO_DEBUG=check casts weights to memory of its own")
	}
	// Helpers of other tests' programs have kept their scratch memory.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	device, err := backend.Open("cpu")
	check(t, err)
	const steps, features = 11, 19
	for name, list := range map[string]func() []layers.Layer{
		"dense": func() []layers.Layer {
			return []layers.Layer{&layers.Flatten{}, &layers.Dense{Units: 67, Activation: "gelu"}}
		},
		"lstm": func() []layers.Layer {
			return []layers.Layer{&layers.LSTM{Units: 23, ReturnSequences: true}, &layers.LSTM{Units: 29}}
		},
		"gru": func() []layers.Layer {
			return []layers.Layer{&layers.GRU{Units: 37, ReturnSequences: true}, &layers.SimpleRNN{Units: 31}}
		},
		"loop": func() []layers.Layer {
			return []layers.Layer{&layers.RNN{Cell: &layers.StackedRNNCells{Cells: []layers.Layer{&layers.LSTMCell{Units: 13}, &layers.GRUCell{Units: 17}}}}}
		},
		"conv": func() []layers.Layer {
			return []layers.Layer{&layers.Conv1D{Filters: 41, KernelSize: layers.PerAxis{3}}, &layers.MaxPooling1D{}, &layers.Flatten{}}
		},
	} {
		for _, p := range []string{"float32", "bfloat16", "float16", "mixed_float16", "mixed_bfloat16"} {
			underPolicy(t, p)
			backend.ForgetPrograms() // or those of other tests make room for these
			before := settled(device.(*cpu.Device).Held)
			m := Sequential(append(list(), dense(1))...)
			check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.MeanSquaredError{}}))
			b := Batch{X: NewTensor(numbers(43*steps*features), 43, steps, features), Y: NewTensor(numbers(43), 43, 1)}
			plan, err := m.PlanMemory(b)
			check(t, err)
			for range 3 {
				check(t, m.TrainStep(background, b))
			}
			if got := Bytes(settled(device.(*cpu.Device).Held) - before); got != plan.Peak {
				t.Errorf("%s, %s: the device has given away %d bytes, planned are %d: %+v", name, p, got, plan.Peak, plan)
			}
			runtime.KeepAlive(m)
			runtime.KeepAlive(b)
		}
	}
}

// settled is the memory that is held when nothing but garbage has been
// collected for a while.
func settled(held func() int) int {
	for same, last := 0, held(); ; {
		runtime.GC()
		time.Sleep(time.Millisecond) // cleanups run after it
		now := held()
		if same++; now != last {
			same, last = 0, now
		}
		if same == 4 {
			return now
		}
	}
}
