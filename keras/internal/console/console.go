// Package console tells what can be shown where a text goes: whether a line can
// be redrawn in place, whether colours are wanted, and how wide the text may be.
package console

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Default is the width of tables in files and pipes: about that of Keras's.
const Default = 100

// Console is where a text goes.
type Console struct {
	Redraws bool // a terminal on which a line can be written over
	Colors  bool // a terminal that takes ANSI escape sequences, and nobody minds them

	terminal *os.File // nil for files and pipes
}

// Of looks at a writer and at the environment: TERM=dumb is a terminal without
// redrawing and colours, NO_COLOR (https://no-color.org), set to anything, one
// without colours. On Windows it has the console take escape sequences.
func Of(w io.Writer) Console {
	f, ok := w.(*os.File)
	if !ok || f == nil || !term.IsTerminal(int(f.Fd())) {
		return Console{}
	}
	c := Console{terminal: f, Redraws: os.Getenv("TERM") != "dumb"}
	c.Colors = c.Redraws && os.Getenv("NO_COLOR") == "" && takesEscapes(f)
	return c
}

// Columns is the width of the terminal now, 0 where there is none or it does not
// tell.
func (c Console) Columns() int {
	if c.terminal == nil {
		return 0
	}
	columns, _, err := term.GetSize(int(c.terminal.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// Width is how wide a table may be: as the terminal, elsewhere Default.
func (c Console) Width() int {
	if n := c.Columns(); n > 0 {
		return n
	}
	return Default
}
