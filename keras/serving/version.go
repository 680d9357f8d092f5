package serving

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
)

// version is one version of a model, with its queue and the goroutine that
// computes.
type version struct {
	name    string
	number  int
	model   *keras.Model
	o       Options
	in, out []TensorSpec
	queue   *queue
	bytes   int64          // of the weights
	batched func(Batch)    // nil: nobody asks
	held    sync.WaitGroup // requests that found it
	// inputs has the tensors of each padded batch, if no other axis is unknown: that
	// goroutine overwrites them.
	inputs map[int][]*keras.Tensor
}

func newVersion(name string, number int, m *keras.Model, o Options) (*version, error) {
	if m == nil {
		return nil, errors.New("no model given")
	}
	if !m.Built() {
		return nil, fmt.Errorf("%w; its inputs are not known yet", keras.ErrNotBuilt)
	}
	v := &version{name: name, number: number, model: m, o: o, queue: newQueue(o), inputs: map[int][]*keras.Tensor{}}
	v.in = specs(m.InputNames(), m.InputTypes())
	v.out = specs(m.OutputNames(), m.OutputTypes())
	for _, w := range m.Variables() {
		v.bytes += int64(w.Type().Bytes())
	}
	for _, s := range slices.Concat(v.in, v.out) {
		if len(s.Shape) == 0 || s.Shape[0] != keras.Unknown {
			return nil, fmt.Errorf("%q has shape %v, want the batch as its first axis", s.Name, []int(s.Shape))
		}
	}
	return v, nil
}

// specs makes names that occur twice different, as in out, out_1.
func specs(names []string, types []op.Type) []TensorSpec {
	all := make([]TensorSpec, len(types))
	taken := map[string]bool{}
	for i, t := range types {
		name := names[i]
		for k := 1; taken[name]; k++ {
			name = fmt.Sprintf("%s_%d", names[i], k)
		}
		taken[name] = true
		all[i] = TensorSpec{name, t.DType, slices.Clone(t.Shape)}
	}
	return all
}

func (v *version) info() Info { return Info{v.name, v.number, v.in, v.out, v.o.MaxBatch} }

// release ends what find began.
func (v *version) release() { v.held.Done() }

// retire ends the goroutine once all requests that found v are done. No find may
// return v any more.
func (v *version) retire() {
	if v != nil {
		go func() {
			v.held.Wait()
			v.queue.close()
		}()
	}
}

// padded returns the batch size that n rows are computed in.
func (v *version) padded(n int) int {
	size := 1
	for size < n {
		size *= 2
	}
	return min(size, v.o.MaxBatch)
}

// fixed reports whether the batch is the only axis of unknown size.
func (v *version) fixed() bool {
	return !slices.ContainsFunc(v.in, func(s TensorSpec) bool { return !s.Shape[1:].Known() })
}

// warm compiles the sizes of Options.Warm, and runs each once.
func (v *version) warm(ctx context.Context) error {
	if !v.fixed() {
		return nil // the shapes are known when they are seen
	}
	sizes := v.o.Warm
	if sizes == nil {
		for n := 1; n < v.o.MaxBatch; n *= 2 {
			sizes = append(sizes, n)
		}
		sizes = append(sizes, v.o.MaxBatch)
	}
	done := map[int]bool{}
	for _, n := range sizes {
		if n = v.padded(n); done[n] {
			continue
		}
		done[n] = true
		if err := ctx.Err(); err != nil {
			return err
		}
		zeros := make([]Tensor, len(v.in))
		for i, s := range v.in {
			shape := slices.Clone(s.Shape)
			shape[0] = n
			zeros[i] = Tensor{s.Name, s.DType, shape, make([]byte, op.Type{DType: s.DType, Shape: shape}.Bytes())}
		}
		if _, err := v.predict([]*job{{in: zeros, rows: n}}, n); err != nil {
			var p *PanicError
			if errors.As(err, &p) {
				return fmt.Errorf("a batch of %d zeros: panic: %v", n, p.Value)
			}
			return fmt.Errorf("a batch of %d zeros: %w", n, err)
		}
	}
	return nil
}

// infer checks the inputs of a request, waits until it is computed, and completes
// the observation.
func (v *version) infer(ctx context.Context, given []Tensor, o *Observation) ([]Tensor, error) {
	in, err := v.arrange(given)
	if err != nil {
		return nil, v.named(err)
	}
	j := &job{ctx: ctx, in: in, rows: in[0].Shape[0], since: time.Now(), done: make(chan struct{})}
	o.Rows = j.rows
	if err := v.queue.put(j); err != nil {
		return nil, v.named(err)
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		v.queue.drop(j)
		return nil, v.named(ctx.Err())
	}
	o.Batch, o.Padded, o.Queued, o.Computed = j.batch, j.padded, j.queued, j.computed
	return j.out, v.named(j.err)
}

// named puts the version before an error, and keeps its status.
func (v *version) named(err error) error {
	if err == nil {
		return nil
	}
	return &Error{StatusOf(err), fmt.Errorf("model %q version %d: %w", v.name, v.number, err)}
}

