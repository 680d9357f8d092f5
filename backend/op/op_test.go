package op

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestTable: every operation has a complete row.
func TestTable(t *testing.T) {
	seen := map[string]Code{}
	for _, c := range Codes() {
		i := c.Info()
		if i.Name == "" || i.Infer == nil {
			t.Errorf("operation %d has no complete row", c)
			continue
		}
		if old, dup := seen[i.Name]; dup {
			t.Errorf("operations %d and %d are both named %s", old, c, i.Name)
		}
		seen[i.Name] = c
		if i.Args < -1 || i.Args > 5 { // QuantizedConv
			t.Errorf("%v takes %d arguments", c, i.Args)
		}
		switch i.Class {
		case Leaf:
			if i.Grad {
				t.Errorf("%v is a leaf with a gradient", c)
			}
		case Elementwise, Contraction, Movement, Reduction, Collective:
			if i.Args == 0 {
				t.Errorf("%v takes no arguments and is no leaf", c)
			}
		default:
			t.Errorf("%v has class %d", c, i.Class)
		}
		if i.Precision > Deny {
			t.Errorf("%v is on precision list %d", c, i.Precision)
		}
		if _, err := Infer(c, Attr{}, make([]Type, 9)...); i.Args >= 0 && err == nil {
			t.Errorf("%v took 9 arguments", c)
		}
	}
	if got := numCodes.String(); got[:5] != "Code(" {
		t.Errorf("an unknown operation is named %s", got)
	}
	if _, err := Infer(numCodes, Attr{}); err == nil {
		t.Error("Infer knows an unknown operation")
	}
}

const (
	bo  = dtype.Bool
	i32 = dtype.Int32
	i64 = dtype.Int64
	f16 = dtype.Float16
	f32 = dtype.Float32
)

func ty(d dtype.DType, s ...int) Type { return Type{d, Shape(s)} }

func args(t ...Type) []Type { return t }

