package keras

import (
	"slices"

	"github.com/mezzo-ml/mezzo/layers"
)

// Node is a layer or an input of a model. In Keras inputs are layers too.
type Node struct {
	Layer layers.Layer // nil for an input
	Input int          // which one
}

// Nodes returns the layers and inputs of a built model in the order of Keras's
// Model.layers: by decreasing distance from the outputs, then in the order of
// a walk from the outputs back (Keras: ops.function.map_graph). Weights has
// the same order. For a Sequential model it is the order of its layers.
func (m *Model) Nodes() []Node { return slices.Clone(m.members) }

func (m *Model) ordered() []Node {
	// Nodes are the inputs and then the calls; several may be one member.
	inputs := m.in.Unpack()
	var all []Node
	owner := make([]int, 0, len(inputs)+len(m.nodes))
	at := map[*Tensor]int{} // the node that a tensor comes from
	for i, t := range inputs {
		owner, all = append(owner, i), append(all, Node{Input: i})
		at[t] = i
	}
	byLayer := map[layers.Layer]int{}
	for i, n := range m.nodes {
		k, ok := byLayer[n.layer]
		if !ok {
			k = len(all)
			byLayer[n.layer], all = k, append(all, Node{Layer: n.layer})
		}
		owner = append(owner, k)
		for _, t := range n.out {
			at[t] = len(inputs) + i
		}
	}
	parents := func(n int) (out []int) {
		if n < len(inputs) {
			return nil
		}
		for _, t := range m.nodes[n-len(inputs)].in.Unpack() {
			if p, ok := at[t]; ok { // not a constant
				out = append(out, p)
			}
		}
		return out
	}
	met := make([]int, len(all)) // 1-based; unused inputs stay 0 and come first
	count := 0
	done := make([]bool, len(owner))
	var order []int // nodes, parents first
	var visit func(n int)
	visit = func(n int) {
		if done[n] {
			return
		}
		done[n] = true
		if met[owner[n]] == 0 {
			count++
			met[owner[n]] = count
		}
		for _, p := range parents(n) {
			visit(p)
		}
		order = append(order, n)
	}
	for _, t := range m.out.Unpack() {
		if n, ok := at[t]; ok {
			visit(n)
		}
	}
	depth := make([]int, len(owner)) // of nodes
	memberDepth := make([]int, len(all))
	for _, n := range slices.Backward(order) {
		d := max(depth[n], memberDepth[owner[n]])
		depth[n], memberDepth[owner[n]] = d, d
		for _, p := range parents(n) {
			depth[p] = max(depth[p], d+1)
		}
	}
	sorted := make([]int, len(all))
	for i := range sorted {
		sorted[i] = i
	}
	slices.SortStableFunc(sorted, func(a, b int) int {
		if d := memberDepth[b] - memberDepth[a]; d != 0 {
			return d
		}
		return met[a] - met[b]
	})
	out := make([]Node, len(all))
	for i, k := range sorted {
		out[i] = all[k]
	}
	return out
}
