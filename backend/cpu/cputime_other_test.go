//go:build !unix

package cpu

import "time"

var processStart = time.Now()

// processTime is the time since the start: all that this system tells.
func processTime() time.Duration { return time.Since(processStart) }
