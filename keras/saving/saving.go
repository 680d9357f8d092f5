// Package saving keeps models and weights in the files of others: Keras's
// `.weights.h5` ([SaveWeights], [LoadWeights]) and `.keras` ([Save], [Load], which also
// reads the `.h5` files of whole models of Keras 2; without a file [Write], [Read]),
// safetensors ([SaveSafetensors], [LoadSafetensors]) and NumPy's npz
// ([SaveNPZ], [LoadNPZ]). [ImportSafetensors] reads the files of programs with other
// names and layouts, whole or in part. Checkpoints of a training, which resume to
// the bit, are in package checkpoint.
//
// Rules:
//   - Weights have no policy: each is stored in its variable's type and
//     converted to that of the variable it is loaded into.
//   - Loading is all or nothing: when anything does not fit no weight changes,
//     and what a file has beyond the model is an error too.
//   - A file appears under its name only when it is complete and on the disk.
//   - Files are not trusted: nothing in them is run, and no size in them makes
//     loading take more memory than the file and the model account for.
package saving

import (
	"errors"
	"fmt"
	"os"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Option changes what is saved or how it is loaded.
type Option func(*config)

type config struct {
	optimizer optimizers.Optimizer
	policy    *policy.Policy
	byPath    policy.Map
	maxConfig int64
}

// WithOptimizer makes SaveWeights, LoadWeights and Save include the state of the
// optimizer o.
//
// A LossScaleOptimizer is saved as Keras's class of this name: the scale, the
// counter of good steps and the state of Inner. To save without the first two,
// pass Inner. A file with loss scaling loads into an optimizer without it, and
// the other way round. A scale from a file is limited to MinScale … MaxScale; a
// Fixed scale, and one that the file does not have, stays as it is.
//
// With GradientAccumulationSteps the iteration in a file counts calls of
// ApplyGradients and not applied steps, as in Keras. A window of calls with a
// gradient that is not finite is saved as a window without calls.
func WithOptimizer(o optimizers.Optimizer) Option { return func(c *config) { c.optimizer = o } }

// WithPolicy makes Load give a model another policy than it was saved with: it
// replaces the policy that most of its layers have. Layers that differ, such as
// a float32 output of a mixed_float16 model, keep theirs.
func WithPolicy(p policy.Policy) Option { return func(c *config) { c.policy = &p } }

// WithPolicyMap makes Load give the layers with a key in byPath that policy, whatever
// the file says, after WithPolicy: see keras.Model.CloneUnder.
func WithPolicyMap(byPath policy.Map) Option { return func(c *config) { c.byPath = byPath } }

// WithMaxConfig sets how many bytes Load reads of the config.json of a `.keras`
// file, by default 16 MiB with 1,048,576 values and keys; each further 16 MiB
// allow as many again. A file may compress a config a thousand times, and
// values take more memory than their text: raise it for files that you trust.
func WithMaxConfig(most keras.Bytes) Option { return func(c *config) { c.maxConfig = int64(most) } }

func options(all []Option) (c config) {
	for _, o := range all {
		o(&c)
	}
	return c
}

// fileError says in which file something went wrong.
func fileError(path string, err error) error {
	if h := (*hdf5.Error)(nil); errors.As(err, &h) {
		return safeio.Short(fmt.Errorf("saving: %w", h)) // which names the file itself
	}
	return safeio.Short(fmt.Errorf("saving: %s: %w", path, atomicfile.Bare(err)))
}

// replace makes the file at path, or replaces it, with what write writes.
func replace(path string, write func(atomicfile.File) error) error {
	if err := atomicfile.Write(atomicfile.System{}, path, write); err != nil {
		return fileError(path, err)
	}
	return nil
}

// opened calls read with the file at path. What read makes tensors of may fail
// in a panic, such as for want of memory or of the device that
// MEZZO_DEVICE names; that is an error here.
func opened[T any](path string, read func(f *os.File, size int64) (T, error)) (x T, err error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return x, fileError(path, err)
	}
	defer f.Close()
	func() {
		defer tensor.Catch(&err)
		x, err = read(f, size)
	}()
	if err != nil {
		return x, fileError(path, err)
	}
	return x, nil
}

// array is a weight in a file.
type array struct {
	typ   op.Type
	bytes func() ([]byte, error)
}

// setWeights sets the weights of a model to what the file has for each.
func setWeights(m *keras.Model, saved map[*layers.Weight]array) error {
	values, err := valuesOf(m.Weights(), saved)
	if err != nil {
		return err
	}
	return m.SetWeights(values)
}

// valuesOf reads the values that the file has for weights, each in the type that it
// has there.
func valuesOf(ws []*layers.Weight, saved map[*layers.Weight]array) ([]*keras.Tensor, error) {
	values := make([]*keras.Tensor, len(ws))
	for _, w := range ws {
		a, ok := saved[w]
		if !ok {
			return nil, fmt.Errorf("there is no weight %s %v", w.Name(), w.Type())
		}
		if !a.typ.Shape.Equal(w.Shape()) {
			return nil, fmt.Errorf("weight %s: got %v, want %v", w.Name(), a.typ, w.Type())
		}
	}
	for i, w := range ws {
		b, err := saved[w].bytes()
		if err != nil {
			return nil, err
		}
		values[i] = tensor.FromBytes(saved[w].typ, b)
	}
	return values, nil
}

// built is an error for a model that has no weights yet.
func built(m *keras.Model) error {
	if !m.Built() {
		return fmt.Errorf("model %s: %w; call it on data or Build it first", m.Name(), keras.ErrNotBuilt)
	}
	return nil
}
