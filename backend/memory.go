package backend

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// MemoryError reports that something exceeds a device's memory limit: a plan, before
// anything is allocated for it, or a buffer.
type MemoryError struct {
	Device string
	What   string // the request: "a plan", "a buffer"
	Need   int    // its bytes, at most op.Limit
	Held   int    // bytes that were held already; a plan is compared with the limit alone
	Limit  int    // bytes

	Largest []MemoryShare // of a plan: the values that take most, largest first, at most three
}

// MemoryShare is a value of a plan and its bytes.
type MemoryShare struct {
	Path  string // the layer that recorded it, or the variable
	Op    op.Code
	Type  op.Type
	Bytes int
}

// Error prints "a plan needs 34.2 GiB, the memory limit of cpu is 23.4 GiB; most of
// it for layer dense: MatMul float32[64 1073741824] (256.0 GiB); …".
func (e *MemoryError) Error() string {
	var s strings.Builder
	more := ""
	if e.Need >= op.Limit {
		more = "at least "
	}
	fmt.Fprintf(&s, "%s needs %s%s", e.What, more, Bytes(e.Need))
	if e.Held > 0 {
		fmt.Fprintf(&s, " besides the %s in use", Bytes(e.Held))
	}
	fmt.Fprintf(&s, ", the memory limit of %s is %s", e.Device, Bytes(e.Limit))
	for i, v := range e.Largest {
		s.WriteString([]string{"; most of it for ", ", "}[min(i, 1)])
		if v.Op == op.Param {
			fmt.Fprintf(&s, "%s: %v (%s)", cmp.Or(v.Path, "an input"), v.Type, Bytes(v.Bytes))
		} else {
			fmt.Fprintf(&s, "layer %s: %v %v (%s)", cmp.Or(v.Path, "?"), v.Op, v.Type, Bytes(v.Bytes))
		}
	}
	s.WriteString("; SetMemoryLimit or MEZZO_MEMORY_LIMIT changes the limit")
	return s.String()
}

// Bytes prints a number of bytes: "64 B", "1.5 GiB".
func Bytes(n int) string {
	if n < 1<<10 {
		return strconv.Itoa(n) + " B"
	}
	x := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB"} {
		if x /= 1 << 10; x < 1<<10 {
			return fmt.Sprintf("%.1f %s", x, unit)
		}
	}
	return fmt.Sprintf("%.1f TiB", x/(1<<10))
}

// Fits returns a *MemoryError if the buffers and the arena of a plan alone exceed d's
// limit; Compile does so without Options.Unbounded.
func Fits(d driver.Device, g *ir.Graph) error { return fits(d, g, g.Memory()) }

// fits returns a *MemoryError when the buffers and the arena of plan g, which are
// m, alone are more than d may take.
func fits(d driver.Device, g *ir.Graph, m ir.Memory) error {
	l, ok := d.(driver.MemoryLimiter)
	if !ok {
		return nil
	}
	limit := l.MemoryLimit()
	need := min(m.Arena+m.Inputs+m.Outputs+m.Static, op.Limit)
	if need <= limit {
		return nil
	}
	e := &MemoryError{Device: d.Name(), What: "a plan", Need: need, Limit: limit}
	for _, v := range g.Values {
		if !v.View() {
			e.Largest = append(e.Largest, MemoryShare{v.Path, v.Op, v.Type, v.Type.Bytes()})
		}
	}
	slices.SortStableFunc(e.Largest, func(a, b MemoryShare) int { return cmp.Compare(b.Bytes, a.Bytes) })
	e.Largest = e.Largest[:min(len(e.Largest), 3)]
	return e
}

// MemoryLimitSetting returns MEZZO_MEMORY_LIMIT in bytes, read once, or 0 if it is not
// set. It reports an invalid value on standard error.
var MemoryLimitSetting = sync.OnceValue(func() int {
	n, err := parseBytes(os.Getenv("MEZZO_MEMORY_LIMIT"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "MEZZO_MEMORY_LIMIT: %v\n", err)
	}
	return n
})

// parseBytes reads a number of bytes as GOMEMLIMIT has it: digits, and B, KiB,
// MiB, GiB or TiB if anything.
func parseBytes(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	number, factor := strings.TrimSuffix(text, "B"), 1
	for i, unit := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if n, ok := strings.CutSuffix(number, unit); ok {
			number, factor = n, 1<<(10*(i+1))
			break
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > op.Limit/factor {
		return 0, fmt.Errorf("got %q, want a positive number of bytes such as 500MiB or 8GiB", text)
	}
	return n * factor, nil
}
