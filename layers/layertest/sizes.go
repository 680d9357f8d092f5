package layertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// Sizes sets each integer field of each case to sizes that exceed any memory, or take too
// long, while the default device may allocate 64 MiB. Each must give an error at once, or
// a result of the inferred shape.
func Sizes(t *testing.T, cases []Case) {
	d, err := backend.Default()
	if err != nil {
		t.Fatal(err)
	}
	l := d.(interface {
		Held() int
		SetMemoryLimit(bytes int)
	})
	l.SetMemoryLimit(l.Held() + 64<<20) // other tests hold some
	defer l.SetMemoryLimit(0)
	counts := map[string]int{}
	for _, c := range cases {
		fields := integerFields(reflect.ValueOf(c.Make()).Elem())
		for _, f := range fields {
			for _, n := range []int{1 << 62, 1<<62 + 1, -1 << 62, 1 << 40, 1<<31 - 1, 1 << 24} {
				l := c.Make()
				f.set(reflect.ValueOf(l).Elem(), n)
				name := fmt.Sprintf("%s, %s %d", c.Name, f.name, n)
				counts[absurd(t, name, l, c)]++
			}
		}
	}
	t.Log(counts)
}

// integerField is a field of integers.
type integerField struct {
	name  string
	index []int
}

// integerFields lists the exported fields of a layer that hold integers.
func integerFields(v reflect.Value) (all []integerField) {
	for _, f := range reflect.VisibleFields(v.Type()) {
		kind := f.Type
		if kind.Kind() == reflect.Slice || kind.Kind() == reflect.Array || kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if f.IsExported() && kind.Kind() == reflect.Int {
			all = append(all, integerField{f.Name, f.Index})
		}
	}
	return all
}

// set gives all integers of the field the value n.
func (f integerField) set(v reflect.Value, n int) {
	switch v = v.FieldByIndex(f.index); v.Kind() {
	case reflect.Int:
		v.SetInt(int64(n))
	case reflect.Pointer:
		v.Set(reflect.ValueOf(&n))
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetInt(int64(n))
		}
	default:
		if v.Len() == 0 {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		} else {
			v.Set(reflect.AppendSlice(reflect.Zero(v.Type()), v)) // not those of the case
		}
		for i := range v.Len() {
			v.Index(i).SetInt(int64(n))
		}
	}
}

// absurd applies a layer to the inputs of a case and returns the outcome.
func absurd(t *testing.T, name string, l layers.Layer, c Case) (outcome string) {
	const deadline = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s: panic: %v", name, p)
			outcome = "panic"
		}
	}()
	start := time.Now()
	var in []*tensor.Tensor
	for _, x := range c.In {
		in = append(in, tensor.FromBytes(x, make([]byte, x.Bytes())))
	}
	var promised tensor.Shape
	f := tensor.Function(func(in []*tensor.Tensor) []*tensor.Tensor {
		x := in[0]
		if len(in) > 1 {
			x = tensor.Tuple(in...)
		}
		y := layers.Apply(l, layers.Pass{}, x)
		promised = y.Unpack()[0].Shape().Clone()
		return y.Unpack()
	}, owned{l})
	y, err := f.Call(ctx, in)
	switch late := time.Since(start) - deadline; {
	case late > 10*time.Second: // it takes no notice of the deadline
		t.Errorf("%s: it ended %v after its deadline, with %v", name, late, err)
	case late > deadline/2: // or the machine is busy
		t.Logf("%s: it ended %v after its deadline, with %v", name, late, err)
	}
	var memory *backend.MemoryError
	var e *tensor.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.As(err, &memory):
		return "memory"
	case err == nil && (y[0].Type().Check() != nil || !y[0].Shape().Equal(promised)):
		t.Errorf("%s: no error, and a result %v", name, y[0].Type())
		return "nonsense"
	case err == nil:
		return "result"
	case !errors.As(err, &e):
		t.Errorf("%s: error %v is no *tensor.Error", name, err)
	}
	return "error"
}

// owned is the variables of a layer.
type owned struct{ layers.Layer }

func (o owned) Variables() []*tensor.Variable { return layers.BaseOf(o.Layer).Variables() }
