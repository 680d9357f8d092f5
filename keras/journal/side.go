package journal

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
)

// side is one of two trainings that Diff compares.
type side interface {
	// walk computes steps from a checkpoint, after from steps, to another step.
	walk(ctx context.Context, from, to int64) (*walked, error)
	// trace computes one step operation by operation.
	trace(ctx context.Context, step int64) (*traced, error)
	// value returns the elements of a value of the step that was traced.
	value(ctx context.Context, id tensor.TapID) (*content, error)
	close() error
}

// walked has the checksums of steps that were computed again.
type walked struct {
	Names []string // of the variables
	Steps []fullStep
	First *Mismatch // the first step that differs from the journal of the side
	Where []string  // of First: the elements that its checksums are of
}

// fullStep is a step with checksums of each variable after it.
type fullStep struct {
	Step   Step
	Inputs uint64 // of the whole batch
	Sums   []uint64
}

// traced has the digests of one step, computed operation by operation.
type traced struct {
	Values []tensor.Digest
	Copies []tensor.Digest // of what is kept of weights from step to step
}

// content is the elements of a value.
type content struct {
	Type op.Type
	Data []byte
}

// local is a side that this process computes.
type local struct {
	program Program
	*recording

	model *keras.Model // before the step that was traced
	batch keras.Batch
}

func (s *local) close() error { return nil }

func (s *local) walk(ctx context.Context, from, to int64) (*walked, error) {
	session := s.log.sessionOf(max(to, 1))
	t, err := s.program.make(session.Args)
	if err != nil {
		return nil, err
	}
	var at *saved
	if from > 0 {
		if at = s.nearest(from); at == nil || at.state.Number != from {
			return nil, fmt.Errorf("journal: %s: there is no checkpoint after step %d", s.dir, from)
		}
	}
	out := &walked{}
	var blocks []*tensor.Checksums
	sums := func(m *keras.Model, b keras.Batch) ([]uint64, error) {
		if blocks == nil {
			vs, err := m.StepVariables(b)
			if err != nil {
				return nil, err
			}
			for _, v := range vs {
				blocks = append(blocks, tensor.ChecksumsOf(v))
				out.Names = append(out.Names, v.Name())
			}
		}
		all := make([]uint64, len(blocks))
		for i, b := range blocks {
			var err error
			if all[i], err = b.Sum(ctx, 0, b.Len()); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	r := &replay{training: t, from: at, begin: s.begin(at), ranks: session.Ranks, until: to}
	r.step = func(run *keras.Run, step Step) error {
		all, err := sums(run.Model, run.Batch)
		if err != nil {
			return err
		}
		batch := slices.DeleteFunc([]*tensor.Tensor{run.Batch.X, run.Batch.Y, run.Batch.Weight}, func(t *tensor.Tensor) bool { return t == nil })
		inputs, err := tensor.Checksum(ctx, batch...)
		if err != nil {
			return err
		}
		out.Steps = append(out.Steps, fullStep{step, inputs, all})
		if out.First == nil && step.Number <= int64(len(s.log.Steps)) {
			if d := differs(s.log.Steps[step.Number-1], step, r.all); len(d) > 0 {
				out.First = &Mismatch{step.Number, d}
				out.Where = elementsOf(run.Model, step.Number, d)
			}
		}
		return nil
	}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	if len(r.differs) > 0 {
		out.First = &Mismatch{0, r.differs}
	}
	return out, nil
}

// elementsOf names the elements that the checksums of a step are of.
func elementsOf(m *keras.Model, step int64, fields []string) (names []string) {
	weights, slots := m.JournalChecksums()
	for _, f := range []struct {
		name   string
		blocks *tensor.Checksums
	}{{"weights", weights}, {"slots", slots}} {
		if !slices.Contains(fields, f.name) {
			continue
		}
		vs, ranges := f.blocks.Of(keras.JournalPart(f.blocks, step))
		for i, v := range vs {
			names = append(names, fmt.Sprintf("%s, elements %d to %d", v.Name(), ranges[i][0], ranges[i][1]-1))
		}
	}
	return names
}

func (s *local) trace(ctx context.Context, step int64) (*traced, error) {
	t, err := s.program.make(s.log.sessionOf(step).Args)
	if err != nil {
		return nil, err
	}
	from := s.nearest(step - 1)
	r := &replay{training: t, from: from, begin: s.begin(from), ranks: s.log.sessionOf(step).Ranks, until: step, before: true}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	s.model, s.batch = t.Model, r.batch
	out := &traced{}
	copies, err := s.model.StepCopies(s.batch)
	if err != nil {
		return nil, err
	}
	for _, c := range copies {
		d, err := digest(c)
		if err != nil {
			return nil, err
		}
		out.Copies = append(out.Copies, d)
	}
	out.Values, err = s.model.Digests(ctx, s.batch)
	return out, err
}

// digest is the digest of a copy. Copies of one name are told apart by their order.
func digest(c tensor.Copy) (tensor.Digest, error) {
	sum, err := tensor.Checksum(context.Background(), tensor.FromBytes(c.Type, c.Data))
	return tensor.Digest{ID: tensor.TapID(c.Name), Type: c.Type, Sum: sum}, err
}

// copyPrefix marks the IDs of copies, with their number.
const copyPrefix = "copy "

func (s *local) value(ctx context.Context, id tensor.TapID) (*content, error) {
	if s.model == nil {
		return nil, errors.New("journal: no step was traced")
	}
	var n int
	if _, err := fmt.Sscanf(string(id), copyPrefix+"%d", &n); err == nil {
		copies, err := s.model.StepCopies(s.batch)
		if err != nil {
			return nil, err
		}
		if n < 0 || n >= len(copies) {
			return nil, fmt.Errorf("journal: there is no copy %d", n)
		}
		return &content{copies[n].Type, slices.Clone(copies[n].Data)}, nil
	}
	t, data, err := s.model.StepValue(ctx, s.batch, id)
	return &content{t, data}, err
}

// request and answer are what a process is asked that computes a side, and answers, in gob
// on its standard input and output.
type request struct {
	Op       string
	From, To int64
	ID       tensor.TapID
}

type answer struct {
	Kernels string
	Walked  *walked
	Traced  *traced
	Content *content
	Err     string
}

// serve answers requests about the training in dir until there are none.
func serve(ctx context.Context, p Program, dir string, in io.Reader, out io.Writer) error {
	r, err := open(dir)
	if err != nil {
		return err
	}
	s := &local{program: p, recording: r}
	requests, answers := gob.NewDecoder(in), gob.NewEncoder(out)
	for {
		var q request
		if err := requests.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var a answer
		var err error
		switch q.Op {
		case "kernels":
			var o doctor.Origin
			o, err = doctor.Here()
			a.Kernels = (&Session{Made: o}).kernels()
		case "walk":
			a.Walked, err = s.walk(ctx, q.From, q.To)
		case "trace":
			a.Traced, err = s.trace(ctx, q.To)
		case "value":
			a.Content, err = s.value(ctx, q.ID)
		default:
			err = fmt.Errorf("got request %q", q.Op)
		}
		if err != nil {
			a.Err = err.Error()
		}
		if err := answers.Encode(&a); err != nil {
			return err
		}
	}
}

// remote is a side that another process computes: another program, or this one
// on another instruction set.
type remote struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	requests *gob.Encoder
	answers  *gob.Decoder
}

// serveCommand is the subcommand of Main that runs serve.
const serveCommand = "serve"

// startRemote starts a program, whose main calls Main, for the training in dir.
func startRemote(ctx context.Context, program string, before []string, dir string, environment map[string]string) (*remote, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append(slices.Clone(before), serveCommand, dir)...)
	cmd.Stderr = os.Stderr
	cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return len(e) > 6 && e[:6] == "MEZZO_" })
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return &remote{cmd, in, gob.NewEncoder(in), gob.NewDecoder(out)}, nil
}

