//go:build !unix

package cpu

import "time"

var processStart = time.Now()

// processTime returns the time since the start; this system does not tell more.
func processTime() time.Duration { return time.Since(processStart) }
