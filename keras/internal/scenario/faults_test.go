package scenario

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	faulty     = flag.Bool("faults", false, "seed faults in copies of the module and say which tests catch each: takes an hour")
	firstFault = flag.Int("first-fault", 0, "only faults from this one on, counted from 0")
	faultName  = flag.String("fault", "", "only faults whose name contains this")
)

// fault is a mistake that one could make: a text of a file, and what stands
// there by mistake. What it is and does is for docs/testing.md.
type fault struct {
	name, file, right, wrong string
	suite                    string // packages whose own tests are to see it
}

// faults are seeded one at a time.
var faults = []fault{
	{"an update in place leaves the version", "backend/cpu/program.go", "slices.Contains(g.Donated, v.Slot.Index)})", "false})", "./backend/cpu"},
	{"CopyIn leaves the version", "backend/cpu/buffer.go", "copy(b.beginWrite(), src)\n\tb.endWrite()", "copy(b.storage, src)", "./backend/cpu"},
	{"kept recurrent kernels are always believed", "backend/cpu/internal/recurrent/recurrent.go", "good, _ = r.PackedCopy(first.cached, first.src)", "before := r.Packed[first.cached].Data != nil\n\t\t\tgood, _ = r.PackedCopy(first.cached, first.src)\n\t\t\tgood = good || before", "./backend/cpu"},
	{"a 16-bit copy of a weight is never brought up to date", "backend/tensor/shadow.go", "read && !h.current()", "read && len(h.made) == 0", "./backend/tensor"},
	{"a folded kernel is compared with the version of one of its variables", "backend/tensor/shadow.go", "slices.Equal(h.made, h.now) &&", "len(h.made) > 0 && h.made[0] == h.now[0] &&", "./backend/tensor"},
	{"a step writes the 16-bit copy of the old weight", "backend/tensor/record.go", "t = t.Cast(w.shadow.typ.DType)", "t = w.variable.leaf.Cast(w.shadow.typ.DType)", "./backend/tensor"},
	{"a variable that was handed out is overwritten", "backend/tensor/variable.go", "if v.value == nil {\n\t\treturn nil", "if v.value == nil || v.value.variable == v {\n\t\treturn nil", "./backend/tensor"},
	{"a plan is used for another shape", "backend/tensor/plan.go", "if !a.typ.Equal(p.types[i]) ||", "if a.typ.DType != p.types[i].DType ||", "./backend/tensor"},
	{"a result is released twice", "backend/tensor/plan.go", "if !slices.Contains(t.home.tensors, t) {", "if t.home.tensors == nil || true {", "./backend/tensor"},
	{"equal operations with exchanged arguments are one", "backend/ir/cse.go", "for _, x := range v.Args {\n\t\tk = binary.AppendUvarint(k, uint64(x.ID))\n\t}", "ids := uint64(0)\n\tfor _, x := range v.Args {\n\t\tids += uint64(x.ID)\n\t}\n\tk = binary.AppendUvarint(k, ids)", "./backend/ir"},
	{"memory is used again one value too soon", "backend/ir/slots.go", "b.last = end\n\t\t\t}\n\t\t}\n\t\tif v.Slot", "b.last = max(b.first, end-1)\n\t\t\t}\n\t\t}\n\t\tif v.Slot", "./backend/ir"},
	{"an update does not wait for who reads the old value", "backend/ir/donate.go", "if w := writer[source(a)]; w != nil && w != v {", "if w := writer[source(a)]; w != nil && w != v && len(before) == 0 {", "./backend/ir"},
	{"operands of a product's gradient exchanged", "backend/tensor/gradients.go", "both(t, g.Mul(t.args[1]), g.Mul(t.args[0]))", "both(t, g.Mul(t.args[0]), g.Mul(t.args[1]))", "./backend/tensor"},
	{"the gradient of a divisor has the wrong sign", "backend/tensor/gradients.go", "return both(t, d, d.Mul(t).Neg())", "return both(t, d, d.Mul(t))", "./backend/tensor"},
	{"a skipped step moves statistics", "backend/tensor/capture.go", "v.bound = Where(cond, v.bound, v.leaf)", "v.bound = Where(cond, v.bound, v.bound)", "./optimizers"},
	{"a step that is not finite is applied", "optimizers/lossscale.go", "tensor.Predicated(finite, func() { o.Inner.ApplyGradients(widened, vars) })", "o.Inner.ApplyGradients(widened, vars)", "./optimizers"},
	{"the loss scale grows one step late", "optimizers/lossscale.go", "grown := good.GreaterEqual(", "grown := good.Greater(", "./optimizers"},
	{"a window of accumulated gradients is one call short", "optimizers/state.go", "last = step.Equal(tensor.Scalar(dtype.Int64, float64(n-1)))", "last = step.Equal(tensor.Scalar(dtype.Int64, float64(max(0, n-2))))", "./optimizers"},
	{"the second SwapEMA does not give the weights back", "optimizers/ema.go", "w = back[v]", "_ = back[v]", "./optimizers"},
	{"checkpoints leave the optimizer out", "keras/state.go", "for _, p := range parts {\n\t\tif err := SetArrays", "for _, p := range parts[:1] {\n\t\tif err := SetArrays", "./keras/checkpoint"},
	{"an evaluation adds to the one before", "keras/evaluate.go", "if n == 0 {\n\t\t\tif err := t.restart(", "if n < 0 {\n\t\t\tif err := t.restart(", "./keras"},
	{"momentum and its complement exchanged in batch normalization", "layers/normalization.go", "MulScalar(b.momentum).Add(batch.MulScalar(1 - b.momentum))", "MulScalar(1 - b.momentum).Add(batch.MulScalar(b.momentum))", "./layers"},
	{"dropout draws the same numbers in each step", "layers/weight.go", "now.Add(tensor.New([]int64{0, 1}, 2))", "now.Add(tensor.New([]int64{0, 0}, 2))", "./layers"},
	{"dropout of channels at inference", "layers/dropout.go", "if !p.Training || rate == 0 || x.Symbolic() {", "if rate == 0 || x.Symbolic() {", "./layers"},
	{"a mask inverted", "layers/embedding.go", "x.NotEqual(tensor.Scalar(x.DType(), 0))", "x.Equal(tensor.Scalar(x.DType(), 0))", "./layers"},
	{"a tail left out of element-wise loops", "backend/cpu/internal/elementwise/elementwise.go", "\t\tn := min(step, hi-lo)\n\t\tif rows", "\t\tn := min(step, hi-lo)\n\t\tif n > 16 && n%2 == 1 {\n\t\t\tn--\n\t\t}\n\t\tif rows", "./backend/cpu"},
	{"sums are cut by the number of workers", "backend/cpu/internal/reduce/reduce.go", "tiling.CeilDiv(k.count, tiling.RoundUp(k.segments, 2))", "tiling.CeilDiv(k.count, tiling.RoundUp(k.segments, 2*runtime.GOMAXPROCS(0)))", "./backend/cpu"},
	{"float32 results go through 16 bits", "layers/internal/support/tensors.go", "t = t.Widen()", "_ = t", "./layers"},
	{"state that is loaded goes to the variable before", "keras/state.go", "data[i] = arrays[i].Data", "data[i] = arrays[i].Data\n\t\tif i+1 < len(vs) && vs[i].Type().Equal(vs[i+1].Type()) {\n\t\t\tdata[i] = arrays[i+1].Data\n\t\t}", "./keras/checkpoint"},
	{"an input is not cast to the compute type", "layers/layer.go", "if !b.uncast {\n", "if !b.uncast && false {\n", "./layers"},
	{"a schedule is a step ahead", "optimizers/state.go", "scheduled(schedule, b.iterations.Value().Cast", "scheduled(schedule, b.iterations.Value().AddScalar(1).Cast", "./optimizers"},
	{"early stopping gives back the weights of the last epoch", "keras/callbacks/earlystopping.go", "e.wait++\n", "e.wait++\n\tif e.RestoreBestWeights {\n\t\tif e.weights, err = r.Model.GetWeights(); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n", "./keras/callbacks"},
}

