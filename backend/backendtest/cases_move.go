package backendtest

import (
	"errors"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// errNotFused leaves element types out that the written bodies do not have.
var errNotFused = errors.New("the fused bodies of the suite are on floats")

func init() {
	register(paramCases, op.Param)
	register(constCases, op.Const)
	register(iotaCases, op.Iota)
	register(randomCases, op.RandomUniform)
	register(reshapeCases, op.Reshape)
	register(barrierCases, op.Barrier)
	register(transposeCases, op.Transpose)
	register(broadcastCases, op.BroadcastTo)
	register(concatCases, op.Concat)
	register(sliceCases, op.Slice)
	register(padCases, op.Pad)
	register(gatherCases, op.Gather)
	register(scatterCases, op.ScatterAdd)
	register(takeCases, op.TakeAlongAxis)
	register(putCases, op.ScatterAlongAxis)
	register(scatterUpdateCases, op.ScatterUpdate)
	register(uniqueCases, op.Unique)
}

// paramCases have the input as their result.
func paramCases(b *builder) {
	for _, s := range shapeClasses {
		k := b.add(s.name, op.Attr{DType: b.dtype, Dims: s.shape}, nil)
		k.fill = []fill{bits}
	}
}

// barrierCases have a second argument of another shape, which changes nothing.
func barrierCases(b *builder) {
	for _, s := range shapeClasses {
		b.add(s.name, op.Attr{}, []op.Type{b.t(s.shape...), b.t(3)}, bits)
	}
}

func constCases(b *builder) {
	for _, s := range shapeClasses {
		b.add(s.name, op.Attr{DType: b.dtype, Dims: s.shape, Value: 2.7}, nil)
		data := bits(seeded(uint64(len(s.name))), b.t(s.shape...))
		b.add(s.name+"Data", op.Attr{DType: b.dtype, Dims: s.shape, Data: data}, nil)
	}
	b.add("zero", op.Attr{DType: b.dtype, Dims: op.Shape{5}}, nil)
	b.add("negativeZero", op.Attr{DType: b.dtype, Dims: op.Shape{5}, Value: math.Copysign(0, -1)}, nil)
	b.add("huge", op.Attr{DType: b.dtype, Dims: op.Shape{5}, Value: 1e300}, nil)
	b.add("infinite", op.Attr{DType: b.dtype, Dims: op.Shape{5}, Value: math.Inf(-1)}, nil)
}

func iotaCases(b *builder) {
	for _, s := range shapeClasses {
		if n := len(s.shape); n == 0 || b.dtype == dtype.Uint8 && s.shape[n-1] > 256 || b.dtype == dtype.Int8 && s.shape[n-1] > 128 {
			continue // no last axis; numbers that the type does not have
		}
		b.add(s.name, op.Attr{DType: b.dtype, Dims: s.shape}, nil).Large = large(s.name)
	}
}

// randomCases are on the state's type; other types have none.
func randomCases(b *builder) {
	state := func(seed, counter float64) fill { return values(seed, counter) }
	for i, s := range shapeClasses {
		for _, bits := range []int{0, 16} {
			name := s.name + map[int]string{16: "Halves"}[bits]
			b.add(name, op.Attr{Dims: s.shape, Stream: uint64(i), Bits: int8(bits)}, []op.Type{b.t(2)}, state(float64(42+i), float64(i))).Large = large(s.name)
		}
	}
	b.add("negative", op.Attr{Dims: op.Shape{9}, Stream: 1<<40 + 3}, []op.Type{b.t(2)}, state(-5, 0x1p35))
	b.add("negativeHalves", op.Attr{Dims: op.Shape{19}, Stream: 1<<40 + 3, Bits: 16}, []op.Type{b.t(2)}, state(-5, 0x1p35))
}

func reshapeCases(b *builder) {
	for _, s := range []struct {
		name     string
		from, to op.Shape
	}{
		{"scalar", nil, op.Shape{1, 1}},
		{"toScalar", op.Shape{1}, nil},
		{"flat", op.Shape{2, 3, 5}, op.Shape{30}},
		{"deep", op.Shape{30}, op.Shape{5, 1, 2, 3, 1}},
		{"other", op.Shape{4, 6}, op.Shape{3, 8}},
		{"empty", op.Shape{0, 3}, op.Shape{5, 0}},
		{"large", op.Shape{300, 257}, op.Shape{257, 300}},
	} {
		b.add(s.name, op.Attr{Dims: s.to}, []op.Type{b.t(s.from...)}, bits)
	}
}

func transposeCases(b *builder) {
	for _, s := range []struct {
		name  string
		shape op.Shape
		perm  []int
	}{
		{"scalar", nil, []int{}},
		{"one", op.Shape{5}, []int{0}},
		{"same", op.Shape{3, 5}, []int{0, 1}},
		{"matrix", op.Shape{33, 17}, []int{1, 0}},
		{"batch", op.Shape{3, 17, 9}, []int{0, 2, 1}},
		{"rotate", op.Shape{3, 4, 5}, []int{2, 0, 1}},
		{"rotate2", op.Shape{3, 4, 5}, []int{1, 2, 0}},
		{"swapOuter", op.Shape{3, 4, 5}, []int{1, 0, 2}},
		{"reverse4", op.Shape{2, 3, 4, 5}, []int{3, 2, 1, 0}},
		{"heads", op.Shape{2, 7, 3, 5}, []int{0, 2, 1, 3}},
		{"rank5", op.Shape{2, 1, 3, 2, 5}, []int{4, 1, 0, 3, 2}},
		{"empty", op.Shape{3, 0, 2}, []int{2, 1, 0}},
		{"largeMatrix", op.Shape{301, 257}, []int{1, 0}},
	} {
		b.add(s.name, op.Attr{Perm: s.perm}, []op.Type{b.t(s.shape...)}, bits).Large = large(s.name)
	}
}

func broadcastCases(b *builder) {
	for _, s := range []struct {
		name     string
		from, to op.Shape
	}{
		{"scalar", nil, nil},
		{"fromScalar", nil, op.Shape{3, 7}},
		{"same", op.Shape{3, 7}, op.Shape{3, 7}},
		{"row", op.Shape{7}, op.Shape{5, 7}},
		{"column", op.Shape{5, 1}, op.Shape{5, 7}},
		{"middle", op.Shape{3, 1, 5}, op.Shape{3, 4, 5}},
		{"several", op.Shape{1, 3, 1, 2}, op.Shape{4, 3, 5, 2}},
		{"rank", op.Shape{3, 1}, op.Shape{2, 2, 3, 4}},
		{"empty", op.Shape{1, 3}, op.Shape{0, 3}},
		{"largeRow", op.Shape{257}, op.Shape{300, 257}},
	} {
		b.add(s.name, op.Attr{Dims: s.to}, []op.Type{b.t(s.from...)}, bits).Large = large(s.name)
	}
}

func concatCases(b *builder) {
	t := b.t
	add := func(name string, axis int, args ...op.Type) *Case {
		return b.add(name, op.Attr{Axes: []int{axis}}, args, bits)
	}
	add("one", 0, t(3))
	add("vectors", 0, t(3), t(5))
	add("rows", 0, t(2, 7), t(3, 7), t(1, 7))
	add("columns", 1, t(3, 2), t(3, 5), t(3, 1))
	add("middle", 1, t(2, 3, 5), t(2, 1, 5))
	add("last", 2, t(2, 3, 5), t(2, 3, 2))
	add("withEmpty", 0, t(0, 3), t(2, 3), t(0, 3))
	add("empty", 1, t(0, 3), t(0, 2))
	add("largeColumns", 1, t(300, 129), t(300, 130)).Large = true
}

func sliceCases(b *builder) {
	add := func(name string, shape op.Shape, start, limit, stride []int) *Case {
		return b.add(name, op.Attr{Start: start, Limit: limit, Stride: stride}, []op.Type{b.t(shape...)}, bits)
	}
	add("scalar", nil, []int{}, []int{}, []int{})
	add("whole", op.Shape{7}, []int{0}, []int{7}, []int{1})
	add("inner", op.Shape{7}, []int{2}, []int{5}, []int{1})
	add("step", op.Shape{9}, []int{1}, []int{9}, []int{3})
	add("none", op.Shape{7}, []int{3}, []int{3}, []int{1})
	add("rows", op.Shape{9, 5}, []int{2, 0}, []int{6, 5}, []int{1, 1})
	add("columns", op.Shape{9, 5}, []int{0, 1}, []int{9, 4}, []int{1, 1})
	add("both", op.Shape{9, 7}, []int{1, 1}, []int{8, 7}, []int{2, 3})
	add("rank4", op.Shape{2, 5, 4, 6}, []int{1, 1, 0, 2}, []int{2, 5, 4, 6}, []int{1, 2, 3, 1})
	add("empty", op.Shape{0, 3}, []int{0, 1}, []int{0, 3}, []int{1, 1})
	add("largeColumns", op.Shape{301, 300}, []int{0, 1}, []int{301, 300}, []int{1, 1}).Large = true
}

func padCases(b *builder) {
	add := func(name string, shape op.Shape, low, high []int, v float64) *Case {
		return b.add(name, op.Attr{Low: low, High: high, Value: v}, []op.Type{b.t(shape...)}, bits)
	}
	add("scalar", nil, []int{}, []int{}, 1)
	add("none", op.Shape{3, 2}, []int{0, 0}, []int{0, 0}, 1)
	add("vector", op.Shape{5}, []int{2}, []int{3}, 0)
	add("matrix", op.Shape{3, 5}, []int{1, 2}, []int{2, 1}, 2.5)
	add("low", op.Shape{3, 5}, []int{0, 2}, []int{0, 0}, -1)
	add("image", op.Shape{2, 5, 5, 3}, []int{0, 1, 1, 0}, []int{0, 1, 1, 0}, 0)
	add("infinite", op.Shape{3}, []int{1}, []int{1}, math.Inf(-1))
	add("nan", op.Shape{3}, []int{1}, []int{1}, math.NaN())
	add("negativeZero", op.Shape{3}, []int{1}, []int{1}, math.Copysign(0, -1))
	add("empty", op.Shape{0, 2}, []int{1, 0}, []int{2, 1}, 3)
	add("largeImage", op.Shape{8, 30, 30, 11}, []int{0, 1, 1, 0}, []int{0, 1, 1, 0}, 0).Large = true
}

var indexTypes = []dtype.DType{dtype.Int32, dtype.Int64}

// outOfRange adds a case for an index below and one above the range: the
// second of three.
func (b *builder) outOfRange(name string, a op.Attr, args []op.Type, n int) {
	for _, bad := range []int{-1, n} {
		class := name + "Negative"
		if bad == n {
			class = name + "TooLarge"
		}
		b.add(class, a, args, numbers, values(0, float64(bad), 0)).wantErr = true
	}
}

func gatherCases(b *builder) {
	for _, d := range indexTypes {
		add := func(name string, x op.Type, idx ...int) *Case {
			return b.add(name+suffix(d), op.Attr{}, []op.Type{x, {DType: d, Shape: idx}}, bits, indices(max(1, x.Shape[0])))
		}
		add("scalar", b.t(5))
		add("scalarOfRows", b.t(5, 3))
		add("vector", b.t(7), 4)
		add("rows", b.t(7, 5), 9)
		add("matrix", b.t(7, 5), 3, 4)
		add("rank3", b.t(4, 3, 2), 5)
		add("none", b.t(4, 3), 0)
		add("noneOfNone", b.t(0, 3), 0)
		add("emptyRows", b.t(4, 0), 3)
		add("large", b.t(1000, 33), 70, 32).Large = true
		b.outOfRange("bad"+suffix(d), op.Attr{}, []op.Type{b.t(4, 2), {DType: d, Shape: op.Shape{3}}}, 4)
	}
}

func scatterCases(b *builder) {
	for _, d := range indexTypes {
		add := func(name string, n int, x op.Type, axes int) *Case {
			idx := op.Type{DType: d, Shape: slices.Clone(x.Shape[:axes])}
			return b.add(name+suffix(d), op.Attr{Size: n}, []op.Type{x, idx}, numbers, indices(max(1, n)))
		}
		add("scalar", 5, b.t(), 0)
		add("row", 5, b.t(3), 0)
		add("vector", 7, b.t(40), 1)
		add("rows", 7, b.t(9, 5), 1)
		add("matrix", 7, b.t(3, 4, 5), 2)
		add("none", 4, b.t(0, 3), 1)
		add("noneOfNone", 0, b.t(0, 3), 1)
		add("emptyRows", 4, b.t(3, 0), 1)
		add("crowded", 2, b.t(5000, 3), 1)
		add("large", 1000, b.t(70, 32, 33), 2).Large = true
		b.outOfRange("bad"+suffix(d), op.Attr{Size: 4}, []op.Type{b.t(3, 2), {DType: d, Shape: op.Shape{3}}}, 4)
	}
}

func takeCases(b *builder) {
	for _, d := range indexTypes {
		add := func(name string, shape ...int) *Case {
			n := len(shape) - 1
			idx := op.Type{DType: d, Shape: slices.Clone(shape[:n])}
			return b.add(name+suffix(d), op.Attr{}, []op.Type{b.t(shape...), idx}, bits, indices(max(1, shape[n])))
		}
		add("vector", 5)
		add("rows", 33, 10)
		add("rank3", 3, 4, 5)
		add("none", 0, 3)
		add("noneOfNone", 0, 0)
		add("large", 7001, 10).Large = true
		b.outOfRange("bad"+suffix(d), op.Attr{}, []op.Type{b.t(3, 4), {DType: d, Shape: op.Shape{3}}}, 4)
	}
}

func putCases(b *builder) {
	for _, d := range indexTypes {
		add := func(name string, n int, shape ...int) *Case {
			return b.add(name+suffix(d), op.Attr{Size: n}, []op.Type{b.t(shape...), {DType: d, Shape: shape}}, bits, indices(max(1, n)))
		}
		add("scalar", 5)
		add("rows", 10, 33)
		add("rank2", 5, 3, 4)
		add("none", 3, 0)
		add("noneOfNone", 0, 0)
		add("large", 10, 7001).Large = true
		b.outOfRange("bad"+suffix(d), op.Attr{Size: 4}, []op.Type{b.t(3), {DType: d, Shape: op.Shape{3}}}, 4)
	}
}

func scatterUpdateCases(b *builder) {
	for _, d := range indexTypes {
		add := func(name string, x op.Type, at fill, idx ...int) *Case {
			rows := op.Type{DType: x.DType, Shape: append(slices.Clone(idx), x.Shape[1:]...)}
			return b.add(name+suffix(d), op.Attr{}, []op.Type{x, {DType: d, Shape: idx}, rows}, bits, at, bits)
		}
		add("scalar", b.t(5), indices(5))
		add("row", b.t(5, 3), indices(5))
		add("rows", b.t(17, 5), indices(17), 9)
		add("matrix", b.t(17, 2, 3), indices(17), 3, 4)
		add("leftOut", b.t(4, 3), values(-1, 4, 2, 1000, 0), 5)
		add("crowded", b.t(3, 7), indices(4), 500)
		add("none", b.t(4, 3), indices(1), 0)
		add("noneOfNone", b.t(0, 3), indices(1), 2)
		add("emptyRows", b.t(4, 0), indices(4), 3)
		add("large", b.t(3000, 33), indices(3000), 70, 32).Large = true
	}
}

func uniqueCases(b *builder) {
	if !slices.Contains(indexTypes, b.dtype) {
		return
	}
	add := func(name string, n int, at fill, shape ...int) *Case {
		return b.add(name, op.Attr{Padding: n}, []op.Type{b.t(shape...)}, at)
	}
	add("scalar", 5, indices(5))
	add("vector", 9, indices(9), 7)
	add("matrix", 9, indices(9), 5, 6)
	add("equal", 3, values(2), 33)
	add("negative", -1, values(-1, 7, -1, math.MinInt32, 0), 11)
	add("none", 4, indices(1), 0)
	add("large", 3000, indices(3000), 70, 32).Large = true
}