// TestInfer: want is the type of the result, or the text of the error.
func TestInfer(t *testing.T) {
	const q = Unknown
	body := &Body{Inputs: []dtype.DType{f16, f16}, Code: []Instr{{Add, f16, [3]int32{0, 1}}, {Cast, f32, [3]int32{2}}}}
	for _, c := range []struct {
		op   Code
		attr Attr
		args []Type
		want string
	}{
		{Param, Attr{DType: f16, Dims: Shape{2}}, nil, "float16[2]"},
		{Param, Attr{}, nil, "no element type given"},
		{Param, Attr{DType: f16, Dims: Shape{-2}}, nil, "shape [-2] has a negative axis"},
		{Const, Attr{DType: f16, Dims: Shape{2}, Data: make([]byte, 4)}, nil, "float16[2]"},
		{Const, Attr{DType: f16, Dims: Shape{2}, Data: make([]byte, 3)}, nil, "float16[2] takes 4 bytes of data, got 3"},
		{Iota, Attr{DType: i32, Dims: Shape{2, 3}}, nil, "int32[2 3]"},
		{Iota, Attr{DType: i32}, nil, "wants at least one axis"},
		{RandomUniform, Attr{Dims: Shape{3}}, args(ty(i64, 2)), "float32[3]"},
		{RandomUniform, Attr{Dims: Shape{3}}, args(ty(i32, 2)), "the random state is int32[2], want int64[2]"},
		{RandomUniform, Attr{Dims: Shape{3}, Bits: 16}, args(ty(i64, 2)), "float32[3]"},
		{RandomUniform, Attr{Dims: Shape{3}, Bits: 8}, args(ty(i64, 2)), "numbers are to have 8 bits, want 16 or 0, which is 24"},
		{RandomUniform, Attr{Dims: Shape{-3}}, args(ty(i64, 2)), "shape [-3] has a negative axis"},

		{Identity, Attr{}, args(ty(bo, 2)), "bool[2]"},
		{Cast, Attr{DType: f16}, args(ty(f32, q, 2)), "float16[? 2]"},
		{Cast, Attr{}, args(ty(f32)), "no element type given"},
		{Neg, Attr{}, args(ty(i32)), "int32[]"},
		{Neg, Attr{}, args(ty(bo, 1)), "wants numbers, got bool[1]"},
		{Exp, Attr{}, args(ty(f16, 3)), "float16[3]"},
		{Exp, Attr{}, args(ty(i32, 3)), "wants a float type, got int32[3]"},
		{Not, Attr{}, args(ty(bo, 3)), "bool[3]"},
		{Not, Attr{}, args(ty(f16)), "wants bool, got float16[]"},
		{IsFinite, Attr{}, args(ty(f16, 3)), "bool[3]"},

		{Add, Attr{}, args(ty(f16, 2, 1), ty(f16, 3)), "float16[2 3]"},
		{Add, Attr{}, args(ty(f16, q, 1), ty(f16, 1, 3)), "float16[? 3]"},
		{Add, Attr{}, args(ty(f16, 2), ty(f32, 2)), "element types differ: float16[2] and float32[2]"},
		{Add, Attr{}, args(ty(f16, 3), ty(f16, 2, 4)), "shapes [3] and [2 4] do not broadcast"},
		{Add, Attr{}, args(ty(f16, 3)), "takes 2 arguments, got 1"},
		{Div, Attr{}, args(ty(i32, 3), ty(i32)), "int32[3]"},
		{Div, Attr{}, args(ty(bo), ty(bo)), "wants numbers, got bool[] and bool[]"},
		{Pow, Attr{}, args(ty(f32), ty(f32)), "float32[]"},
		{Pow, Attr{}, args(ty(i32), ty(i32)), "wants float types, got int32[] and int32[]"},
		{Less, Attr{}, args(ty(f16, 2), ty(f16)), "bool[2]"},
		{Less, Attr{}, args(ty(f16, 2), ty(f32)), "element types differ: float16[2] and float32[]"},
		{And, Attr{}, args(ty(bo, 2), ty(bo)), "bool[2]"},
		{And, Attr{}, args(ty(bo, 2), ty(i32)), "wants bool, got bool[2] and int32[]"},
		{Where, Attr{}, args(ty(bo, 2, 1), ty(f16, 3), ty(f16)), "float16[2 3]"},
		{Where, Attr{}, args(ty(f16), ty(f16), ty(f16)), "the condition is float16[], want bool"},
		{Where, Attr{}, args(ty(bo), ty(f16), ty(f32)), "element types differ: float16[] and float32[]"},
		{Where, Attr{}, args(ty(bo, 2), ty(f16, 3), ty(f16)), "shapes [2] and [3] do not broadcast"},

		{Sum, Attr{Axes: []int{0, 2}}, args(ty(f16, 2, 3, 4)), "float16[3]"},
		{Sum, Attr{Axes: []int{1}, KeepDims: true, DType: f32}, args(ty(f16, 2, 3)), "float32[2 1]"},
		{Sum, Attr{Axes: []int{1, 0}}, args(ty(f16, 2, 3)), "axes [1 0] do not exist in shape [2 3], or are not in order"},
		{Sum, Attr{Axes: []int{2}}, args(ty(f16, 2, 3)), "axes [2] do not exist in shape [2 3], or are not in order"},
		{Sum, Attr{Axes: []int{0}}, args(ty(bo, 2)), "the result would be bool; set the element type to count in"},
		{Sum, Attr{Axes: []int{0}, DType: i32}, args(ty(bo, 2)), "int32[]"},
		{Sum, Attr{Axes: []int{0}, DType: i32}, args(ty(f16, 2)), "the result of float16[2] would be int32, want a float type"},
		{Mean, Attr{Axes: []int{0}}, args(ty(f16, 2)), "float16[]"},
		{Mean, Attr{Axes: []int{0}}, args(ty(i32, 2)), "the mean of int32[2] wants a float result type"},
		{Mean, Attr{Axes: []int{0}, DType: f32}, args(ty(i32, 2)), "float32[]"},
		{Max, Attr{Axes: []int{0}}, args(ty(bo, 2)), "bool[]"},
		{ArgMax, Attr{Axes: []int{1}}, args(ty(f16, 2, 3)), "int32[2]"},
		{ArgMax, Attr{Axes: []int{0, 1}}, args(ty(f16, 2, 3)), "wants one axis, got [0 1]"},
		{ArgMax, Attr{Axes: []int{7}}, args(ty(f16, 2, 3)), "axes [7] do not exist in shape [2 3], or are not in order"},
		{ArgMax, Attr{Axes: []int{1}}, args(ty(f16, 2, 0)), "axis 1 of float16[2 0] is empty"},
		{SumSquares, Attr{DType: f32}, args(ty(f16, 2, 3)), "float32[]"},
		{SumSquares, Attr{}, args(ty(f16, 2, 3)), "float16[]"},
		{SumSquares, Attr{DType: i64}, args(ty(i32, 2)), "wants a float type, got int32[2]"},
		{AllFinite, Attr{}, args(ty(f16, 2, 3)), "bool[]"},

		{MatMul, Attr{}, args(ty(f16, 16, 784), ty(f16, 784, 32)), "float16[16 32]"},
		{MatMul, Attr{DType: f32}, args(ty(f16, 2, 3), ty(f16, 3, 4)), "float32[2 4]"},
		{MatMul, Attr{TransA: true, TransB: true}, args(ty(f16, 5, 1, 3, 2), ty(f16, 6, 4, 3)), "float16[5 6 2 4]"},
		{MatMul, Attr{}, args(ty(f16, q, 3), ty(f16, 3, 4)), "float16[? 4]"},
		{MatMul, Attr{}, args(ty(f16, 16, 100), ty(f16, 784, 32)), "inner dimensions differ: float16[16 100] and float16[784 32]"},
		{MatMul, Attr{TransB: true}, args(ty(f16, 2, 3), ty(f16, 3, 4)), "inner dimensions differ: float16[2 3] and float16[3 4] transposed"},
		{MatMul, Attr{}, args(ty(f16, 2, 3), ty(f32, 3, 4)), "wants two tensors of one float type, got float16[2 3] and float32[3 4]"},
		{MatMul, Attr{}, args(ty(f16, 3), ty(f16, 3, 4)), "wants at least two axes each, got float16[3] and float16[3 4]"},
		{MatMul, Attr{}, args(ty(f16, 2, 2, 3), ty(f16, 3, 3, 4)), "batch axes of float16[2 2 3] and float16[3 3 4] do not broadcast"},
		{MatMul, Attr{DType: i32}, args(ty(f16, 2, 3), ty(f16, 3, 4)), "the result would be int32, want a float type"},

		{Softmax, Attr{Axes: []int{1}, DType: f32}, args(ty(f16, 2, 3)), "float32[2 3]"},
		{Softmax, Attr{Axes: []int{2}}, args(ty(f16, 2, 3)), "wants one axis of float16[2 3], got [2]"},
		{LogSoftmax, Attr{Axes: []int{0}}, args(ty(i32, 2)), "wants a float type, got int32[2]"},
		{Moments, Attr{}, args(ty(f32, 2, 3)), "got float32[2 3], want matrices of floats [n rows columns]"},
		{BatchNormReduce, Attr{}, args(ty(f32, 2, 3, 4), ty(f32, 4), ty(f32, 2, 3, 4)), "centers float32[4] of float32[2 3 4], want float32[2 4]"},
		{BatchNormReduce, Attr{}, args(ty(f32, 2, 3, 4), ty(f32, 2, 4), ty(f32, 2, 3)), "gradient float32[2 3] of float32[2 3 4], want floats of its shape"},
		{BatchNorm, Attr{}, args(ty(f16, 2, 3, 4), ty(f16, 4), ty(f32, 4)), "gain or shift float16[4] of float16[2 3 4], want float32[4]"},
		{BatchNorm, Attr{Groups: 3}, args(ty(f32, 2, 3, 4), ty(f32, 4), ty(f32, 4)), "3 groups of the columns of float32[2 3 4], want a number that divides them"},

		{Reshape, Attr{Dims: Shape{3, 2}}, args(ty(f16, 6)), "float16[3 2]"},
		{Reshape, Attr{Dims: Shape{q, 2}}, args(ty(f16, q)), "float16[? 2]"},
		{Reshape, Attr{Dims: Shape{4}}, args(ty(f16, 6)), "float16[6] has 6 elements, [4] takes 4"},
		{Reshape, Attr{Dims: Shape{-2, -3}}, args(ty(f16, 6)), "shape [-2 -3] has a negative axis"},
		{Transpose, Attr{Perm: []int{2, 0, 1}}, args(ty(f16, 2, 3, 4)), "float16[4 2 3]"},
		{Transpose, Attr{Perm: []int{0}}, args(ty(f16, 2, 3)), "the permutation [0] does not fit float16[2 3]"},
		{Transpose, Attr{Perm: []int{0, 0}}, args(ty(f16, 2, 3)), "[0 0] is not a permutation of the axes of float16[2 3]"},
		{BroadcastTo, Attr{Dims: Shape{2, 3}}, args(ty(f16, 3)), "float16[2 3]"},
		{BroadcastTo, Attr{Dims: Shape{3}}, args(ty(f16, 2, 3)), "float16[2 3] does not broadcast to [3]"},
		{BroadcastTo, Attr{Dims: Shape{1}}, args(ty(f16, 3)), "float16[3] does not broadcast to [1]"},
		{BroadcastTo, Attr{Dims: Shape{-3}}, args(ty(f16)), "shape [-3] has a negative axis"},
		{Concat, Attr{Axes: []int{1}}, args(ty(f16, 2, 3), ty(f16, 2, 0), ty(f16, 2, 1)), "float16[2 4]"},
		{Concat, Attr{Axes: []int{0}}, args(ty(f16, q, 3), ty(f16, 2, 3)), "float16[? 3]"},
		{Concat, Attr{Axes: []int{0}}, nil, "takes at least one argument"},
		{Concat, Attr{Axes: []int{2}}, args(ty(f16, 2, 3)), "wants one axis of float16[2 3], got [2]"},
		{Concat, Attr{Axes: []int{0}}, args(ty(f16, 2, 3), ty(f32, 2, 3)), "float16[2 3] and float32[2 3] do not concatenate"},
		{Concat, Attr{Axes: []int{0}}, args(ty(f16, 2, 3), ty(f16, 2, 4)), "float16[2 3] and float16[2 4] differ in axis 1; only axis 0 may differ"},
		{Slice, Attr{Start: []int{1, 0}, Limit: []int{4, q}, Stride: []int{2, 1}}, args(ty(f16, 5, q)), "float16[2 ?]"},
		{Slice, Attr{Start: []int{0}, Limit: []int{6}, Stride: []int{1}}, args(ty(f16, 5)), "slice 0:6:1 of axis 0 is outside float16[5]"},
		{Slice, Attr{Start: []int{0}, Limit: []int{5}, Stride: []int{0}}, args(ty(f16, 5)), "slice 0:5:0 of axis 0 is outside float16[5]"},
		{Slice, Attr{Start: []int{0}}, args(ty(f16, 5)), "start, limit and stride must name each axis of float16[5]"},
		{Pad, Attr{Low: []int{1, 0}, High: []int{0, 0}}, args(ty(f16, 5, q)), "float16[6 ?]"},
		{Pad, Attr{Low: []int{1}, High: []int{0}}, args(ty(f16, q)), "axis 0 of float16[?] has no size yet and cannot be padded"},
		{Pad, Attr{Low: []int{-1}, High: []int{0}}, args(ty(f16, 5)), "padding -1, 0 of axis 0 is negative"},
		{Pad, Attr{Low: []int{1}}, args(ty(f16, 5)), "low and high must name each axis of float16[5]"},
		{Gather, Attr{}, args(ty(f16, 5, 3), ty(i32, 2, 4)), "float16[2 4 3]"},
		{Gather, Attr{}, args(ty(f16), ty(i32)), "a scalar has no rows"},
		{Gather, Attr{}, args(ty(f16, 5), ty(f32)), "the indices are float32[], want int32 or int64"},
		{ScatterAdd, Attr{Size: 9}, args(ty(f16, 2, 4, 3), ty(i64, 2, 4)), "float16[9 3]"},
		{ScatterAdd, Attr{Size: 9}, args(ty(f16, 2, 3), ty(i64, 3)), "float16[2 3] does not start with the axes of the indices int64[3]"},
		{ScatterAdd, Attr{Size: -1}, args(ty(f16, 2), ty(i64, 2)), "the result would have -1 rows"},
		{ScatterAdd, Attr{Size: 1}, args(ty(bo, 2), ty(i64, 2)), "wants numbers, got bool[2]"},
		{TakeAlongAxis, Attr{}, args(ty(f16, 2, 3), ty(i32, 2)), "float16[2]"},
		{TakeAlongAxis, Attr{}, args(ty(f16, 2, 3), ty(i32, 3)), "the indices are int32[3], want one for each row of float16[2 3]"},
		{ScatterAlongAxis, Attr{Size: 7}, args(ty(f16, 2), ty(i32, 2)), "float16[2 7]"},
		{ScatterAlongAxis, Attr{Size: 7}, args(ty(f16, 2), ty(i32, 3)), "values float16[2] and indices int32[3] differ in shape"},
		{ScatterUpdate, Attr{}, args(ty(f16, 7, 3), ty(i32, 2, 4), ty(f16, 2, 4, 3)), "float16[7 3]"},
		{ScatterUpdate, Attr{}, args(ty(f16), ty(i32), ty(f16)), "a scalar has no rows"},
		{ScatterUpdate, Attr{}, args(ty(f16, 7, 3), ty(i32, 2), ty(f16, 2, 4)), "the rows are float16[2 4], want float16[2 3] for indices int32[2] into float16[7 3]"},
		{ScatterUpdate, Attr{}, args(ty(f16, 7), ty(f16, 2), ty(f16, 2)), "the indices are float16[2], want int32 or int64"},
		{Unique, Attr{Padding: 7}, args(ty(i32, 2, 3)), "int32[2 6]"},
		{Unique, Attr{Padding: 7}, args(ty(f16, 2)), "the indices are float16[2], want int32 or int64"},
		{ScatterAlongAxis, Attr{Size: -7}, args(ty(f16, 2), ty(i32, 2)), "the last axis of the result would have size -7"},

		{Fused, Attr{Body: body}, args(ty(f16, 2, 1), ty(f16, 3)), "float32[2 3]"},
		{Fused, Attr{Body: body}, args(ty(f16, 2)), "body and arguments do not fit"},
		{Fused, Attr{Body: body}, args(ty(f16, 2), ty(f32, 2)), "argument 1 is float32[2], the body wants float16"},
		{Fused, Attr{Body: body}, args(ty(f16, 2), ty(f16, 3)), "shapes [2] and [3] do not broadcast"},
		{Invalid, Attr{}, nil, "unknown operation Code(0)"},
	} {
		r, err := Infer(c.op, c.attr, c.args...)
		got := r.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v %v {%v}: got %q, want %q", c.op, c.args, c.attr, got, c.want)
		}
	}
}

