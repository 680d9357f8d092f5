package ptx

import "fmt"

// Group is what a kernel does that computes a chain on several boxes of one
// axis: which parameters each of them has, and how many elements. Blocks of the
// boxes follow each other.
type Group struct {
	Sizes      []int
	Parameters [][]int // of each box: the operands' and results' addresses
	Addresses  int     // parameters, before the gate
}

// Blocks is the number of blocks to launch.
func (g *Group) Blocks() int {
	n := 0
	for _, size := range g.Sizes {
		n += Blocks(size)
	}
	return n
}

// choose writes how a block finds its box: the addresses, the number of its
// elements and the number of the block in it.
func (w *writer) choose() {
	g := w.c.Group
	w.regs.WriteString("\t.reg .b32 %n;\n")
	for range len(w.c.Body.Inputs) + len(w.c.Results) {
		w.base = append(w.base, w.reg("u64"))
	}
	end := 0
	for i, size := range g.Sizes[:len(g.Sizes)-1] {
		end += Blocks(size)
		w.line("setp.lt.u32 %%g, %%b, %d", end)
		w.line("@%%g bra $box%d", i)
	}
	begin := 0
	for k := range g.Sizes { // the last box comes right behind the comparisons
		i := (k + len(g.Sizes) - 1) % len(g.Sizes)
		if k == 0 {
			begin = end
		} else if k == 1 {
			begin = 0
		}
		fmt.Fprintf(w, "$box%d:\n", i)
		for j, p := range g.Parameters[i] {
			w.line("ld.param.u64 %s, [p%d]", w.base[j], p)
		}
		w.line("mov.u32 %%n, %d", g.Sizes[i])
		w.line("sub.u32 %%b, %%b, %d", begin)
		w.line("bra $body")
		begin += Blocks(g.Sizes[i])
	}
	w.WriteString("$body:\n")
}
