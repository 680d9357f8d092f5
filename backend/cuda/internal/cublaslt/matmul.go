//go:build cuda && linux && amd64

package cublaslt

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Activation is what is applied to a product after the bias.
type Activation int

const (
	NoActivation Activation = iota
	Relu
)

// Problem is a product of matrices in row-major order, of all matrices of a
// batch: D [M N] = f(A [M K] · B [K N] + bias [N]), summed up in float32, or
// in float64 for float64.
type Problem struct {
	M, N, K        int
	TransA, TransB bool        // A is stored as [K M], B as [N K]
	In, Out        dtype.DType // of A and B, and of D and the bias
	TF32           bool        // round elements of float32 to 10 bits of mantissa, for Tensor Cores
	Batch          int         // how many products there are
	StrideA        int         // elements from one A to the next; 0: all products have the same one
	StrideB        int
	Bias           bool
	Activation     Activation
	Adds           bool   // a matrix C like D is added: D = A·B + C, rounded once; without bias and activation
	Align          [3]int // bytes that the addresses of A, B and D, and of C, are multiples of

	// Eight are the formats of A and B where they hold 8-bit floats; In is then
	// Uint8. GPUs have such products of an A that is not transposed and a B that
	// is, and not of two operands of E5M2.
	Eight  [2]Format
	Scaled bool // the sums are multiplied by a float32 of the device before the bias is added
	Fast   bool // 8-bit floats are summed up with fewer bits
}

// Format is that of 8-bit floats: the number of a cudaDataType.
type Format int

const (
	E4M3 Format = 28
	E5M2 Format = 29
)

// Bytes are the sizes of A, B and D with their batches.
func (p Problem) Bytes() (a, b, d int) {
	last := p.Batch - 1
	return (last*p.StrideA + p.M*p.K) * p.In.Size(), (last*p.StrideB + p.K*p.N) * p.In.Size(), p.Batch * p.M * p.N * p.Out.Size()
}

// Numbers of cublasLt.h and library_types.h.
const (
	real32, real64, real16, realBF16  = 0, 1, 2, 14 // cudaDataType
	compute32, compute64, computeTF32 = 68, 70, 77  // cublasComputeType_t
	descTransA, descTransB            = 3, 4        // cublasLtMatmulDescAttributes_t
	descEpilogue, descBias            = 7, 8        //
	descBiasType                      = 26          //
	descScaleA, descFast              = 17, 25      // of 8-bit floats
	layoutTypeOf                      = 0           // cublasLtMatrixLayoutAttribute_t
	layoutBatch, layoutStride         = 5, 6        //
	operationN, operationT            = 0, 1        // cublasOperation_t
	epilogueDefault, epilogueRelu     = 1, 2        // cublasLtEpilogue_t
	epilogueBias                      = 4           // added to those
	schemeCompute, schemeAll          = 2, 7        // cublasLtReductionScheme_t
	maxChoices                        = 8           // of algorithms
)

// anyAddress stands for the address of a bias before there is one.
const anyAddress = 256

// types are the numbers of element types.
var types = map[dtype.DType]C.int{dtype.Float32: real32, dtype.Float64: real64, dtype.Float16: real16, dtype.BFloat16: realBF16}

// typeOf is the number of the type of operand i.
func (p Problem) typeOf(i int) C.int {
	if p.Eight[i] != 0 {
		return C.int(p.Eight[i])
	}
	return types[p.In]
}

// supported reports whether there are such products.
func (p Problem) supported() bool {
	if p.Eight == [2]Format{} {
		return !p.Scaled && !p.Fast && Supports(p.In, p.Out) && !(p.Adds && (p.Bias || p.Activation != NoActivation))
	}
	known := func(f Format) bool { return f == E4M3 || f == E5M2 }
	return !p.Adds && known(p.Eight[0]) && known(p.Eight[1]) && p.Eight != [2]Format{E5M2, E5M2} && p.In == dtype.Uint8 && !p.TransA && p.TransB &&
		(p.Out.Is16() || p.Out == dtype.Float32 && !p.Bias)
}

// Supports reports whether the library has products of these types.
func Supports(in, out dtype.DType) bool {
	_, ok := types[in]
	return ok && (out == in || in.Is16() && out == dtype.Float32)
}