// TestInferSharesNothing: changing the shape of a result must not change
// that of an argument which is grown in place.
func TestInferSharesNothing(t *testing.T) {
	batch := make(Shape, 1, 8)
	batch[0] = 5
	x := Type{f32, append(batch, 2, 3)}
	r, err := Infer(MatMul, Attr{}, x, ty(f32, 3, 9))
	if err != nil || !r.Shape.Equal(Shape{5, 2, 9}) || !x.Shape.Equal(Shape{5, 2, 3}) {
		t.Errorf("got %v of %v, %v", r, x, err)
	}
}

func TestBroadcast(t *testing.T) {
	const q = Unknown
	for _, c := range []struct {
		a, b, want Shape
		bad        bool
	}{
		{nil, nil, nil, false},
		{Shape{2, 3}, nil, Shape{2, 3}, false},
		{Shape{3}, Shape{2, 1}, Shape{2, 3}, false},
		{Shape{0}, Shape{1}, Shape{0}, false},
		{Shape{0}, Shape{3}, nil, true},
		{Shape{q, 3}, Shape{3}, Shape{q, 3}, false},
		{Shape{q}, Shape{q}, Shape{q}, false},
		{Shape{q}, Shape{1}, Shape{q}, false},
		{Shape{q}, Shape{5}, nil, true}, // the axis may turn out to be 1, or 7
	} {
		for range 2 {
			got, err := Broadcast(c.a, c.b)
			if (err != nil) != c.bad || err == nil && !got.Equal(c.want) {
				t.Errorf("Broadcast(%v, %v): got %v, %v; want %v", c.a, c.b, got, err, c.want)
			}
			c.a, c.b = c.b, c.a
		}
	}
}

