package backend

import (
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// What SetTF32 was called with last.
const (
	tf32Unset int32 = iota
	tf32Off
	tf32On
)

var tf32 atomic.Int32

// SetTF32 has products and convolutions of float32 computed with operands that are
// rounded to TensorFloat-32, or not, on every device. Programs that are compiled
// later obey. Without a call devices decide.
func SetTF32(on bool) {
	if tf32.Store(tf32Off); on {
		tf32.Store(tf32On)
	}
}

// TF32 returns what SetTF32 was called with last, and whether it was called.
func TF32() (on, set bool) {
	s := tf32.Load()
	return s == tf32On, s != tf32Unset
}

// EmulatesTF32 reports whether Compile rounds the operands of float32 products to
// TensorFloat-32, because SetTF32 has turned that on and d does not do it itself.
func EmulatesTF32(d driver.Device) bool {
	if on, _ := TF32(); !on {
		return false
	}
	m, ok := d.(driver.TF32Multiplier)
	return !ok || !m.MultipliesTF32()
}

// expand prepares g for the device: operations without a kernel are expanded, and
// operands rounded where TensorFloat-32 is emulated.
func expand(d driver.Device, g *ir.Graph, emulate bool) error {
	if emulate {
		g.ExpandFusedProducts()
	}
	if err := Expand(d, g); err != nil || !emulate {
		return err
	}
	g.RoundTF32()
	return nil
}
