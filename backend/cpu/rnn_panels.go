package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// Products of a scan in float16 are done on tile registers, which know bfloat16
// only, as panelProduct does them: kernels are packed as two parts of each
// number, and rows are split at each step. A flag before the packed kernels, and
// one before the rows, say whether there is an element that is not finite: what
// depends on those is computed in float32, of which there is a packed copy, too.

// panelUnit is the rows, and columns, of a tile register.
const panelUnit = gemm.PanelRows / 2

// flagOf is the flag before packed operands.
func flagOf(data []byte) *uint32 { return &lanes.ViewOf[uint32](data, 1)[0] }

// usePanels has p, a product of float16 in float32, done on tile registers.
func (p *stepProduct[T]) usePanels() {
	wide := *p
	p.wide, p.panels = &wide, p.set.Panels
	wide.at += p.panelBytes()
	p.chunks = tiling.CeilDiv(p.n, gemm.PanelCols) + wide.chunks
	p.lead = max(wide.lead, 2*p.partLead())
}

// panelSize is the bytes of a packed panel, panelBytes those of all, and partLead
// those of a row of a part of an operand.
func (p *stepProduct[T]) panelSize() int {
	return 2 * gemm.PanelStep * tiling.CeilDiv(p.k, gemm.PanelDepth)
}

func (p *stepProduct[T]) panelBytes() int { return p.panelSize() * tiling.CeilDiv(p.n, gemm.PanelCols) }

func (p *stepProduct[T]) partLead() int { return 2*tiling.RoundUp(p.k, gemm.PanelDepth) + rowPad }

// packPanel packs part i of the kernel: a panel, or one of float32.
func (p *stepProduct[T]) packPanel(r *exec.Run, w *exec.Worker, i int) {
	panels := tiling.CeilDiv(p.n, gemm.PanelCols)
	if i >= panels {
		p.wide.pack(r, w, i-panels)
		return
	}
	first := i * gemm.PanelCols
	cols := min(gemm.PanelCols, p.n-first)
	size, found := p.panelSize(), unsafe.Pointer(flagOf(r.Shared))
	to, data := unsafe.Pointer(&r.Shared[p.at+i*size]), r.Values[p.src]
	if p.trans {
		turnPanels(p.set, to, size, 2, unsafe.Pointer(&data[2*(first*p.stride+p.col)]), 2*p.stride, cols, p.k, found)
	} else {
		packPanels(p.set, to, size, 2, unsafe.Pointer(&data[2*(p.col+first)]), 2*p.stride, cols, p.k, found)
	}
}

// split is operand of float16 in two parts; it reports whether all elements of
// it and of the kernels are finite.
func (p *stepProduct[T]) split(r *exec.Run, data []byte, lead, rows int, scratch []byte) (stepOperand, bool) {
	found, part := flagOf(scratch), p.partLead()
	a := stepOperand{p: unsafe.Pointer(&scratch[flagBytes]), lead: 2 * part, low: part}
	*found = *flagOf(r.Shared)
	if *found == 0 {
		p.panels.Split(a.p, a.lead, a.low, unsafe.Pointer(unsafe.SliceData(data)), lead, rows, p.k, unsafe.Pointer(found))
	}
	return a, *found == 0
}

// splitColumns is columns of an operand in two parts.
func (p *stepProduct[T]) splitColumns(r *exec.Run, from, end, rows int, a stepOperand, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int) {
	if s != nil && lds != ldd { // kernels know one distance for both
		for i := range rows {
			copy(unsafe.Slice((*float32)(unsafe.Add(d, i*ldd)), end-from), unsafe.Slice((*float32)(unsafe.Add(s, i*lds)), end-from))
		}
		s = d
	}
	depth, size := tiling.CeilDiv(p.k, gemm.PanelDepth), p.panelSize()
	for j := from; j < end; j += gemm.PanelCols {
		panel := unsafe.Pointer(&r.Shared[p.at+j/gemm.PanelCols*size])
		cols := (min(gemm.PanelCols, end-j) - 1) / panelUnit
		for i := 0; i < rows; i += gemm.PanelRows {
			high := (min(gemm.PanelRows, rows-i) - 1) / panelUnit
			at := i*ldd + 4*(j-from)
			start := s
			if s != nil {
				start = unsafe.Add(s, at)
			}
			p.panels.Kernels[1][high][cols](depth, unsafe.Add(a.p, i*a.lead), a.lead, a.low, nil, panel, start, unsafe.Add(d, at), ldd, panel)
		}
	}
}