// TestFaults seeds each fault in a copy of the module and prints which tests
// catch it, as a table of docs/testing.md. It fails if a fault is caught by none.
func TestFaults(t *testing.T) {
	if !*faulty {
		t.Skip("seeding faults takes an hour; run it with -faults")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("| fault | check | scenarios | random programs | the package's own tests |\n|---|---|---|---|---|")
	for i, f := range faults {
		if i < *firstFault || !strings.Contains(f.name, *faultName) {
			continue
		}
		module := filepath.Join(t.TempDir(), "module")
		if err := f.seed(root, module); err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		here := filepath.Join(module, "keras/internal/scenario")
		binary := filepath.Join(module, "scenario.test")
		if said, ok := command(module, 5*time.Minute, nil, "go", "test", "-vet=off", "-c", "-o", binary, "./keras/internal/scenario"); !ok {
			t.Errorf("%s: it does not compile:\n%s", f.name, said)
			continue
		}
		caught := func(env []string, word string, args ...string) string {
			args = append(args, "-test.failfast", "-test.timeout=4m", "-reduce=false")
			said, ok := command(here, 5*time.Minute, env, binary, args...)
			if strings.Contains(said, "panic: test timed out") {
				t.Logf("%s: %q takes more than four minutes, which says nothing", f.name, args)
				return ""
			}
			if ok || word != "" && !strings.Contains(said, word) {
				return ""
			}
			return "caught"
		}
		check := caught([]string{"MEZZO_DEBUG=check"}, "check: ", "-test.short", "-test.run=^TestScenarios$")
		whole := caught(nil, "", "-test.short", "-test.run=^TestScenarios$")
		random := caught(nil, "", "-programs=60", "-test.run=^TestPrograms$")
		if whole == "" {
			whole = caught(nil, "", "-every", "-test.run=^TestScenarios$")
		}
		own := "not run" // it takes longest
		if len(check+whole+random) < 2*len("caught") {
			own = ""
			if _, ok := command(module, 10*time.Minute, nil, "go", "test", "-vet=off", "-short", "-failfast", f.suite); !ok {
				own = "caught"
			}
		}
		fmt.Printf("| %s | %s | %s | %s | %s |\n", f.name, check, whole, random, own)
		if check+whole+random+own == "" {
			t.Errorf("%s: nothing catches it", f.name)
		}
		if err := os.RemoveAll(module); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSeeds: each fault stands where it is to be seeded.
func TestSeeds(t *testing.T) {
	for _, f := range faults {
		text, err := os.ReadFile(filepath.Join("../../..", f.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), f.right); n != 1 {
			t.Errorf("%s: %s has %q %d times, want once", f.name, f.file, f.right, n)
		}
	}
}

// seed copies the module's Go files, assembly and test data from root to module
// and makes the mistake there.
func (f fault) seed(root, module string) error {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && rel != "." {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(module, rel), 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(module, rel), data, 0o644)
	})
	if err != nil {
		return err
	}
	path := filepath.Join(module, f.file)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(data)
	if n := strings.Count(text, f.right); n != 1 {
		return fmt.Errorf("%s has %q %d times, want once", f.file, f.right, n)
	}
	text = strings.Replace(text, f.right, f.wrong, 1)
	if strings.Contains(f.wrong, "runtime.") && !strings.Contains(text, "\t\"runtime\"\n") {
		text = strings.Replace(text, "import (\n", "import (\n\t\"runtime\"\n", 1)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// command runs a program in a directory and returns what it printed, and
// whether it succeeded in time.
func command(dir string, limit time.Duration, env []string, name string, args ...string) (said string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return string(out), err == nil
}
