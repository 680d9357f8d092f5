package optimizers

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

// rateAt is the rate of s after so many steps.
func rateAt(t *testing.T, s Schedule, step float64) float64 {
	t.Helper()
	rate, err := scheduled(s, tensor.New([]float32{float32(step)})).Item()
	if err != nil {
		t.Fatal(err)
	}
	return rate
}

// closeRate compares a rate with that of Keras, which is at most top. Both round
// about a dozen times, half an epsilon each.
func closeRate(t *testing.T, what string, got, want, top float64) {
	t.Helper()
	within(t, what, []float64{got}, []float64{want}, 12*dtype.Float32.Epsilon()*top)
}

func TestGoldenSchedules(t *testing.T) {
	f := tensortest.Load(t, golden+"schedules.json")
	classes := map[string]bool{}
	for _, c := range f.Cases {
		t.Run(c.Name, func(t *testing.T) {
			s := caseSchedule(t, &c)
			want := c.Outputs["rate"].Data
			for i, step := range c.Inputs["step"].Data {
				closeRate(t, c.Name, rateAt(t, s, step), want[i], largest(want))
			}
			classes[c.Class()] = true
		})
	}
	if len(classes) != len(schedules) {
		t.Errorf("got cases of %d classes, want %d", len(classes), len(schedules))
	}
}

