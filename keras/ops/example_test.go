package ops_test

import (
	"context"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
)

func Example() {
	x := keras.NewTensor([]float32{1, -2, 3, -4, 5, -6}, 2, 3)
	fmt.Println(ops.Where(x.GreaterScalar(0), x, ops.Zeros(keras.Float32, 2, 3)))
	fmt.Println(ops.Concatenate(0, x.At(1, -1), ops.Arange(keras.Float32, 3)))
	fmt.Println(ops.Stack(1, x.At(0, 0), x.At(0, 1)))
	// Output:
	// float32[2 3]
	// [[1 0 3]
	//  [0 5 0]]
	// float32[5] [ 3 -6  0  1  2]
	// float32[3 2]
	// [[ 1 -4]
	//  [-2  5]
	//  [ 3 -6]]
}

func ExampleEinsum() {
	x := keras.NewTensor([]float32{1, 2, 3, 4}, 2, 2)
	fmt.Println(ops.Einsum("ab,cb->ac", x, x))
	// Output:
	// float32[2 2]
	// [[ 5 11]
	//  [11 25]]
}

func ExampleScan() {
	x := keras.NewTensor([]float32{1, 2, 3, 4}, 4)
	add := func(states, x []*keras.Tensor) (next, y []*keras.Tensor) {
		sum := states[0].Add(x[0])
		return []*keras.Tensor{sum}, []*keras.Tensor{sum}
	}
	last, sums := ops.Scan(add, []*keras.Tensor{ops.Scalar(keras.Float32, 0)}, []*keras.Tensor{x}, false)
	fmt.Println(last[0], sums[0])
	// Output: float32[] 10 float32[4] [ 1  3  6 10]
}

func ExampleGradients() {
	x := keras.NewTensor([]float32{1, 2, 3}, 3)
	fmt.Println(ops.Gradients(x.Square().Sum(), x)[0])
	// Output: float32[3] [2 4 6]
}

// state is the owner of a variable.
type state struct{ v *keras.Variable }

func (s state) Variables() []*keras.Variable { return []*keras.Variable{s.v} }

func ExamplePredicated() {
	total := state{keras.NewState("total", keras.Float32, nil, nil)}
	add := keras.Function(func(x *keras.Tensor) *keras.Tensor {
		ops.Predicated(x.AllFinite(), func() { total.v.Assign(total.v.Value().Add(x)) })
		return total.v.Value()
	}, total)
	for _, x := range []float32{1, float32(math.Inf(1)), 2} {
		sum, err := add.Call(context.Background(), ops.Scalar(keras.Float32, float64(x)))
		fmt.Println(sum, err)
	}
	// Output:
	// float32[] 1 <nil>
	// float32[] 1 <nil>
	// float32[] 3 <nil>
}

func ExamplePredicateAssigned() {
	total := state{keras.NewState("total", keras.Float32, nil, nil)}
	add := keras.Function(func(x *keras.Tensor) *keras.Tensor {
		total.v.Assign(total.v.Value().Add(x))
		ops.PredicateAssigned(x.AllFinite())
		return total.v.Value()
	}, total)
	for _, x := range []float32{1, float32(math.Inf(1)), 2} {
		sum, err := add.Call(context.Background(), ops.Scalar(keras.Float32, float64(x)))
		fmt.Println(sum, err)
	}
	// Output:
	// float32[] 1 <nil>
	// float32[] 1 <nil>
	// float32[] 3 <nil>
}

func ExampleCatch() {
	sum := func(x, y *keras.Tensor) (z *keras.Tensor, err error) {
		defer ops.Catch(&err)
		return x.Add(y), nil
	}
	_, err := sum(ops.Ones(keras.Float32, 2), ops.Ones(keras.Float32, 3))
	fmt.Println(err)
	// Output: Add: shapes [2] and [3] do not broadcast
}
