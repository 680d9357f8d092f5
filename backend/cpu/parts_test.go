package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestParts: the parts of a NormalizeGrad have the bits that they have when they
// are copied out of a whole result and then cast, for every set of them that
// may be wanted, also where rows go around the caches.
func TestParts(t *testing.T) {
	large := aroundBytes/2/1024 + 3 // rows of 16 bits
	forEachISA(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, s := range []op.Shape{{1, 1}, {37, 67}, {130, 96}, {large, 1024}, {0, 3}, {3, 0}} {
				for _, wanted := range [][3]bool{{true, true, true}, {true, false, false}, {false, true, false}, {true, false, true}} {
					if s[0] == large && (d != dtype.BFloat16 || wanted != [3]bool{true, true, true}) {
						continue
					}
					t.Run(fmt.Sprint(d, s, wanted), func(t *testing.T) { sameParts(t, d, s, wanted) })
				}
			}
		}
	})
}

func sameParts(t *testing.T, d dtype.DType, s op.Shape, wanted [3]bool) {
	rng := rand.New(rand.NewPCG(5, 6))
	in := []array{randomArray(rng, d, s...), randomArray(rng, dtype.Float32, s[1]), randomArray(rng, d, s...)}
	var want [3][]byte
	for _, skip := range [][]string{{"apart"}, nil} {
		g := ir.New(3)
		var args []*ir.Value
		for i, x := range in {
			args = append(args, param(t, g, i, x.Type))
		}
		whole := record(t, g, op.NormalizeGrad, op.Attr{Value: 1e-3}, args...)
		at := 0
		for i, shape := range []op.Shape{s, s[1:], s[1:]} {
			if wanted[i] {
				p := record(t, g, op.Part, op.Attr{Start: []int{at}, Dims: shape}, whole)
				if i == 0 && d.Is16() {
					p = record(t, g, op.Cast, op.Attr{DType: d}, p)
				}
				g.Output(p, -1)
			}
			at += shape.Size()
		}
		if err := ir.Optimize(g, ir.Options{Skip: skip, Check: true}); err != nil {
			t.Fatal(err)
		}
		if apart := g.Values[3].Apart; apart != (skip == nil && at > 0) {
			t.Fatalf("apart: %v in\n%v", apart, g)
		}
		p, err := New().Compile(g)
		if err != nil {
			t.Fatal(err)
		}
		var bufs, out []driver.Buffer
		for _, x := range in {
			bufs = append(bufs, &Buffer{data: x.data})
		}
		var checks []func(*testing.T)
		for _, v := range g.Outputs {
			b, intact := guarded(v.Type.Bytes())
			out, checks = append(out, b), append(checks, intact)
		}
		if err := p.Run(context.Background(), bufs, out); err != nil {
			t.Fatal(err)
		}
		for i, b := range out {
			checks[i](t)
			got := b.(*Buffer).Data()
			if want[i] == nil {
				want[i] = got
			} else if !bytes.Equal(got, want[i]) {
				t.Errorf("result %d of %v differs from a copy of it", i, wanted)
			}
		}
	}
}
