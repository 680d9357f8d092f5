// Package kerasstate gives keras and keras/saving the state of an optimizer as
// Keras's files hold it. Package optimizers sets its functions: they are not
// exported there because programs have no use for them.
package kerasstate

import "github.com/mezzo-ml/mezzo/backend/tensor"

var (
	// Variables returns the variables of the optimizer o that Keras's optimizer
	// of the same class has, in the order of Keras's files: iterations, learning
	// rate (unless there is a Schedule), averages, accumulators, slots, scalars.
	// There are none before the first call of o.Variables or o.ApplyGradients. A
	// LossScaleOptimizer has its step counter and its scale in front of those of
	// Inner. ok is false for a class that Keras does not have.
	Variables func(o tensor.Stateful) (vs []*tensor.Variable, ok bool)

	// Export returns the elements of each of Variables(o) as Keras stores them.
	// With accumulated gradients they differ from the variables' own: Keras's
	// iteration counts calls of ApplyGradients and not applied steps. A window of
	// calls that will be skipped, because a gradient in it was not finite, is
	// exported as a window without calls, since Keras does not count such calls.
	Export func(o tensor.Stateful) (map[*tensor.Variable][]byte, error)

	// Import converts elements from Keras's files to those of o's variables, in
	// place: the inverse of Export. It adds the initial elements of variables that
	// Keras does not have, and assigns no variable. It returns an error when an
	// optimizer with o's settings cannot have written values.
	Import func(o tensor.Stateful, values map[*tensor.Variable][]byte) error
)
