package gemm

import "testing"

func TestPortable(t *testing.T) { testTiles(t, "portable", Portable.F32, false) }
