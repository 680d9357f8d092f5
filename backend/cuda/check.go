//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
)

// checking reports whether the elements of buffers are compared, before and
// after each run, with those that their version had before: under
// MEZZO_DEBUG=check, and in this package's tests.
var checking = backend.DebugFromEnv().Check

// verify reports buffers whose elements are not those of their version.
func (p *Program) verify(in, out []driver.Buffer, when string) (err error) {
	done := map[*Buffer]bool{}
	for _, b := range p.binds {
		x := b.of(in, out)
		if done[x] {
			continue
		}
		done[x] = true
		data := make([]byte, x.bytes)
		if e := x.CopyOut(data); e != nil {
			return e
		}
		if !x.Verify(data) {
			err = errors.Join(err, fmt.Errorf("cuda: check: %s %s: %s changed, and its version %d did not", when, p.graph.Describe(), p.graph.DescribeBuffer(b.out, b.buffer), x.Version()))
		}
	}
	return err
}
