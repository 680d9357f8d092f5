//go:build cuda && linux && amd64

package cuda

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cublaslt"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/ptx"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Tensor Cores are fed 16 bytes at a time: where rows of an operand are not
// whole pieces of that size (10 classes, 420 channels), the product is one of
// copies whose rows are, the rest of them zeros, and of its result the part is
// kept that was asked for. Zeros are in both operands, so that a NaN or an
// infinity meets none of them in a result that is kept.

const rowBytes = 16

// whole is the number of elements from n on whose bytes are whole pieces.
func whole(n int, t dtype.DType) int {
	unit := rowBytes / t.Size()
	return (n + unit - 1) / unit * unit
}

// work is the tiles of Tensor Cores that a product has.
func work(m, n, k int) int { return (m + 127) / 128 * ((n + 127) / 128) * ((k + 31) / 32) }

// What a product has to be for padding to pay: as long as the copies' kernels
// take to start, and eight times as long as the copies take themselves, in
// bytes that come from memory meanwhile. Tensor Cores do 139 floating-point
// operations a byte on a V100, 156 on an A100, 184 on an H200.
const (
	operationsPerByte = 150
	paddingFrom       = 32 << 20
	paddingShare      = 8
)

// pads reports whether a product of a type is padded that does so many
// operations, moves so many bytes, has so many tiles before and after, and of
// which so many bytes are written or read to have it padded.
func (d *Device) pads(t dtype.DType, operations, moved, tiles, padded, copied int) bool {
	s := d.settings
	if !s.pad || !t.Is16() && (t != dtype.Float32 || !d.tf32()) {
		return false
	}
	took := max(operations/operationsPerByte, moved)
	return s.padAll || padded <= tiles+tiles/4 && took >= paddingFrom && copied*paddingShare <= took
}

// hold reserves working memory until the value being built is done. The caller
// of the function that builds it puts b.reserved back.
func (b *builder) hold(bytes int) scratch {
	at := scratch(b.reserved)
	b.reserved += aligned(bytes)
	b.scratch = max(b.scratch, b.reserved)
	return at
}

// resize is a call that brings matrices of a type from [rows columns] to
// [toRows toColumns], with zeros or without their ends. from and to are
// parameters that begin where 16 bytes do, or values.
func (b *builder) resize(v *ir.Value, t dtype.DType, from, to any, matrices, rows, columns, toRows, toColumns int) {
	word := 8
	for columns*t.Size()%word != 0 || toColumns*t.Size()%word != 0 || b.begins(from)%word != 0 || b.begins(to)%word != 0 {
		word /= 2
	}
	columns, toColumns = columns*t.Size()/word, toColumns*t.Size()/word
	code := func(d int) uint64 {
		magic, shift := ptx.Reciprocal(d)
		return magic | uint64(shift)<<32
	}
	n := matrices * toRows * toColumns
	b.each(v, fmt.Sprint("resize_", word), n, to, from, n, columns, rows, toColumns, code(toColumns), toRows, code(toRows))
}

// begins is the power of two that the address of a parameter is a multiple of.
func (b *builder) begins(a any) int {
	switch a := a.(type) {
	case *ir.Value:
		return b.alignment(a)
	case behind:
		n := b.alignment(a.v)
		for a.bytes%n != 0 {
			n /= 2
		}
		return n
	}
	return 256
}

// resized is resize into working memory, or from itself where nothing changes.
func (b *builder) resized(v *ir.Value, t dtype.DType, from any, matrices, rows, columns, toRows, toColumns int) any {
	if rows == toRows && columns == toColumns {
		return from
	}
	to := b.hold(matrices * toRows * toColumns * t.Size())
	b.resize(v, t, from, to, matrices, rows, columns, toRows, toColumns)
	return to
}

// stored is the rows and columns of a matrix as it lies in memory.
func stored(rows, columns int, transposed bool) (int, int) {
	if transposed {
		return columns, rows
	}
	return rows, columns
}

// paddedProblem is the problem of the library whose matrices have whole rows,
// if that is another one and pays: the library's fast algorithms want so many
// elements, and columns, not only a distance of rows.
func (b *builder) paddedProblem(p cublaslt.Problem) (q cublaslt.Problem, ok bool) {
	q = p
	if p.Batch > 1 {
		return q, false
	}
	q.N = whole(p.N, p.In)
	if !p.TransA || p.TransB {
		q.K = whole(p.K, p.In)
	}
	if p.TransA {
		q.M = whole(p.M, p.In)
	}
	if q == p || max(q.M, q.N, q.K) >= 1<<31/max(p.M, p.N, p.K) {
		return q, false
	}
	a, bb, out := p.Bytes()
	qa, qb, qout := q.Bytes()
	copied := 0
	for _, x := range [][2]int{{a, qa}, {bb, qb}, {out, qout}} {
		if x[0] != x[1] {
			copied += x[0] + x[1]
		}
	}
	q.Align = [3]int{256, 256, 256}
	return q, b.p.device.pads(p.In, 2*p.M*p.N*p.K, a+bb+out, work(p.M, p.N, p.K), work(q.M, q.N, q.K), copied)
}

