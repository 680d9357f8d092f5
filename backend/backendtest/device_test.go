package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// interpreter is a device made of the reference itself. It must pass the
// suite; with a fault built in, it must not.
type interpreter struct {
	name        string
	unsupported op.Code
	// fault may change the result of an operation.
	fault func(v *ir.Value, out []byte)
	// early writes outputs before everything has been computed.
	early bool
}

func (d *interpreter) Name() string { return d.name }
func (d *interpreter) Supports(c op.Code, _ dtype.DType) bool {
	return c != d.unsupported && c != op.ExtraOutput
}
func (d *interpreter) Alloc(n int) (driver.Buffer, error) {
	m := &memory{data: make([]byte, n)}
	m.Changed()
	return m, nil
}
func (d *interpreter) Compile(_ context.Context, g *ir.Graph) (driver.Program, error) {
	return &interpreted{d, g}, nil
}
func (d *interpreter) Close() error { return nil }

type memory struct {
	driver.Contents
	data []byte
}

func (m *memory) Bytes() int { return len(m.data) }
func (m *memory) Free()      { m.data = nil }
func (m *memory) CopyIn(src []byte) error {
	if len(src) > len(m.data) {
		return fmt.Errorf("got %d bytes, want at most %d", len(src), len(m.data))
	}
	copy(m.data, src)
	m.Changed()
	return nil
}
func (m *memory) CopyOut(dst []byte) error {
	if len(dst) > len(m.data) {
		return fmt.Errorf("got %d bytes, want at most %d", len(dst), len(m.data))
	}
	copy(dst, m.data)
	return nil
}

type interpreted struct {
	d *interpreter
	g *ir.Graph
}

func (p *interpreted) Close() error { return nil }

func (p *interpreted) Run(ctx context.Context, in, out []driver.Buffer) error {
	return p.RunWatched(ctx, in, out, func(*ir.Value, []byte) error { return nil })
}

func (p *interpreted) RunWatched(ctx context.Context, in, out []driver.Buffer, see func(*ir.Value, []byte) error) error {
	vals := map[*ir.Value]array{}
	for _, v := range p.g.Values {
		if err := ctx.Err(); err != nil {
			return err
		}
		if v.Op == op.Param {
			a := newArray(v.Type)
			vals[v] = array{v.Type, a.data}
			if err := in[v.Attr.Index].CopyOut(a.data); err != nil {
				return err
			}
			continue
		}
		r, err := evaluate(v.Op, v.Attr, valuesOf(vals, v.Args))
		if err != nil {
			return err
		}
		vals[v] = r.array()
		if p.d.fault != nil {
			p.d.fault(v, vals[v].data)
		}
		if err := see(v, vals[v].data); err != nil {
			return err
		}
		if i := slices.Index(p.g.Outputs, v); p.d.early && i >= 0 {
			if err := out[i].CopyIn(vals[v].data); err != nil {
				return err
			}
		}
	}
	for i, v := range p.g.Outputs {
		if err := out[i].CopyIn(vals[v].data); err != nil {
			return err
		}
	}
	return nil
}

func TestReferencePasses(t *testing.T) {
	run(t, &interpreter{name: "interpreter"}, big)
}

// big reports whether a case is left out here: the interpreter computes it as it
// computes a small one, and every device's own test of the suite has it.
func big(k Case) bool {
	return k.Large || len(k.Args) > 0 && k.Args[0].Shape.Size() > 300
}

// TestExpansions runs the expansions of package op.
func TestExpansions(t *testing.T) {
	devices := map[op.Code]*interpreter{}
	for _, c := range op.Codes() {
		if c.Info().Expand != nil {
			devices[c] = &interpreter{name: "without " + c.String(), unsupported: c}
		}
	}
	tested := map[op.Code]bool{}
	for k := range Cases() {
		if d := devices[k.Op]; d != nil && !big(k) {
			tested[k.Op] = true
			if err := k.Test(d); err != nil {
				t.Errorf("%s: %v", k.Name(), err)
			}
		}
	}
	for c := range devices {
		if !tested[c] {
			t.Errorf("%v: all cases are left out", c)
		}
	}
}

