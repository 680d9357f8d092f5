//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nvlib"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras/distribution"
)

// testGroup is what programs see of a group of ranks.
type testGroup struct {
	*distribution.Group
	timeout time.Duration
	jobs    chan driver.CommunicatorJob
}

func (g *testGroup) Post(j driver.CommunicatorJob, _ bool) { g.jobs <- j }
func (g *testGroup) Help(driver.CommunicatorJob)           {}
func (g *testGroup) AllReduce(x []float32) error           { return errors.New("not on the CPU") }
func (g *testGroup) Broadcast(b []byte, root int) error    { return g.BroadcastBytes(b, root) }
func (g *testGroup) SameText(string) error                 { return nil }
func (g *testGroup) Timeout() time.Duration                { return g.timeout }
func (g *testGroup) Err() error                            { return g.Engine().(distribution.Locator).Err() }
func (g *testGroup) Missing(s string, d time.Duration, e error) error {
	return g.Engine().(distribution.Locator).Missing(s, d, e)
}

// onGroup calls run on goroutines, each a rank with the number of its group.
func onGroup(t *testing.T, ranks int, timeout time.Duration, run func(g *testGroup, number int) error) error {
	t.Helper()
	return distribution.Local(t.Context(), ranks, func(_ context.Context, g *distribution.Group) error {
		c := &testGroup{g, timeout, make(chan driver.CommunicatorJob, 64)}
		number := driver.AddCommunicator(c)
		defer driver.RemoveCommunicator(number)
		defer close(c.jobs)
		go func() {
			for j := range c.jobs {
				j.Exchange()
			}
		}()
		return run(c, number)
	})
}

// gpus returns the devices of so many ranks.
func gpus(t *testing.T, ranks int) []*Device {
	t.Helper()
	var all []*Device
	for i := range ranks {
		d, err := Open(i)
		if err != nil {
			if os.Getenv("FAKECUDA") != "" {
				t.Fatalf("%d ranks: %v", ranks, err) // the fake driver has enough GPUs
			}
			t.Skipf("%d ranks: %v", ranks, err)
		}
		if _, err := d.openNCCL(); err != nil {
			lacks(t, err)
		}
		t.Cleanup(func() { d.Close() })
		all = append(all, d)
	}
	return all
}

// exchanges is a program of two buckets: what it exchanges is computed, or lies in the
// caller's buffers.
type exchanges struct {
	name          string
	ranks, shards int
	from, wire    dtype.DType
	change        func(a *op.AllReduce)
	gather        bool
}

var exchangedBuckets = [][]op.Shape{{{3, 5}, {7}, {}, {0}, {2, 1, 3}}, {{129, 257}, {40000}, {3}}}

// graph returns the program of a rank, and the types of its inputs. The last two inputs
// are totals, to which it adds what it has exchanged.
func (e exchanges) graph(t testing.TB, rank, group int, order []int) (*ir.Graph, []op.Type) {
	g := ir.New(64)
	var types []op.Type
	add := func(c op.Code, a op.Attr, args ...*ir.Value) *ir.Value {
		in := make([]op.Type, len(args))
		for i, x := range args {
			in[i] = x.Type
		}
		out, err := op.Infer(c, a, in...)
		if err != nil {
			t.Fatal(err)
		}
		return g.Add(c, a, out, fmt.Sprint("bucket", len(types)), args...)
	}
	param := func(d dtype.DType, shape op.Shape) *ir.Value {
		types = append(types, op.Type{DType: d, Shape: shape})
		return add(op.Param, op.Attr{Index: len(types) - 1, Dims: shape, DType: d})
	}
	var last *ir.Value
	sums := make([]*ir.Value, len(order))
	for _, bucket := range order {
		a := &op.AllReduce{Group: group, Rank: rank, Ranks: e.ranks, Shards: e.shards, Bucket: bucket, Shapes: exchangedBuckets[bucket], Wire: e.wire, Scale: 1 / float64(e.shards)}
		start, done := op.AllReduceStart, op.AllReduceDone
		if e.gather {
			start, done, a.Scale = op.AllGatherStart, op.AllGatherDone, 1
		}
		if e.change != nil {
			e.change(a)
		}
		var args []*ir.Value
		for range op.Partials(rank, e.ranks, e.shards) {
			for i, s := range a.Shapes {
				if e.gather {
					s = op.Shape{op.PartOf(s.Size(), e.ranks)}
				}
				x := param(e.from, s)
				if i%2 == 0 {
					x = add(op.Neg, op.Attr{}, x)
				}
				args = append(args, x)
			}
			if e.gather {
				break
			}
		}
		if last != nil {
			args = append(args, last)
		}
		last = add(start, op.Attr{AllReduce: a}, args...)
		sums[bucket] = add(done, op.Attr{AllReduce: a}, last)
	}
	for _, s := range sums {
		total := param(s.Type.DType, s.Type.Shape)
		g.Output(add(op.Add, op.Attr{}, total, s), total.Attr.Index)
	}
	g.Output(sums[0], -1)
	g.Params = g.Params[:len(types)]
	return g, types
}

