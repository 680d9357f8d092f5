package goroutine

import "runtime"

// number is the number of the calling goroutine as the runtime tells it at the
// start of a stack trace: "goroutine 18 [running]:".
func number() (n uint64) {
	var b [32]byte
	for _, c := range b[len("goroutine "):runtime.Stack(b[:], false)] {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + uint64(c-'0')
	}
	return n
}