func (s *remote) ask(q request) (a answer, err error) {
	if err = s.requests.Encode(&q); err == nil { // a program that has ended does not take it
		err = s.answers.Decode(&a)
	}
	if err != nil {
		return a, fmt.Errorf("journal: %s: it does not answer as a program does whose main calls journal.Main: %w", s.cmd.Path, err)
	}
	if a.Err != "" {
		return a, errors.New(a.Err)
	}
	return a, nil
}

func (s *remote) kernels() (string, error) {
	a, err := s.ask(request{Op: "kernels"})
	return a.Kernels, err
}

func (s *remote) walk(_ context.Context, from, to int64) (*walked, error) {
	a, err := s.ask(request{Op: "walk", From: from, To: to})
	return a.Walked, err
}

func (s *remote) trace(_ context.Context, step int64) (*traced, error) {
	a, err := s.ask(request{Op: "trace", To: step})
	return a.Traced, err
}

func (s *remote) value(_ context.Context, id tensor.TapID) (*content, error) {
	a, err := s.ask(request{Op: "value", ID: id})
	return a.Content, err
}

func (s *remote) close() error {
	s.in.Close()
	return s.cmd.Wait()
}

// firstApart returns the first element in which two contents differ.
func firstApart(a, b *content) (index int, x, y float64) {
	n := a.Type.Shape.Size()
	d := a.Type.DType
	u, v := make([]float64, n), make([]float64, n)
	dtype.ToF64(u, a.Data, d)
	dtype.ToF64(v, b.Data, d)
	size := d.Size()
	for i := range u {
		if string(a.Data[i*size:(i+1)*size]) != string(b.Data[i*size:(i+1)*size]) && (u[i] == u[i] || v[i] == v[i]) {
			return i, u[i], v[i]
		}
	}
	return -1, 0, 0
}
