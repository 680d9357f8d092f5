package vec

import "unsafe"

// ColumnSums are sums down columns of elements of a type, in float32. x and grad have rows of
// len(sum) elements, a multiple of Lanes, stride apart; results are added to the sums.
// loops.go has the formula of each.
type ColumnSums[T float32 | uint16] struct {
	Sums       func(sum []float32, x []T, rows, stride int)
	Deviations func(sum, squares, center []float32, x []T, rows, stride int)
	Products   func(sum, products, center []float32, x, grad []T, rows, stride int)
}

func columnSumsOf[T float32 | uint16](sums func(sum, x, grad unsafe.Pointer, n, rows, stride int),
	deviations, along func(sum, products, center, x, grad unsafe.Pointer, n, rows, stride int)) ColumnSums[T] {
	first := func(x []T, n, rows, stride int) unsafe.Pointer { return data(x[:(rows-1)*stride+n]) }
	return ColumnSums[T]{
		Sums: func(sum []float32, x []T, rows, stride int) {
			if n := len(sum); n > 0 && rows > 0 {
				sums(data(sum), first(x, n, rows, stride), nil, n, rows, stride)
			}
		},
		Deviations: func(sum, squares, center []float32, x []T, rows, stride int) {
			if n := len(sum); n > 0 && rows > 0 {
				deviations(data(sum), data(squares[:n]), data(center[:n]), first(x, n, rows, stride), nil, n, rows, stride)
			}
		},
		Products: func(sum, products, center []float32, x, grad []T, rows, stride int) {
			if n := len(sum); n > 0 && rows > 0 {
				along(data(sum), data(products[:n]), data(center[:n]), first(x, n, rows, stride), first(grad, n, rows, stride), n, rows, stride)
			}
		},
	}
}