// arrange returns the inputs in the model's order, checked.
func (v *version) arrange(given []Tensor) ([]Tensor, error) {
	in := make([]Tensor, len(v.in))
	for i := range given {
		at, err := v.inputAt(given[i].Name)
		if err != nil {
			return nil, err
		}
		if in[at].Shape != nil {
			return nil, badRequest("input %q is given twice", v.in[at].Name)
		}
		t, s := given[i], v.in[at]
		if err := s.check(t); err != nil {
			return nil, badRequest("input %q: %w", s.Name, err)
		}
		t.Name = s.Name
		in[at] = t
	}
	for i, t := range in {
		switch {
		case t.Shape == nil:
			return nil, badRequest("input %q is missing", v.in[i].Name)
		case t.Shape[0] != in[0].Shape[0]:
			return nil, badRequest("input %q has %d rows, input %q has %d", t.Name, t.Shape[0], in[0].Name, in[0].Shape[0])
		}
	}
	if n := in[0].Shape[0]; n > v.o.MaxBatch {
		return nil, badRequest("got %d rows, want at most %d", n, v.o.MaxBatch)
	}
	return in, nil
}

func (v *version) inputAt(name string) (int, error) { return inputAt(v.in, name) }

// inputAt returns the index of an input. One alone may be nameless.
func inputAt(in []TensorSpec, name string) (int, error) {
	if name == "" && len(in) == 1 {
		return 0, nil
	}
	if at := slices.IndexFunc(in, func(s TensorSpec) bool { return s.Name == name }); at >= 0 {
		return at, nil
	}
	return 0, badRequest("there is no input %s; want %q", quoted(name), namesOf(in))
}

func namesOf(all []TensorSpec) (names []string) {
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}

// Check compares a type and a shape with what the model takes or returns. The bytes
// of a shape that fits are no more than an int holds.
func (s TensorSpec) Check(d keras.DType, shape keras.Shape) error {
	if d != s.DType {
		return fmt.Errorf("got datatype %s, want %s", d, s.DType)
	}
	fits := len(shape) == len(s.Shape)
	for i := 0; fits && i < len(shape); i++ {
		fits = shape[i] > 0 && (s.Shape[i] == keras.Unknown || s.Shape[i] == shape[i])
	}
	if fits {
		_, fits = bytesOf(shape, d.Size())
	}
	if !fits {
		return fmt.Errorf("got shape %v, want %v", shapeText(shape), []int(s.Shape))
	}
	return nil
}

// check compares a tensor with what the model takes.
func (s TensorSpec) check(t Tensor) error {
	if err := s.Check(t.DType, t.Shape); err != nil {
		return err
	}
	if n, _ := bytesOf(t.Shape, t.DType.Size()); n != len(t.Data) {
		return fmt.Errorf("got %d bytes, want those of %s%v", len(t.Data), t.DType, []int(t.Shape))
	}
	return nil
}

// bytesOf returns the bytes of a shape without negative axes; false if they are
// more than an int holds.
func bytesOf(shape []int, size int) (int, bool) {
	for _, d := range shape {
		if d != 0 && size > math.MaxInt/d {
			return 0, false
		}
		size *= d
	}
	return size, true
}

// shapeText shows at most 32 axes.
func shapeText(shape []int) string {
	if len(shape) > 32 {
		return fmt.Sprintf("of %d axes", len(shape))
	}
	return fmt.Sprint(shape)
}

// predict computes jobs of n rows together and returns the outputs of the padded
// batch. A panic of the model is an error.
func (v *version) predict(jobs []*job, n int) (out []Tensor, err error) {
	defer func() {
		if p := recover(); p != nil {
			if recorded, ok := p.(*keras.Error); ok {
				err = ofPredict(recorded)
				return
			}
			err = &Error{http.StatusInternalServerError, &PanicError{p, debug.Stack()}}
		}
	}()
	size := v.padded(n)
	xs, err := v.tensors(jobs[0], size)
	if err != nil {
		return nil, ofPredict(err)
	}
	for i, x := range xs {
		err := tensor.Overwrite(x, func(dst []byte) error {
			gather(dst, i, jobs, len(dst)/size)
			return nil
		})
		if err != nil {
			return nil, ofPredict(err)
		}
	}
	x := xs[0]
	if len(xs) > 1 {
		x = keras.Tuple(xs...)
	}
	y, err := v.model.Predict(context.Background(), x)
	if err != nil {
		return nil, ofPredict(err)
	}
	defer y.Release()
	out = make([]Tensor, len(v.out))
	for i, p := range y.Unpack() {
		if p.Rank() == 0 || p.Dim(0) != size {
			return nil, errorf(http.StatusInternalServerError, "output %q has shape %v for a batch of %d; want the batch as its first axis", v.out[i].Name, []int(p.Shape()), size)
		}
		data, err := p.Bytes() // a copy: Release gives the memory to the next call
		if err != nil {
			return nil, ofPredict(err)
		}
		out[i] = Tensor{v.out[i].Name, p.DType(), p.Shape(), data}
	}
	return out, nil
}

// tensors returns the inputs of a batch with the shapes of a job's, to be
// overwritten.
func (v *version) tensors(j *job, size int) ([]*keras.Tensor, error) {
	if xs := v.inputs[size]; xs != nil {
		return xs, nil
	}
	xs := make([]*keras.Tensor, len(v.in))
	for i, s := range v.in {
		shape := slices.Clone(j.in[i].Shape)
		shape[0] = size
		x, err := tensor.Uninitialized(s.DType, shape...)
		if err != nil {
			return nil, err
		}
		xs[i] = x
	}
	if v.fixed() {
		v.inputs[size] = xs
	}
	return xs, nil
}

// gather fills dst with the rows of input i of all jobs, and pads it with the last
// one, which is valid if its request is: zeros might be no index of an embedding.
func gather(dst []byte, i int, jobs []*job, row int) {
	n := 0
	for _, j := range jobs {
		n += copy(dst[n:], j.in[i].Data)
	}
	for last := dst[n-row : n]; n < len(dst); {
		n += copy(dst[n:], last)
	}
}