// TestAppendKey changes each field of Attr, Body and Instr in turn: all keys
// must differ, whatever the keys of other fields look like.
func TestAppendKey(t *testing.T) {
	base := func() Attr {
		return Attr{Scan: &Scan{}, AllReduce: &AllReduce{}, Loop: &LoopBody{Code: []LoopInstr{{Op: Add}}}, Body: &Body{Inputs: []dtype.DType{f32}, Code: []Instr{{Add, f32, [3]int32{0, 0, 0}}}}}
	}
	keys := map[string]string{string(base().AppendKey(nil)): "nothing"}
	note := func(what string, a Attr) {
		k := string(a.AppendKey(nil))
		if old, dup := keys[k]; dup {
			t.Errorf("one key for a change of %s and of %s", what, old)
		}
		keys[k] = what
	}
	set := func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int8, reflect.Int32:
			v.SetInt(v.Int() + 3)
		case reflect.Uint8, reflect.Uint16, reflect.Uint64:
			v.SetUint(v.Uint() + 1)
		case reflect.Float64:
			v.SetFloat(3)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		case reflect.Pointer:
			v.SetZero()
		default:
			t.Fatalf("teach this test fields of kind %v", v.Kind())
		}
	}
	for i := range reflect.TypeFor[Attr]().NumField() {
		a := base()
		set(reflect.ValueOf(&a).Elem().Field(i))
		note("Attr."+reflect.TypeFor[Attr]().Field(i).Name, a)
	}
	a := base()
	a.Body.Inputs[0] = f16
	note("Inputs", a)
	for i := range reflect.TypeFor[Instr]().NumField() - 1 {
		a := base()
		set(reflect.ValueOf(&a.Body.Code[0]).Elem().Field(i))
		note("Instr."+reflect.TypeFor[Instr]().Field(i).Name, a)
	}
	for i := range reflect.TypeFor[Scan]().NumField() {
		a := base()
		set(reflect.ValueOf(a.Scan).Elem().Field(i))
		note("Scan."+reflect.TypeFor[Scan]().Field(i).Name, a)
	}
	for i := range reflect.TypeFor[AllReduce]().NumField() {
		a := base()
		set(reflect.ValueOf(a.AllReduce).Elem().Field(i))
		note("AllReduce."+reflect.TypeFor[AllReduce]().Field(i).Name, a)
	}
	for i := range reflect.TypeFor[LoopBody]().NumField() {
		a := base()
		set(reflect.ValueOf(a.Loop).Elem().Field(i))
		note("LoopBody."+reflect.TypeFor[LoopBody]().Field(i).Name, a)
	}
	for i := range reflect.TypeFor[LoopInstr]().NumField() {
		a := base()
		f := reflect.ValueOf(&a.Loop.Code[0]).Elem().Field(i)
		if f.Kind() == reflect.String { // a name, which changes nothing that is computed
			f.SetString("x")
			if _, same := keys[string(a.AppendKey(nil))]; !same {
				t.Errorf("the name of a step's operation is part of the key")
			}
			continue
		}
		if f.Kind() == reflect.Struct {
			f.Set(reflect.ValueOf(Attr{Size: 1}))
		} else {
			set(f)
		}
		note("LoopInstr."+reflect.TypeFor[LoopInstr]().Field(i).Name, a)
	}
	for i := range Add.Info().Args {
		a := base()
		a.Body.Code[0].Args[i] = 1
		note("Instr.Args", a)
	}
	a = base()
	a.Data = []byte{1}
	note("Attr.Data", a)
	if !bytes.Equal(base().AppendKey(nil), base().AppendKey(nil)) {
		t.Error("equal attributes have two keys")
	}
}

