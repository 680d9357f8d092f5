//go:build !linux

package cpu

// yieldThread does nothing where the system has no such call: the goroutine
// has yielded.
func yieldThread() {}