// inputs are those of a rank: numbers whose sums depend on the order, and totals.
func (e exchanges) inputs(rank int, types []op.Type) [][]byte {
	r := rand.New(rand.NewPCG(uint64(rank), 7))
	var in [][]byte
	for i, t := range types {
		data := make([]byte, t.Bytes())
		x := make([]float64, t.Shape.Size())
		for k := range x {
			if x[k] = r.NormFloat64() * float64(uint(1)<<r.IntN(9)); i >= len(types)-2 {
				x[k] = 0.5
			}
		}
		dtype.FromF64(data, x, t.DType)
		in = append(in, data)
	}
	return in
}

// run runs the program of a rank some times, and returns the totals and sums after each.
func (e exchanges) run(t testing.TB, d driver.Device, rank, group, times int, order ...int) (out [][]byte, err error) {
	if order == nil {
		order = []int{0, 1}
	}
	g, types := e.graph(t, rank, group, order)
	p, g, err := backend.Compile(t.Context(), d, g, ir.Options{})
	if err != nil {
		return nil, err
	}
	var in, results []driver.Buffer
	for _, data := range e.inputs(rank, types) {
		b, err := d.Alloc(len(data))
		if err == nil {
			err = b.CopyIn(data)
		}
		if err != nil {
			return nil, err
		}
		in = append(in, b)
	}
	for i, v := range g.Outputs {
		if i < 2 {
			results = append(results, in[len(in)-2+i])
			continue
		}
		b, err := d.Alloc(v.Type.Bytes())
		if err != nil {
			return nil, err
		}
		results = append(results, b)
	}
	for range times {
		failed := p.Run(t.Context(), in, results)
		for _, b := range results {
			data := make([]byte, b.Bytes())
			if err := b.CopyOut(data); err != nil {
				return nil, errors.Join(failed, err)
			}
			out = append(out, data)
		}
		if failed != nil {
			return out, failed
		}
	}
	if q, ok := p.(*Program); ok && times > 1 && q.device.settings.graphs && (len(q.graphs) != 1 || q.graphs[0].graph == nil) {
		return nil, fmt.Errorf("rank %d: the program was not captured", rank)
	}
	return out, nil
}

var exchangeCases = []exchanges{
	{name: "2 of 2", ranks: 2, shards: 2, from: dtype.Float32, wire: dtype.Float32},
	{name: "8 of 3", ranks: 3, shards: 8, from: dtype.Float32, wire: dtype.Float32},
	{name: "5 of 4", ranks: 4, shards: 5, from: dtype.Float32, wire: dtype.Float32},
	{name: "bfloat16", ranks: 4, shards: 4, from: dtype.Float32, wire: dtype.BFloat16},
	{name: "float16", ranks: 3, shards: 3, from: dtype.Float32, wire: dtype.Float16},
	{name: "float64", ranks: 3, shards: 7, from: dtype.Float64, wire: dtype.Float64},
	{name: "scatter", ranks: 3, shards: 8, from: dtype.Float32, wire: dtype.Float32, change: func(a *op.AllReduce) { a.Scatter = true }},
	{name: "scatter float16", ranks: 4, shards: 4, from: dtype.Float32, wire: dtype.Float16, change: func(a *op.AllReduce) { a.Scatter = true }},
	{name: "gather", ranks: 3, shards: 3, from: dtype.Float32, wire: dtype.Float32, gather: true},
	{name: "gather bfloat16", ranks: 4, shards: 4, from: dtype.BFloat16, wire: dtype.BFloat16, gather: true},
}