func TestStrings(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Shape{Unknown, 784}.String(), "[? 784]"},
		{Shape(nil).String(), "[]"},
		{ty(f16, Unknown, 2).String(), "float16[? 2]"},
		{Attr{}.String(), ""},
		{Attr{Axes: []int{0, 1}, KeepDims: true}.String(), "axes=[0 1] keepdims"},
		{Attr{TransA: true, TransB: true, Value: 0.5, Size: 3, Stream: 4, Index: 2}.String(), "index=2 transA transB value=0.5 size=3 stream=4"},
		{Attr{Start: []int{0}, Limit: []int{4}, Stride: []int{2}}.String(), "start=[0] limit=[4] stride=[2]"},
		{Attr{Start: []int{8}, Scan: &Scan{Cell: GRUCell, Reverse: true, Last: true}}.String(), "start=[8] scan=(gru reverse last)"},
		{Attr{Low: []int{0}, High: []int{1}, Perm: []int{1, 0}}.String(), "perm=[1 0] low=[0] high=[1]"},
		{Attr{Data: []byte{}}.String(), "data=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}, // SHA-256 of nothing
		{Attr{Body: &Body{Inputs: []dtype.DType{f16, f16}, Code: []Instr{{Add, f16, [3]int32{0, 1}}, {Relu, f16, [3]int32{2}}}}}.String(),
			"{Add(%0 %1):float16; Relu(%2):float16}"},
		{Attr{Loop: &LoopBody{Steps: 3, Sequences: 1, States: 1, Kept: 1, Reverse: true, Results: []int{3}, Code: []LoopInstr{
			{Op: Add, Args: []int{0, 1}}, {Op: Cast, Attr: Attr{Axes: []int{1}}, Args: []int{2}}}}}.String(),
			"loop=(steps=3 sequences=1 states=1 kept=1 reverse {Add(%0 %1); Cast(%2) axes=[1]} [3])"},
		{MatMul.String(), "MatMul"},
		{Code(999).String(), "Code(999)"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestShape(t *testing.T) {
	s := Shape{2, 3}
	if s.Size() != 6 || (Shape{2, Unknown}).Size() != Unknown || Shape(nil).Size() != 1 {
		t.Error("wrong sizes")
	}
	if !s.Known() || (Shape{Unknown}).Known() {
		t.Error("wrong Known")
	}
	if a, err := s.Axis(-1); a != 1 || err != nil {
		t.Errorf("axis -1: got %d, %v", a, err)
	}
	if _, err := s.Axis(2); err == nil || err.Error() != "axis 2 does not exist in shape [2 3]" {
		t.Errorf("axis 2: got error %v", err)
	}
	c := s.Clone()
	c[0] = 9
	if s[0] != 2 {
		t.Error("a clone shares memory")
	}
	if ty(f16, 2, 3).Bytes() != 12 || ty(f32).Bytes() != 4 {
		t.Error("wrong Bytes")
	}
}
