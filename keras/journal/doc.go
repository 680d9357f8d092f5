// Package journal keeps checksums of each step of a training, and computes steps again
// to compare them: to replay a step, to find the first difference of two trainings, to
// audit one, and to tell which samples a step saw.
//
// [Main] makes these the commands of a program. The program tells how to make its training:
//
//	func main() { journal.Main(training) }
//
//	func training(args []string) (*journal.Training, error) {
//		model := …  // compiled
//		return &journal.Training{Model: model, Data: data, Config: keras.FitConfig{Epochs: 10, SaveEvery: 500}}, nil
//	}
//
// A program that calls Fit itself gives it a [File] as FitConfig.Journal. [Load] reads one.
//
// # Records
//
// A step has a record of 96 bytes: checksums of the batch, of a part of the weights, of a
// part of the optimizer's variables, of the states of random numbers and of the totals of
// metrics; the loss, the loss scale and the norm of the gradients as numbers. The device
// computes that norm in every step, so it is free. Apart from it gradients show in what
// they write: the slots and the weights.
//
// To hash all weights would take a tenth of a step that updates many weights for few samples. So
// a step hashes one part of at most 64, in turn: each element comes up once in 64 steps.
// A difference of one bit usually shows at once, because it changes the loss of the next
// step; if it changes nothing else, it shows within 64 steps. At each checkpoint there is
// a record of the whole state, which misses nothing.
//
// # Replays
//
// A replay makes the training anew, restores the nearest checkpoint before the step and
// calls Fit, with the same callbacks but for those that only write files. A resumed Fit
// has the bits of one that was not interrupted, so that every record must be the same.
// While Fit computes again, everything can be seen: a comparison of two trainings replays both from the last
// checkpoint that they have in common with checksums of all variables after each step.
// That finds the first step that differs in one replay. A second one stops before that
// step, and computes it operation by operation (tensor.Func.Digests).
//
// # Rules
//
//   - No bit of the training depends on its journal.
//   - A file is only appended to. A kill loses the records of the last tenth of a second
//     and leaves at most one unfinished, which is left out. A resumed training appends a session; steps that were done again replace
//     their first records, and are compared with them.
//   - The journal is on the disk before the checkpoint that it has a record of.
//   - Bits depend on the instruction set. Diff computes each training with the settings
//     that its journal has.
//   - With several ranks the first one writes the journal. Its batches, weights, random states
//     and loss scales are those of any number of ranks; totals of metrics, slots and
//     norms are not, and are left out of comparisons between numbers of ranks.
package journal
