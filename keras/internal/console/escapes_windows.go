package console

import (
	"os"

	"golang.org/x/sys/windows"
)

// takesEscapes switches on that the console of a file interprets escape
// sequences (ENABLE_VIRTUAL_TERMINAL_PROCESSING) and reports whether it does:
// consoles before Windows 10 do not, and the classic one only when asked.
func takesEscapes(f *os.File) bool {
	h := windows.Handle(f.Fd())
	var mode uint32
	if windows.GetConsoleMode(h, &mode) != nil {
		return false
	}
	const want = windows.ENABLE_PROCESSED_OUTPUT | windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING
	return mode&want == want || windows.SetConsoleMode(h, mode|want) == nil
}