// TestFaults changes one byte, or the last element, of each operation's
// result: some case of the operation must notice.
func TestFaults(t *testing.T) {
	faults := map[string]func(v *ir.Value, out []byte){
		"first byte": func(v *ir.Value, out []byte) {
			if v.Op != op.Identity && len(out) > 0 {
				out[v.Type.DType.Size()-1] ^= 0x41
			}
		},
		"last element": func(v *ir.Value, out []byte) {
			if v.Op != op.Identity && len(out) > 0 {
				out[len(out)-1] ^= 0x41
			}
		},
	}
	for name, fault := range faults {
		d := &interpreter{name: "fault in " + name, fault: fault}
		caught := map[op.Code]bool{}
		for k := range Cases() {
			if k.wantErr || caught[k.Op] || k.Large {
				continue
			}
			caught[k.Op] = k.Test(d) != nil
		}
		for _, c := range operations() {
			// Their results are not computed by the device that has the fault.
			if c != op.Param && c != op.Identity && !caught[c] {
				t.Errorf("%s: no case of %v noticed", name, c)
			}
		}
	}
}

// TestEarlyCommit overwrites a variable before an index fails.
func TestEarlyCommit(t *testing.T) {
	d := &interpreter{name: "early", early: true}
	in := updateInputs(9)
	if _, err := compute(d, updateGraph(9), ir.Options{}, in); err != nil {
		t.Fatal(err) // nothing fails here
	}
	g := ir.New(2)
	w, idx := param(g, 0, typ(f32, 4)), param(g, 1, typ(dtype.Int32, 1))
	g.Output(add(g, op.Neg, op.Attr{}, w), 0)
	g.Output(add(g, op.Gather, op.Attr{}, add(g, op.Iota, op.Attr{DType: f32, Dims: op.Shape{3}}), idx), -1)
	in = sample(1, w.Type, idx.Type)
	in[1].data = values(9)(nil, idx.Type)
	// The plan computes what overwrites last, so even this device is right
	// with it; the values in another order are caught by execute.
	p, plan, err := compileUnordered(d, g)
	if err != nil {
		t.Fatal(err)
	}
	_, err = execute(context.Background(), d, p, plan, in)
	if err == nil || !strings.Contains(err.Error(), "input 0, float32[4], has changed") {
		t.Errorf("got error %v, want that input 0 has changed", err)
	}
}

// compileUnordered moves the overwriting value to the front of a plan.
func compileUnordered(d driver.Device, g *ir.Graph) (driver.Program, *ir.Graph, error) {
	if err := ir.Optimize(g, ir.Options{}); err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(g.Values, func(a, b *ir.Value) int { return rank(a) - rank(b) })
	p, err := d.Compile(context.Background(), g)
	return p, g, err
}

func rank(v *ir.Value) int {
	switch v.Op {
	case op.Param:
		return 0
	case op.Neg:
		return 1
	}
	return 2
}

func TestOperationWithoutCase(t *testing.T) {
	if _, err := casesOf(op.Code(9999), f32); err == nil || !strings.Contains(err.Error(), "has no case") {
		t.Errorf("got error %v, want that the operation has no case", err)
	}
}

func TestSupport(t *testing.T) {
	table := Support(&interpreter{name: "interpreter", unsupported: op.Softmax})
	for _, want := range []string{
		"| operation | bool | uint8 | int8 |",
		"| Add | yes | yes | yes | yes | yes | yes | yes | yes | yes |",
		"| Softmax | - | - | - | - | - | expanded | expanded | expanded | expanded |",
		"| Not | yes | - | - | - | - | - | - | - | - |",
		"| RandomUniform | - | - | - | - | yes | - | - | - | - |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no line %q in\n%s", want, table)
		}
	}
}
