package policy

import "github.com/mezzo-ml/mezzo/backend"

// SetBits sets on what the last bits of results may depend, and returns the setting before.
// It panics on an unknown name.
//
//   - "fast", the default: each instruction set adds in the order that is fastest on it. The
//     same program, data and seed give the same bits on every run on the same instruction
//     set, for every GOMAXPROCS.
//   - "portable": the same program, data and seed give the same bits on every processor and
//     instruction set: portable Go, AVX2, AVX-512, AMX, NEON and WebAssembly. It is slower:
//     docs/reproducibility.md has a table. NaNs are NaNs everywhere, with any payload. On a
//     GPU, nothing compiles.
//
// The environment variable MEZZO_BITS is the setting at the start of a program. Call SetBits
// before a model is trained: what is compiled later obeys, and a Function that has been
// compiled is compiled again, but a call while another goroutine computes may miss a step.
// [Effective] and the first line of Fit say which bits are portable.
func SetBits(name string) (previous string) {
	b, err := backend.ParseBits(name)
	if err != nil {
		panic("policy: SetBits: " + err.Error())
	}
	return backend.SetBits(b).String()
}
