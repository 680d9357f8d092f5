package console

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal of so many columns.
func terminal(t *testing.T, columns uint16) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTerminal(t *testing.T) {
	f := terminal(t, 72)
	for _, c := range []struct {
		term, noColor   string
		redraws, colors bool
	}{
		{"xterm-256color", "", true, true},
		{"xterm-256color", "1", true, false},
		{"dumb", "", false, false},
		{"", "", true, true},
	} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		got := Of(f)
		if got.Redraws != c.redraws || got.Colors != c.colors || got.Columns() != 72 || got.Width() != 72 {
			t.Errorf("TERM=%q NO_COLOR=%q: got %+v of %d columns, want redraws %v, colours %v, 72 columns", c.term, c.noColor, got, got.Columns(), c.redraws, c.colors)
		}
	}
	if got := Of(terminal(t, 0)); got.Width() != Default {
		t.Errorf("a terminal that does not tell its width: got %d, want %d", got.Width(), Default)
	}
}
