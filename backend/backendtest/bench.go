package backendtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Bench measures the large cases of every operation that d supports, as
// sub-benchmarks "MatMul/float16/largeSquare": bytes read and written per
// second, and for MatMul also floating-point operations ("GFLOP/s").
func Bench(b *testing.B, d driver.Device) {
	for c := range Cases() {
		if c.Large && c.SupportedBy(d) {
			b.Run(c.Name(), func(b *testing.B) { c.bench(b, d) })
		}
	}
}

func (c Case) bench(b *testing.B, d driver.Device) {
	p, plan, err := backend.Compile(context.Background(), d, c.graph(), ir.Options{})
	if err != nil {
		b.Fatal(err)
	}
	buf, err := prepare(d, plan, c.arguments())
	if err != nil {
		b.Fatal(err)
	}
	defer buf.free()
	out := plan.Outputs[0].Type
	n := out.Bytes()
	for _, t := range c.inputs() {
		n += t.Bytes()
	}
	b.SetBytes(int64(n))
	ctx := context.Background()
	for b.Loop() {
		if err := p.Run(ctx, buf.in, buf.out); err != nil {
			b.Fatal(err)
		}
	}
	if c.Op == op.MatMul {
		k := c.Args[0].Shape[len(c.Args[0].Shape)-1]
		if c.Attr.TransA {
			k = c.Args[0].Shape[len(c.Args[0].Shape)-2]
		}
		flop := 2 * float64(out.Shape.Size()) * float64(k) * float64(b.N)
		b.ReportMetric(flop/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	}
}

// Support renders as a Markdown table which operations d has kernels for, by
// element type: "yes", "expanded" where the operation is compiled as simpler
// ones, "no", and "-" where the operation does not take the type. The type is
// that of the case, which for Where is that of the values.
func Support(d driver.Device) string {
	var s strings.Builder
	s.WriteString("| operation |")
	for _, dt := range dtype.All() {
		fmt.Fprintf(&s, " %v |", dt)
	}
	s.WriteString("\n|---|" + strings.Repeat("---|", len(dtype.All())) + "\n")
	for _, c := range operations() {
		fmt.Fprintf(&s, "| %v |", c)
		for _, dt := range dtype.All() {
			fmt.Fprintf(&s, " %s |", support(d, c, dt))
		}
		s.WriteByte('\n')
	}
	return s.String()
}

func support(d driver.Device, c op.Code, dt dtype.DType) string {
	list, _ := casesOf(c, dt)
	switch {
	case len(list) == 0:
		return "-"
	case list[0].SupportedBy(d):
		return "yes"
	case c.Info().Expand != nil:
		return "expanded"
	}
	return "no"
}
