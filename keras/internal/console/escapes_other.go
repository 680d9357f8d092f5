//go:build !windows

package console

import "os"

// takesEscapes reports whether a terminal interprets escape sequences.
func takesEscapes(*os.File) bool { return true }
