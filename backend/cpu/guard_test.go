package cpu

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"

// All tests of this package run between guards.
func init() { exec.Checking = true }