// Matmul is how a Problem is computed on a device.
type Matmul struct {
	Problem
	h                   *Handle
	desc, a, b, d, bias unsafe.Pointer
	choices             []C.mezzo_lt_choice
	chosen              int
	biasAt, scaleAt     uint64
}

// describe makes the library's description of a problem. It needs no device.
func (l *Library) describe(p Problem) (*Matmul, error) {
	if !p.supported() {
		return nil, fmt.Errorf("cublasLt: product of %v (formats %v) as %v", p.In, p.Eight, p.Out)
	}
	if p.M < 1 || p.N < 1 || p.K < 1 || p.Batch < 1 {
		return nil, fmt.Errorf("cublasLt: %d products of [%d %d] and [%d %d], want sizes of at least 1", p.Batch, p.M, p.K, p.K, p.N)
	}
	compute, scale := C.int(compute32), C.int(real32)
	switch {
	case p.In == dtype.Float64:
		compute, scale = compute64, real64
	case p.In == dtype.Float32 && p.TF32:
		compute = computeTF32
	}
	m := &Matmul{Problem: p, h: &Handle{l: l}}
	c := l.c
	err := check("cublasLtMatmulDescCreate", C.mezzo_lt_desc_create(c, &m.desc, compute, scale))
	set := func(attribute int, value uint64, bytes int) {
		if err == nil {
			err = check(fmt.Sprintf("cublasLtMatmulDescSetAttribute %d", attribute), C.mezzo_lt_desc_set(c, m.desc, C.int(attribute), C.uint64_t(value), C.size_t(bytes)))
		}
	}
	operation := map[bool]uint64{false: operationN, true: operationT}
	// The library has matrices by columns. By columns a row-major matrix is its
	// transpose, so Dᵀ = Bᵀ·Aᵀ is computed, and its first operand is B.
	set(descTransA, operation[p.TransB], 4)
	set(descTransB, operation[p.TransA], 4)
	epilogue := epilogueDefault
	if p.Activation == Relu {
		epilogue = epilogueRelu
	}
	if p.Bias {
		if epilogue |= epilogueBias; p.Activation == NoActivation {
			epilogue = epilogueBias
		}
		set(descBiasType, uint64(types[p.Out]), 4)
		set(descBias, anyAddress, 8) // algorithms are chosen by its alignment
		m.biasAt = anyAddress
	}
	set(descEpilogue, uint64(epilogue), 4)
	if p.Scaled {
		set(descScaleA, anyAddress, 8)
		m.scaleAt = anyAddress
	}
	if p.Fast {
		set(descFast, 1, 1)
	}
	layout := func(to *unsafe.Pointer, t C.int, rows, columns, stride int) {
		var made unsafe.Pointer
		if err == nil {
			err = check("cublasLtMatrixLayoutCreate", C.mezzo_lt_layout_create(c, &made, t, C.uint64_t(columns), C.uint64_t(rows), C.int64_t(columns)))
			*to = made
		}
		if err == nil && p.Batch > 1 {
			err = check("cublasLtMatrixLayoutSetAttribute batch", C.mezzo_lt_layout_set(c, made, layoutBatch, C.uint64_t(p.Batch), 4))
		}
		if err == nil && p.Batch > 1 {
			err = check("cublasLtMatrixLayoutSetAttribute stride", C.mezzo_lt_layout_set(c, made, layoutStride, C.uint64_t(stride), 8))
		}
	}
	stored := func(rows, columns int, transposed bool) (int, int) {
		if transposed {
			return columns, rows
		}
		return rows, columns
	}
	ar, ac := stored(p.M, p.K, p.TransA)
	br, bc := stored(p.K, p.N, p.TransB)
	layout(&m.a, p.typeOf(1), br, bc, p.StrideB)
	layout(&m.b, p.typeOf(0), ar, ac, p.StrideA)
	layout(&m.d, types[p.Out], p.M, p.N, p.M*p.N)
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Matmul asks the library how to compute a problem with at most so many bytes
// of workspace. The first of its algorithms is chosen.
func (h *Handle) Matmul(p Problem, workspace int) (*Matmul, error) {
	m, err := h.l.describe(p)
	if err != nil {
		return nil, err
	}
	m.h = h
	var found C.int
	m.choices = make([]C.mezzo_lt_choice, maxChoices)
	schemes := schemeAll
	if p.Out.Is16() { // the other schemes keep parts of a sum in the type of D
		schemes = schemeCompute
	}
	align := [3]C.uint32_t{C.uint32_t(p.Align[1]), C.uint32_t(p.Align[0]), C.uint32_t(p.Align[2])}
	status := C.mezzo_lt_heuristic(h.l.c, h.c, m.desc, m.a, m.b, m.d, C.uint64_t(workspace), C.uint32_t(schemes), &align[0], maxChoices, &m.choices[0], &found)
	if err = check("cublasLtMatmulAlgoGetHeuristic", status); err == nil && found == 0 {
		err = &Error{"cublasLtMatmulAlgoGetHeuristic", 15}
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	m.choices = slices.DeleteFunc(m.choices[:found], func(c C.mezzo_lt_choice) bool { return c.state != 0 })
	if len(m.choices) == 0 {
		m.Close()
		return nil, &Error{"cublasLtMatmulAlgoGetHeuristic", 15}
	}
	return m, nil
}

// Choices is the number of algorithms, the one that the library thinks best
// first.
func (m *Matmul) Choices() int { return len(m.choices) }

// Choose makes one of them that of Run.
func (m *Matmul) Choose(i int) { m.chosen = i }

// Workspace is the bytes that the chosen algorithm works in.
func (m *Matmul) Workspace() int { return int(m.choices[m.chosen].workspace) }

// Run puts the product on a stream. Addresses are those of device memory: bias
// is not used unless the problem has one, nor other, which is the scale of a Scaled problem,
// and C of one that Adds; workspace has as many bytes as Workspace says, aligned to 256. C may
// be where D is.
func (m *Matmul) Run(stream uintptr, a, b, bias, other, d, workspace uint64) error {
	c := m.h.l.c
	if m.Bias && bias != m.biasAt {
		if err := check("cublasLtMatmulDescSetAttribute bias", C.mezzo_lt_desc_set(c, m.desc, descBias, C.uint64_t(bias), 8)); err != nil {
			return err
		}
		m.biasAt = bias
	}
	if m.Scaled && other != m.scaleAt {
		if err := check("cublasLtMatmulDescSetAttribute scale", C.mezzo_lt_desc_set(c, m.desc, descScaleA, C.uint64_t(other), 8)); err != nil {
			return err
		}
		m.scaleAt = other
	}
	addend := uint64(0)
	if m.Adds {
		addend = other
	}
	wide := C.int(0)
	if m.In == dtype.Float64 {
		wide = 1
	}
	return check("cublasLtMatmul", C.mezzo_lt_matmul(c, m.h.c, m.desc, wide, C.uint64_t(b), m.a, C.uint64_t(a), m.b, C.uint64_t(addend), C.uint64_t(d), m.d,
		&m.choices[m.chosen], C.uint64_t(workspace), C.uintptr_t(stream)))
}

// Close frees the description.
func (m *Matmul) Close() {
	C.mezzo_lt_free(m.h.l.c, m.desc, m.a, m.b, m.d)
	m.desc, m.a, m.b, m.d = nil, nil, nil, nil
}

// attribute reads back what the library has of the description.
func (m *Matmul) attribute(number int) (uint64, error) { return m.attributeOf(number, 4) }

// attributeOf is attribute for one of so many bytes.
func (m *Matmul) attributeOf(number, bytes int) (uint64, error) {
	var v C.uint64_t
	err := check("cublasLtMatmulDescGetAttribute", C.mezzo_lt_desc_get(m.h.l.c, m.desc, C.int(number), &v, C.size_t(bytes)))
	return uint64(v), err
}

// layoutType reads back the type of the matrices of a layout.
func (m *Matmul) layoutType(layout unsafe.Pointer) (uint64, error) {
	var v C.uint64_t
	err := check("cublasLtMatrixLayoutGetAttribute", C.mezzo_lt_layout_get(m.h.l.c, layout, layoutTypeOf, &v, 4))
	return uint64(v), err
}

// attributeOfA reads back what the library has of the layout of A.
func (m *Matmul) attributeOfA(number, bytes int) (uint64, error) {
	var v C.uint64_t
	err := check("cublasLtMatrixLayoutGetAttribute", C.mezzo_lt_layout_get(m.h.l.c, m.b, C.int(number), &v, C.size_t(bytes)))
	return uint64(v), err
}