// TestCollective: sums over ranks have the bits of the CPU's, whose tree they are added
// up in, in the first run, and in captured ones; whichever streams run early.
func TestCollective(t *testing.T) {
	if os.Getenv("MEZZO_CUDA_TEST") != "gpu" {
		for _, streams := range []string{"0", "1", "2", "3"} {
			again(t, "TestCollective", "FAKECUDA_DEVICES=4", "FAKECUDA_STREAMS="+streams)
		}
		return
	}
	cpu, err := backend.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range exchangeCases {
		t.Run(c.name, func(t *testing.T) {
			devices := gpus(t, c.ranks)
			err := onGroup(t, c.ranks, time.Minute, func(g *testGroup, group int) error {
				want, err := c.run(t, cpu, g.Rank(), group, 3)
				if err != nil {
					return err
				}
				got, err := c.run(t, devices[g.Rank()], g.Rank(), group, 3)
				if err != nil {
					return err
				}
				for i := range want {
					if !slices.Equal(got[i], want[i]) {
						return fmt.Errorf("rank %d, run %d: result %d differs from the CPU's", g.Rank(), i/3, i%3)
					}
				}
				return g.Barrier() // a rank that has left has an error for the others
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCollectiveNative: with the library's own sum all ranks have the same numbers, those
// of the tree but for the order.
func TestCollectiveNative(t *testing.T) {
	if os.Getenv("MEZZO_CUDA_TEST") != "gpu" {
		again(t, "TestCollectiveNative", "FAKECUDA_DEVICES=4")
		return
	}
	tree := exchanges{ranks: 3, shards: 3, from: dtype.Float32, wire: dtype.Float32}
	native := tree
	native.change = func(a *op.AllReduce) { a.Native = true }
	devices := gpus(t, tree.ranks)
	all := make([][][]byte, tree.ranks)
	err := onGroup(t, tree.ranks, time.Minute, func(g *testGroup, group int) error {
		want, err := tree.run(t, devices[g.Rank()], g.Rank(), group, 2)
		if err != nil {
			return err
		}
		got, err := native.run(t, devices[g.Rank()], g.Rank(), group, 2)
		if err != nil {
			return err
		}
		all[g.Rank()] = got
		for i := range want {
			x, y := dtype.View[float32](want[i]), dtype.View[float32](got[i])
			for k := range x {
				// Sums of three numbers, most below 2000.
				if d := x[k] - y[k]; !(d*d <= 1e-6) {
					return fmt.Errorf("rank %d, result %d, element %d: got %v, want %v", g.Rank(), i, k, y[k], x[k])
				}
			}
		}
		return g.Barrier()
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range all {
		for i := range got {
			if !slices.Equal(got[i], all[0][i]) {
				t.Errorf("result %d differs from rank to rank", i)
			}
		}
	}
}

// TestCollectiveFailures: an exchange that cannot end is an error that names the rank and
// the layer, and changes no input; nobody waits for ever.
func TestCollectiveFailures(t *testing.T) {
	cases := []struct {
		name string
		env  []string
		want []string
	}{
		{"error", []string{"FAKENCCL_FAULT=1:2"}, []string{"rank 1 of 2: the exchange of layer bucket", "unhandled system error (2): an error on request"}},
		{"order", nil, []string{"invalid usage (5)", "this rank calls ncclSendRecv", "of 2: the exchange of layer bucket"}},
		{"gone", nil, []string{"rank 1", "it was ended"}},
		{"silent", []string{"FAKENCCL_DETECT=0"}, []string{"rank 0 has waited", "in the exchange of layer bucket", "MEZZO_DISTRIBUTION_TIMEOUT"}},
		{"shared", nil, []string{"does not connect", "Duplicate GPU detected"}},
	}
	name := os.Getenv("FAKENCCL_CASE")
	if name == "" {
		fakeOnly(t)
		for _, c := range cases {
			out := again(t, "TestCollectiveFailures", append(c.env, "FAKECUDA_DEVICES=2", "FAKENCCL_CASE="+c.name)...)
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("%s: no %q in\n%s", c.name, want, out)
				}
			}
		}
		return
	}
	e := exchanges{ranks: 2, shards: 2, from: dtype.Float32, wire: dtype.Float32}
	devices := gpus(t, 2)
	if name == "shared" {
		devices[1] = devices[0]
	}
	begin := time.Now()
	over := make(chan struct{})
	err := onGroup(t, 2, time.Second, func(g *testGroup, group int) error {
		order := []int{0, 1}
		switch {
		case name == "order" && g.Rank() == 1:
			order = []int{1, 0}
		case (name == "gone" || name == "silent") && g.Rank() == 1:
			if _, err := e.run(t, devices[1], 1, group, 2); err != nil {
				return err
			}
			if name == "gone" {
				return errors.New("it was ended")
			}
			<-over // in a computation that does not end
			return nil
		}
		if name != "silent" {
			defer func() {
				if g.Rank() == 0 {
					close(over)
				}
			}()
		}
		out, err := e.run(t, devices[g.Rank()], g.Rank(), group, 4, order...)
		if name == "silent" {
			close(over)
		}
		if err == nil {
			t.Errorf("rank %d has no error", g.Rank())
		}
		if n := len(out); n > 3 { // of each run, the last of which has failed
			for i := range 2 {
				if !slices.Equal(out[n-3+i], out[n-6+i]) {
					t.Errorf("rank %d: a run that has failed changed total %d", g.Rank(), i)
				}
			}
		}
		t.Logf("rank %d: %v", g.Rank(), err)
		return err
	})
	if err == nil {
		t.Error("got no error")
	}
	t.Log(err)
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestCollectiveRefused: without NCCL a program of several ranks is refused when it is
// compiled, by the name of the layer; it does not run with the gradients of one rank.
func TestCollectiveRefused(t *testing.T) {
	if os.Getenv(nvlib.Setting) != "-" {
		fakeOnly(t)
		again(t, "TestCollectiveRefused", nvlib.Setting+"=-")
		return
	}
	e := exchanges{ranks: 2, shards: 2, from: dtype.Float32, wire: dtype.Float32}
	_, err := e.run(t, open(t), 0, 0, 1)
	if want := "AllReduceStart of 2 ranks: NCCL: " + nvlib.Setting + "=- has it not used"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "layer bucket") {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}
