//go:build !linux

package mpi

// handlers is how signals are handled; only Linux's are saved.
type handlers struct{}

func saveHandlers() *handlers { return nil }

func (*handlers) restore() []int { return nil }
