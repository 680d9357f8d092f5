package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/policy"
)

// Bundle is a training step with all that it depends on but the program: what it takes
// to compute it again, to the bit, in another process. Save writes it to a file.
type Bundle struct {
	Epoch, Step int // of Fit, where the step was the Step-th; from 1 on. 0: unknown
	Made        Origin

	Variables []keras.Array   // before the step, in the order of the owners
	Arguments []keras.Array   // of the step: the tensors of the batch
	Structure []int           // how they lie in the batch, see tensor.Flatten
	Values    []tensor.Digest // of every value, in order
}

// Origin says where a bundle was made.
type Origin struct {
	Device      string            // "cpu"
	Hardware    string            // as the system names it
	ISA         string            // instruction set of the kernels: "AVX2", "sm_90"
	Bits        string            // "portable" if bits do not depend on ISA (policy.SetBits), else empty
	Threads     int               // that computed
	Go          string            // version, operating system and architecture
	Policy      string            // the global policy's name
	Environment map[string]string // the variables MEZZO_… that were set
}

// Capture makes a bundle of the training step of m on b that comes next, and changes
// nothing. It runs the step once, with memory for every value. The model must be
// compiled.
func Capture(ctx context.Context, m *keras.Model, b keras.Batch) (*Bundle, error) {
	if m == nil {
		return nil, errors.New("doctor: Capture: the model is nil")
	}
	vs, err := m.StepVariables(b)
	if err != nil {
		return nil, fmt.Errorf("doctor: Capture: %w", err)
	}
	return capture(ctx, "Capture", b, vs, func(ctx context.Context, b keras.Batch) ([]tensor.Digest, error) { return m.Digests(ctx, b) })
}

// CaptureStep is Capture for a step of a custom loop. The owners have all variables that
// it reads or changes: the model, the optimizer, metrics.
func CaptureStep[In, Out any](ctx context.Context, step *tensor.Func[In, Out], in In, owners ...keras.Stateful) (*Bundle, error) {
	if step == nil {
		return nil, errors.New("doctor: CaptureStep: the step is nil")
	}
	vs, err := variablesOf(step, in, owners)
	if err != nil {
		return nil, fmt.Errorf("doctor: CaptureStep: %w", err)
	}
	return capture(ctx, "CaptureStep", in, vs, step.Digests)
}