// caseSchedule makes the schedule of a golden case.
func caseSchedule(t *testing.T, c *tensortest.Case) Schedule {
	t.Helper()
	config := map[string]json.RawMessage{}
	for k, v := range c.Config {
		if k != "class_name" {
			config[k] = v
		}
	}
	b, err := json.Marshal(object{Class: c.Class(), Config: config})
	if err != nil {
		t.Fatal(err)
	}
	s, err := UnmarshalSchedule(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Numbers from Keras's learning_rate_schedule_test.py.
func TestKerasSchedules(t *testing.T) {
	piecewise := &PiecewiseConstantDecay{Boundaries: []float64{100, 110, 120}, Values: []float64{1, 0.1, 0.01, 0.001}}
	cosine := &CosineDecay{InitialLearningRate: 1, DecaySteps: 1000}
	warm := &CosineDecay{DecaySteps: 1000, WarmupTarget: new(10.0), WarmupSteps: 1500}
	for _, c := range []struct {
		s          Schedule
		step, want float64
	}{
		{&ExponentialDecay{InitialLearningRate: 0.05, DecaySteps: 10, DecayRate: 0.96}, 5, 0.05 * math.Sqrt(0.96)},
		{&ExponentialDecay{InitialLearningRate: 0.1, DecaySteps: 3, DecayRate: 0.96, Staircase: true}, 100, 0.1 * math.Pow(0.96, 33)},
		{piecewise, -999, 1}, {piecewise, 100, 1}, {piecewise, 105, 0.1}, {piecewise, 110, 0.1}, {piecewise, 120, 0.01}, {piecewise, 999, 0.001},
		{&PolynomialDecay{InitialLearningRate: 0.05, DecaySteps: 10, EndLearningRate: new(0.0)}, 5, 0.025},
		{&PolynomialDecay{InitialLearningRate: 0.05, DecaySteps: 10, EndLearningRate: new(0.001)}, 15, 0.001},
		{&PolynomialDecay{InitialLearningRate: 0.05, DecaySteps: 10, EndLearningRate: new(0.001), Cycle: true}, 15, 0.01325},
		{&PolynomialDecay{InitialLearningRate: 0.05, DecaySteps: 10, EndLearningRate: new(0.0), Power: 0.5}, 5, 0.05 * math.Sqrt(0.5)},
		{&InverseTimeDecay{InitialLearningRate: 0.1, DecaySteps: 10, DecayRate: 0.96}, 7, 0.1 / (1 + 0.096*7)},
		{&InverseTimeDecay{InitialLearningRate: 0.1, DecaySteps: 10, DecayRate: 0.96, Staircase: true}, 27, 0.1 / (1 + 0.96*2)},
		{cosine, 0, 1}, {cosine, 250, 0.8535534}, {cosine, 500, 0.5}, {cosine, 750, 0.1464466}, {cosine, 1000, 0}, {cosine, 1001, 0},
		{&CosineDecay{InitialLearningRate: 1, DecaySteps: 1000, Alpha: 0.1}, 250, 0.9*0.8535534 + 0.1},
		{warm, 0, 0}, {warm, 750, 5}, {warm, 1500, 10}, {warm, 1750, 8.535534},
		{&CosineDecayRestarts{InitialLearningRate: 1, FirstDecaySteps: 1000}, 1250, 0.9619398},
		{&CosineDecayRestarts{InitialLearningRate: 1, FirstDecaySteps: 1000, TMul: 1}, 1250, 0.8535534},
		{&CosineDecayRestarts{InitialLearningRate: 1, FirstDecaySteps: 1000, MMul: 0.9}, 1250, 0.8657458},
	} {
		// 5e-8: half of the last digit of Keras's numbers.
		within(t, "rate", []float64{rateAt(t, c.s, c.step)}, []float64{c.want}, 12*dtype.Float32.Epsilon()*max(1, c.want)+5e-8)
	}
}

// TestRestartsAtTheStep: no period starts a step early or late, though it is
// found by logarithms.
func TestRestartsAtTheStep(t *testing.T) {
	for _, tMul := range []float64{2, 3, 10} {
		s := &CosineDecayRestarts{InitialLearningRate: 1, FirstDecaySteps: 7, TMul: tMul}
		for start, length := 0.0, 7.0; start < 1e5; start, length = start+length, length*tMul {
			if got := rateAt(t, s, start); got != 1 {
				t.Errorf("TMul %v, step %v: got %v, want 1", tMul, start, got)
			}
			if got := rateAt(t, s, start+length-1); got > 0.1 {
				t.Errorf("TMul %v, step %v: got %v, want almost 0", tMul, start+length-1, got)
			}
		}
	}
}

// TestOneCycleEnds: PyTorch fails after the last step; here the rate stays.
func TestOneCycleEnds(t *testing.T) {
	for _, three := range []bool{false, true} {
		for _, anneal := range []string{"", "linear"} {
			s := &OneCycle{MaxLearningRate: 1, TotalSteps: 10, ThreePhase: three, AnnealStrategy: anneal}
			for _, step := range []float64{9, 10, 1000} {
				closeRate(t, "end", rateAt(t, s, step), 1.0/25/1e4, 1)
			}
		}
	}
	// A first phase without length: the top is where it starts.
	if got := rateAt(t, &OneCycle{MaxLearningRate: 1, TotalSteps: 10, PctStart: 0.1}, 0); got != 1 {
		t.Errorf("PctStart 0.1: got %v, want 1", got)
	}
}

// TestSchedulesCompileOnce: the rate of every schedule is computed in the step,
// from the applied steps.
func TestSchedulesCompileOnce(t *testing.T) {
	f := tensortest.Load(t, golden+"schedules.json")
	for _, c := range f.Cases {
		s := caseSchedule(t, &c)
		o := &SGD{Schedule: s, GradientAccumulationSteps: 2}
		v := variable("v", dtype.Float32, []float64{0}, 1)
		fn := applier(o, v)
		var want float64
		for call := range 6 {
			run(t, fn, f32(1))
			if call%2 == 1 {
				want -= rateAt(t, s, float64(call/2))
			}
			// Each of the at most three steps rounds once.
			within(t, c.Name, floats(t, v), []float64{want}, 3*dtype.Float32.Epsilon()*math.Abs(want))
		}
		if fn.Programs() != 1 && backend.Keeps(backend.Plans) {
			t.Errorf("%s: %d programs, want 1", c.Name, fn.Programs())
		}
	}
}

func TestScheduleFollowsAppliedSteps(t *testing.T) {
	o := &SGD{Schedule: &ExponentialDecay{InitialLearningRate: 1, DecaySteps: 1, DecayRate: 0.5}}
	lso := &LossScaleOptimizer{Inner: o}
	v := variable("v", dtype.Float32, []float64{0}, 1)
	fn := scaledApplier(lso, v)
	for _, g := range []float32{1, float32(math.Inf(1)), 1, 1} {
		run(t, fn, f32(g))
	}
	within(t, "weights", floats(t, v), []float64{-1.75}, 0) // 1, ½ and ¼; the skipped step does not count
	rate, err := lso.CurrentLearningRate()
	if err != nil || rate != 0.125 {
		t.Errorf("rate: got %v, %v, want 0.125", rate, err)
	}
	const want = "optimizer sgd: SetLearningRate: the rate is determined by the Schedule *optimizers.ExponentialDecay"
	if err := lso.SetLearningRate(1); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestScheduleErrors: what makes no sense fails when it is recorded.
func TestScheduleErrors(t *testing.T) {
	for _, c := range []struct {
		s    Schedule
		want string
	}{
		{&InverseTimeDecay{InitialLearningRate: 1, DecayRate: 1}, "InverseTimeDecay: DecaySteps: got 0, want a positive number"},
		{&PiecewiseConstantDecay{Boundaries: []float64{1}, Values: []float64{1}}, "PiecewiseConstantDecay: Values: got 1, want 2: one more than there are Boundaries"},
		{&PiecewiseConstantDecay{Boundaries: []float64{2, 2}, Values: []float64{1, 2, 3}}, "PiecewiseConstantDecay: Boundaries[1]: got 2, want more than 2"},
		{&PiecewiseConstantDecay{Values: []float64{-1}}, "PiecewiseConstantDecay: Values[0]: got -1, want a number that is not negative"},
		{&PolynomialDecay{DecaySteps: 1}, "PolynomialDecay: InitialLearningRate: got 0, want a positive number"},
		{&CosineDecay{DecaySteps: 1}, "CosineDecay: InitialLearningRate: got 0, want a positive number"},
		{&CosineDecay{InitialLearningRate: 1, DecaySteps: 1, Alpha: math.NaN()}, "CosineDecay: Alpha: got NaN, want a number that is not negative"},
		{&CosineDecayRestarts{InitialLearningRate: 1, FirstDecaySteps: 1, TMul: 0.5}, "CosineDecayRestarts: TMul: got 0.5, want at least 1"},
		{&OneCycle{MaxLearningRate: 1, TotalSteps: 1}, "OneCycle: TotalSteps: got 1, want at least 2"},
		{&OneCycle{MaxLearningRate: 1, TotalSteps: 9, PctStart: 30}, "OneCycle: PctStart: got 30, want more than 0 and at most 1"},
		{&OneCycle{MaxLearningRate: 1, TotalSteps: 9, AnnealStrategy: "cosine"}, `OneCycle: AnnealStrategy: got "cosine", want "cos" or "linear"`},
	} {
		o := &SGD{Schedule: c.s}
		if _, err := o.CurrentLearningRate(); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// TestScheduleConfigs: every golden case survives being written down and read.
func TestScheduleConfigs(t *testing.T) {
	f := tensortest.Load(t, golden+"schedules.json")
	for _, c := range f.Cases {
		want := caseSchedule(t, &c)
		b, err := MarshalSchedule(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := UnmarshalSchedule(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v from %s", c.Name, got, err, want, b)
		}
	}
}
