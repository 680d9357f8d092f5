//go:build !linux

package mpi

// cores returns nothing: other systems do not bind processes.
func cores() (own []int, possible int) { return nil, 0 }