// paddedProduct makes the calls of a product p of the library as m, which is q
// with what follows it.
func (b *builder) paddedProduct(v *ir.Value, p, q cublaslt.Problem, m *cublaslt.Matmul, f following) {
	defer func(n int) { b.reserved = n }(b.reserved)
	operand := func(x *ir.Value, transposed bool, rows, columns, toRows, toColumns int) any {
		r, c := stored(rows, columns, transposed)
		tr, tc := stored(toRows, toColumns, transposed)
		return b.resized(v, p.In, x, 1, r, c, tr, tc)
	}
	x := operand(v.Args[0], p.TransA, p.M, p.K, q.M, q.K)
	y := operand(v.Args[1], p.TransB, p.K, p.N, q.K, q.N)
	bias := f.parameter()
	if f.bias != nil {
		bias = b.resized(v, p.Out, bias, 1, 1, p.N, 1, q.N)
	}
	out := any(v)
	if q.M != p.M || q.N != p.N {
		out = b.hold(q.M * q.N * p.Out.Size())
	}
	b.libraryCall(v, m, x, y, bias, uint64(0), out)
	if out != any(v) {
		b.resize(v, p.Out, out, v, 1, q.M, q.N, p.M, p.N)
	}
}

// paddedMatmul has the operands of a product by our own kernels lie in whole
// rows where that pays: their elements are found by their rows' distance.
func (b *builder) paddedMatmul(v *ir.Value, g product, lda, ldb int) (x, y any, la, lb int) {
	x, y, la, lb = v.Args[0], v.Args[1], lda, ldb
	t := v.Args[0].Type.DType
	wa, wb := whole(lda, t), whole(ldb, t)
	if len(g.batch.sizes) > 0 || g.k == 0 || wa == lda && wb == ldb {
		return x, y, la, lb
	}
	rowsA, rowsB := g.m*g.k/lda, g.k*g.n/ldb
	copied := 0
	for _, c := range [][3]int{{rowsA, lda, wa}, {rowsB, ldb, wb}} {
		if c[1] != c[2] {
			copied += c[0] * (c[1] + c[2]) * t.Size()
		}
	}
	moved := (g.m*g.k+g.k*g.n)*t.Size() + v.Type.Bytes()
	if max(rowsA*wa, rowsB*wb) >= 1<<31 || !b.p.device.pads(t, 2*g.m*g.n*g.k, moved, 1, 1, copied) {
		return x, y, la, lb
	}
	return b.resized(v, t, x, 1, rowsA, lda, rowsA, wa), b.resized(v, t, y, 1, rowsB, ldb, rowsB, wb), wa, wb
}

// paddedConv is the operands of a convolution, or of one of its gradients, with
// whole rows of c input and o output channels where that pays, and their
// channels then.
func (b *builder) paddedConv(v *ir.Value, taps, pixels, inputs, c, o int) (x, y any, toC, toO int) {
	x, y = v.Args[0], v.Args[1]
	t := v.Args[0].Type.DType
	none := func() (any, any, int, int) { return x, y, c, o }
	toC, toO = whole(c, t), whole(o, t)
	tiles := func(c, o int) int {
		switch v.Op {
		case op.ConvInputGrad:
			return work(inputs, c, taps*o)
		case op.ConvKernelGrad:
			return work(taps*c, o, pixels)
		}
		return work(pixels, o, taps*c)
	}
	grown := func(c2, o2 int) bool { return tiles(c2, o2) > tiles(c, o)+tiles(c, o)/4 }
	if !b.p.device.settings.padAll {
		if grown(toC, o) {
			toC = c
		}
		if grown(toC, toO) {
			toO = o
		}
	}
	if v.Op == op.ConvInputGrad { // what has the input's channels is its result
		toC = c
	}
	if toC == c && toO == o {
		return none()
	}
	images := func(n, from, to int) int { // bytes of copying n rows
		if from == to {
			return 0
		}
		return n * (from + to) * t.Size()
	}
	copied, moved := taps*(c*o+toC*toO)*t.Size(), (inputs*c+pixels*o+taps*c*o)*t.Size()
	switch v.Op {
	case op.Conv:
		copied += images(inputs, c, toC)
	case op.ConvInputGrad:
		copied += images(pixels, o, toO)
	case op.ConvKernelGrad:
		copied += images(inputs, c, toC) + images(pixels, o, toO)
	}
	if max(inputs*toC, pixels*toO, taps*toC*toO) >= 1<<31 || !b.p.device.pads(t, 2*pixels*taps*c*o, moved, tiles(c, o), tiles(toC, toO), copied) {
		return none()
	}
	switch v.Op {
	case op.Conv:
		x, y = b.resized(v, t, x, 1, inputs, c, inputs, toC), b.resized(v, t, y, taps, c, o, toC, toO)
	case op.ConvInputGrad:
		x, y = b.resized(v, t, x, 1, pixels, o, pixels, toO), b.resized(v, t, y, taps, c, o, c, toO)
	case op.ConvKernelGrad:
		x, y = b.resized(v, t, x, 1, inputs, c, inputs, toC), b.resized(v, t, y, 1, pixels, o, pixels, toO)
	}
	return x, y, toC, toO
}
