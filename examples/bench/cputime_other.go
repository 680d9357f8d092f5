//go:build !unix

package main

import (
	"runtime"
	"time"
)

var processStart = time.Now()

// processTime takes it that the process had all processors since its start:
// what this system has to say is coarser than a repetition.
func processTime() time.Duration {
	return time.Duration(runtime.GOMAXPROCS(0)) * time.Since(processStart)
}
