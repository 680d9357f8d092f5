//go:build !linux

package exec

// yieldThread does nothing where the system has no such call: the goroutine
// has yielded.
func yieldThread() {}