// variablesOf lists the variables of the owners, once the step has made those that it
// makes.
func variablesOf[In, Out any](step *tensor.Func[In, Out], in In, owners []keras.Stateful) ([]*keras.Variable, error) {
	if _, err := step.MemoryOf(in); err != nil {
		return nil, err
	}
	var all []*keras.Variable
	for i, o := range owners {
		if o == nil {
			return nil, fmt.Errorf("owner %d is nil", i)
		}
		for _, v := range o.Variables() {
			if !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	return all, nil
}

// variables lists variables as an owner does.
type variables []*keras.Variable

func (v variables) Variables() []*keras.Variable { return v }

func capture[In any](ctx context.Context, what string, in In, vs []*keras.Variable, digests func(context.Context, In) ([]tensor.Digest, error)) (*Bundle, error) {
	fail := func(err error) (*Bundle, error) { return nil, fmt.Errorf("doctor: %s: %w", what, err) }
	b := &Bundle{}
	var err error
	if b.Made, err = Here(); err != nil {
		return fail(err)
	}
	if b.Variables, err = keras.ArraysOf(variables(vs)); err != nil {
		return fail(err)
	}
	ts, structure := tensor.Flatten(in)
	b.Structure = structure
	for i, t := range ts {
		data, err := t.Bytes()
		if err != nil {
			return fail(fmt.Errorf("argument %d: %w", i, err))
		}
		b.Arguments = append(b.Arguments, keras.Array{Name: "argument " + strconv.Itoa(i), Type: t.Type(), Data: data})
	}
	if b.Values, err = digests(ctx, in); err != nil {
		return fail(err)
	}
	return b, nil
}

// Here describes this process.
func Here() (o Origin, err error) {
	d, err := policy.Effective()
	if err != nil {
		return o, err
	}
	o = Origin{
		Device: d.Device, Hardware: d.Hardware, ISA: d.ISA, Bits: d.Bits, Threads: d.Threads,
		Go:     fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH),
		Policy: policy.Global().Name, Environment: map[string]string{},
	}
	for _, e := range os.Environ() {
		if name, value, _ := strings.Cut(e, "="); strings.HasPrefix(name, "MEZZO_") {
			o.Environment[name] = value
		}
	}
	return o, nil
}

// Batch returns the batch of a model's step.
func (b *Bundle) Batch() (keras.Batch, error) { return arguments[keras.Batch](b) }

func arguments[In any](b *Bundle) (in In, err error) {
	ts := make([]*tensor.Tensor, len(b.Arguments))
	for i, a := range b.Arguments {
		ts[i] = tensor.FromBytes(a.Type, a.Data)
	}
	in, err = tensor.Unflatten[In](b.Structure, ts)
	if err != nil {
		return in, fmt.Errorf("doctor: the arguments of the bundle: %w", err)
	}
	return in, nil
}

// Restore gives a compiled model, made as the one that the bundle is of, the state
// before the step. If variables differ in name or type it is an error, and none changes.
func (b *Bundle) Restore(m *keras.Model) error {
	if m == nil {
		return errors.New("doctor: Restore: the model is nil")
	}
	in, err := b.Batch()
	if err != nil {
		return err
	}
	vs, err := m.StepVariables(in)
	if err == nil {
		err = keras.SetArrays(b.Variables, variables(vs))
	}
	if err != nil {
		return fmt.Errorf("doctor: Restore: %w", err)
	}
	return nil
}

// Replay restores m and compares its step on the batch of the bundle, value by value.
// Afterwards m is in the state before the step, to be examined or trained further.
func (b *Bundle) Replay(ctx context.Context, m *keras.Model) (*Replayed, error) {
	if err := b.Restore(m); err != nil {
		return nil, err
	}
	return b.Compare(ctx, m)
}

// Compare is Replay from the state that m is in.
func (b *Bundle) Compare(ctx context.Context, m *keras.Model) (*Replayed, error) {
	if m == nil {
		return nil, errors.New("doctor: Compare: the model is nil")
	}
	in, err := b.Batch()
	if err != nil {
		return nil, err
	}
	got, err := m.Digests(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("doctor: Compare: %w", err)
	}
	return b.compare(got)
}

// ReplayStep is Replay for a step of a custom loop, with the owners that CaptureStep was
// given, made anew.
func ReplayStep[In, Out any](ctx context.Context, b *Bundle, step *tensor.Func[In, Out], owners ...keras.Stateful) (*Replayed, error) {
	if b == nil || step == nil {
		return nil, errors.New("doctor: ReplayStep: the bundle or the step is nil")
	}
	in, err := arguments[In](b)
	if err != nil {
		return nil, err
	}
	vs, err := variablesOf(step, in, owners)
	if err == nil {
		err = keras.SetArrays(b.Variables, variables(vs))
	}
	var got []tensor.Digest
	if err == nil {
		got, err = step.Digests(ctx, in)
	}
	if err != nil {
		return nil, fmt.Errorf("doctor: ReplayStep: %w", err)
	}
	return b.compare(got)
}

// Replayed is how a step that was run again compares with the step in a bundle.
type Replayed struct {
	Same      bool // every value, to the bit
	Values    int  // of the step
	Different int  // how many of them differ

	// First is the number, from 1 on, of the first value that differs, and Got and Want
	// are it and the bundle's. If they differ in ID or Type, the step is another one: of
	// another program, policy or version of this module. Then no contents are compared,
	// and Different is 0.
	First     int
	Got, Want tensor.Digest

	// Elsewhere says that the bundle was made with other kernels, "" with these: then
	// floats may differ in their last bits.
	Elsewhere string
}

func (b *Bundle) compare(got []tensor.Digest) (*Replayed, error) {
	now, err := Here()
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	r := &Replayed{Same: true, Values: len(got)}
	if now.Device != b.Made.Device || now.Bits != b.Made.Bits || now.ISA != b.Made.ISA && now.Bits == "" {
		r.Elsewhere = fmt.Sprintf("it was made on %s with %s, this is %s with %s", b.Made.Device, b.Made.ISA, now.Device, now.ISA)
	}
	at := func(all []tensor.Digest, i int) (d tensor.Digest) {
		if i < len(all) {
			d = all[i]
		}
		return d
	}
	for i := range max(len(got), len(b.Values)) {
		if g, w := at(got, i), at(b.Values, i); g.ID != w.ID || !g.Type.Equal(w.Type) {
			r.Same, r.First, r.Got, r.Want = false, i+1, g, w
			return r, nil
		}
	}
	for i, g := range got {
		if w := b.Values[i]; g.Sum != w.Sum {
			if r.Different++; r.Same {
				r.Same, r.First, r.Got, r.Want = false, i+1, g, w
			}
		}
	}
	return r, nil
}

// String says it in a sentence or two.
func (r *Replayed) String() string {
	name := func(d tensor.Digest) string {
		if d.ID == "" {
			return "nothing"
		}
		return fmt.Sprintf("%s %v", d.ID, d.Type)
	}
	var s string
	switch {
	case r.Same:
		return fmt.Sprintf("the step is the same to the bit, in all %d values", r.Values)
	case r.Got.ID != r.Want.ID || !r.Got.Type.Equal(r.Want.Type):
		s = fmt.Sprintf("it is another step: value %d is %s, in the bundle %s", r.First, name(r.Got), name(r.Want))
	default:
		s = fmt.Sprintf("%d of %d values differ, the first is value %d, %s", r.Different, r.Values, r.First, name(r.Got))
	}
	if r.Elsewhere != "" {
		s += "; " + r.Elsewhere + ": floats may differ in their last bits (MEZZO_DEVICE and MEZZO_CPU choose)"
	}
	return s
}

// kindBundle is the kind of the container's files.
const kindBundle = "bundle"

// bundleMeta is the form of a bundle in JSON, but for arrays.
type bundleMeta struct {
	Epoch     int         `json:"epoch"`
	Step      int         `json:"step"`
	Made      Origin      `json:"made"`
	Structure []int       `json:"structure"`
	Values    []valueMeta `json:"values"`
}

type valueMeta struct {
	ID    tensor.TapID `json:"id"`
	DType string       `json:"dtype"`
	Shape []int        `json:"shape"`
	Sum   string       `json:"sum"` // hexadecimal: JSON's numbers have 53 bits
}

// Save writes the bundle to a file, in the container of package checkpoint. An error
// leaves a file of that name as it was.
func (b *Bundle) Save(path string) error {
	m := bundleMeta{Epoch: b.Epoch, Step: b.Step, Made: b.Made, Structure: b.Structure}
	for _, v := range b.Values {
		m.Values = append(m.Values, valueMeta{v.ID, v.Type.DType.String(), append([]int{}, v.Type.Shape...), strconv.FormatUint(v.Sum, 16)})
	}
	return checkpoint.WriteFile(path, kindBundle, m, checkpoint.Part{Name: "variables", Arrays: b.Variables}, checkpoint.Part{Name: "arguments", Arrays: b.Arguments})
}

// LoadBundle reads a file of Bundle.Save. A damaged file is an error.
func LoadBundle(path string) (*Bundle, error) {
	f, err := checkpoint.ReadFile(path, kindBundle)
	if err != nil {
		return nil, err
	}
	b, err := decodeBundle(f)
	if err != nil {
		return nil, fmt.Errorf("doctor: LoadBundle: %s: %w", path, err)
	}
	return b, nil
}

func decodeBundle(f *checkpoint.File) (*Bundle, error) {
	var m bundleMeta
	if err := json.Unmarshal(f.Meta, &m); err != nil {
		return nil, err
	}
	if len(f.Parts) != 2 || f.Parts[0].Name != "variables" || f.Parts[1].Name != "arguments" {
		return nil, fmt.Errorf("got %d parts, want variables and arguments", len(f.Parts))
	}
	b := &Bundle{Epoch: m.Epoch, Step: m.Step, Made: m.Made, Structure: m.Structure, Variables: f.Parts[0].Arrays, Arguments: f.Parts[1].Arrays}
	for i, v := range m.Values {
		d, err := dtype.Parse(v.DType)
		if err != nil {
			return nil, fmt.Errorf("value %d: %w", i+1, err)
		}
		sum, err := strconv.ParseUint(v.Sum, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("value %d: %w", i+1, err)
		}
		b.Values = append(b.Values, tensor.Digest{ID: v.ID, Type: op.Type{DType: d, Shape: v.Shape}, Sum: sum})
	}
	return b, nil
}
