// Package tensor records computations and runs them: [Tensor] is the result of a
// recorded operation, [Variable] a name bound to a tensor, [Gradients]
// differentiates a recording, and [Function] compiles a Go function into a program
// that runs as one step.
//
// Rules:
//   - Recording is ordinary Go. The recording line checks shapes and element types
//     and panics with *[Error]. Function.Call, Values and Eval return that error.
//   - Outside a Function a tensor is computed when it is read.
//   - Inside a Function, Variable.Assign rebinds the variable and makes it a result
//     of the program. Outside, only Variable.Set changes it.
//   - A step is a transaction: when it fails or its context ends, every variable
//     keeps its value.
//
// # Recording and capture
//
// One recording runs at a time in a process. Layers make weights in their first
// call and optimizers make slots for them, so a function is recorded up to four
// times: only a recording that makes no variable is compiled. Code in the function
// with effects of its own runs as often. Capture turns everything that results and
// assigned variables depend on into an ir.Graph. Its inputs are arguments, variables
// (read when the program runs) and tensors that were computed outside. A Function
// that is called inside a recording is inlined.
//
// # Shadow weights
//
// A Function that casts a variable to 16 bits, as it is when the step begins, reads
// an input of its own instead: the shadow weight, a copy that stays from run to run.
// Every program that assigns the variable computes the new shadow weight too, in the
// same pass over memory. A shadow weight remembers the version of the variable's
// buffer that it was made from. Any other write changes the version, and the next
// program that reads the shadow weight casts first. There are none under
// Options.Watch and with Func.KeepCasts(false).
//
// # Snapshots
//
// A tensor that Variable.Value returned outside a Function is the value of that
// moment. Before the variable is overwritten it gets memory of its own, and the
// tensor keeps the old memory.
//
// # Goroutines
//
// Variables that a plan reads or assigns belong to one domain: making the plan
// unites their domains by union-find. A run that assigns locks its domain
// exclusively; other runs, BytesOf and everything that reads weights share the lock.
// So a run takes one lock, and readers see variables between two steps. Runs of a
// plan without assignments have buffers of their own and run at the same time.
//
// # Rematerialization
//
// Gradients chooses which forward values the backward pass saves: those of fewest
// bytes from which all values that the gradient rules read follow by element-wise
// operations. That is a minimum cut; for gelu in 16 bits it is its operand, where
// the rules read four float32 values. The other values are recorded again from an
// op.Barrier of each saved value. Operands of products and reductions are saved.
//
// [Remat] marks the recording of a function as a segment. When Gradients first
// reaches one of its tensors with a gradient g, it records the segment again, each
// input through op.Barrier(input, g), and applies the rules to the copies. A Barrier
// is its first argument and costs nothing. It keeps common-subexpression elimination
// from merging the copy with the original, and the schedule from computing the copy
// early. Random numbers are functions of their state, and so the same.
//
// # Loss scaling
//
// TagScaled tags a scaled loss; everything computed from it has the tag too.
// What Gradients returns has a [GradientTag]: whether the loss was scaled, whether
// the gradient passed through float16, and which optimizer has unscaled it. Applying
// scaled gradients, unscaling twice, and float16 gradients without a scale fail
// while recording. A plan serves only arguments with the tags that it was recorded
// for. A tag may have [Blocks]: parts of the backward pass with scales of their own.
// Under Predicated(finite, …) every Assign is masked by finite, and
// PredicateStatistics masks the assignments of Statistic variables in the forward
// pass. So a skipped step changes only the loss scale, its counters, the gradient
// norm, the states of random numbers and the totals of metrics.
//
// # Rows
//
// The gradient of a Gather is a ScatterAdd over the whole table. SparseRows splits
// it, through unscaling and clipping, into rows added up by index and their indices.
// Optimizers read those for norms and the finite check. Where a gradient of 0 moves
// nothing they gather the rows of weight and slots, update them, and write them back
// with Variable.AssignRows: an op.ScatterUpdate over the old table. The ScatterAdd is
// dead code then.
//
// # Loops and operations with several results
//
// [Loop] records a Go function once, for a step, and makes an op.Loop of it. Tensors
// that the function reads from outside become arguments; operations that do not
// depend on the step stay outside. The gradient is a Loop in the other direction: its
// step computes the forward step again from the states before it. So the graph has
// one size for every number of steps, and only states are kept.
//
// The results of an operation with several are packed into one flat tensor, and
// op.Result is a view of one. Its gradient rule, in gradientsOfParts, gets the
// gradients of the results that are used.
//
// # Precision
//
// Contractions and reductions take 16-bit operands, accumulate in float32 and round
// once, on store. Tensor.Widen gives a float32 consumer the result without that
// rounding: it records again what made the tensor (a product, sum, mean, softmax,
// sigmoid, and a bias or reshape behind it) with a float32 result. The old recording
// is dead code unless it has other users; then the pass "precisions" computes it once
// and rounds. Casting to float32 in layers.Apply, outputs of models, losses, metrics,
// optimizers and the gradients of weights use Widen.
package tensor
