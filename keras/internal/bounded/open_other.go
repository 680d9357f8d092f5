//go:build !unix

package bounded

const nonblock = 0
