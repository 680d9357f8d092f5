package backendtest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// guard is how many bytes an output buffer is larger than its value. They
// must not change.
const guard = 64

const guardByte = 0xa5

// buffers are the memory of one run.
type buffers struct {
	in, out []driver.Buffer
	plan    *ir.Graph
}

// prepare allocates and fills the buffers of a run of plan.
func prepare(d driver.Device, plan *ir.Graph, in []array) (*buffers, error) {
	b := &buffers{plan: plan}
	alloc := func(data []byte) (driver.Buffer, error) {
		buf, err := d.Alloc(len(data))
		if err != nil {
			return nil, err
		}
		if buf.Bytes() != len(data) {
			return nil, fmt.Errorf("Alloc(%d) has %d bytes", len(data), buf.Bytes())
		}
		return buf, buf.CopyIn(data)
	}
	for _, a := range in {
		buf, err := alloc(a.data)
		if err != nil {
			return nil, err
		}
		b.in = append(b.in, buf)
	}
	for i, v := range plan.Outputs {
		if from := plan.Donated[i]; from >= 0 {
			b.out = append(b.out, b.in[from])
			continue
		}
		// The value's own bytes are not zero either: a kernel writes them all.
		buf, err := alloc(bytes.Repeat([]byte{guardByte}, v.Type.Bytes()+guard))
		if err != nil {
			return nil, err
		}
		b.out = append(b.out, buf)
	}
	return b, nil
}

// donated reports whether the plan overwrites input i.
func (b *buffers) donated(i int) bool {
	for _, from := range b.plan.Donated {
		if from == i {
			return true
		}
	}
	return false
}

// outputs reads the results and checks the guards.
func (b *buffers) outputs() ([]array, error) {
	out := make([]array, len(b.out))
	for i, v := range b.plan.Outputs {
		n := v.Type.Bytes()
		data := make([]byte, b.out[i].Bytes())
		if err := b.out[i].CopyOut(data); err != nil {
			return nil, err
		}
		if b.plan.Donated[i] < 0 {
			for j, x := range data[n:] {
				if x != guardByte {
					return nil, fmt.Errorf("output %d, %v: byte %d behind its end was overwritten", i, v.Type, j)
				}
			}
		}
		out[i] = array{v.Type, data[:n]}
	}
	return out, nil
}

// unchanged checks that the inputs still are what they were, all of them or
// those that the plan does not overwrite.
func (b *buffers) unchanged(in []array, all bool) error {
	for i, a := range in {
		if !all && b.donated(i) {
			continue
		}
		data := make([]byte, len(a.data))
		if err := b.in[i].CopyOut(data); err != nil {
			return err
		}
		if !bytes.Equal(data, a.data) {
			return fmt.Errorf("input %d, %v, has changed", i, a.Type)
		}
	}
	return nil
}

func (b *buffers) free() {
	for _, buf := range b.in {
		buf.Free()
	}
	for i, buf := range b.out {
		if b.plan.Donated[i] < 0 {
			buf.Free()
		}
	}
}

// execute runs p once on fresh buffers. When the run fails all inputs must be
// as before.
func execute(ctx context.Context, d driver.Device, p driver.Program, plan *ir.Graph, in []array) ([]array, error) {
	b, err := prepare(d, plan, in)
	if err != nil {
		return nil, err
	}
	defer b.free()
	if err := p.Run(ctx, b.in, b.out); err != nil {
		if changed := b.unchanged(in, true); changed != nil {
			return nil, fmt.Errorf("the run failed and yet %w (%v)", changed, err)
		}
		return nil, err
	}
	if err := b.unchanged(in, false); err != nil {
		return nil, err
	}
	return b.outputs()
}
