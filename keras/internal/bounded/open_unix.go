//go:build unix

package bounded

import "syscall"

const nonblock = syscall.O_NONBLOCK
