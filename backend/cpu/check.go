package cpu

import "github.com/mezzo-ml/mezzo/backend"

// checking reports whether runs check themselves: under MEZZO_DEBUG=check, and
// in this package's tests. Then memory has guards (guard.go), the elements of
// buffers are compared with those that their version had before, and packed
// copies with their operands.
var checking = backend.DebugFromEnv().Check

// checkingKept is checking of packed copies, which are then packed in each run.
var checkingKept = checking
