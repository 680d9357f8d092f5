package tensor

import "math"

// network is a flow network with one source and one sink.
type network struct {
	first []int // edge of each node, or -1
	edges []flowEdge
}

type flowEdge struct {
	to, next int
	left     int // capacity that is left
}

// The nodes that every network has.
const (
	origin = iota
	sink
)

// nodes adds n nodes and returns the first.
func (f *network) nodes(n int) int {
	at := len(f.first)
	for range n {
		f.first = append(f.first, -1)
	}
	return at
}

// edge adds an edge; math.MaxInt is a capacity without limit.
func (f *network) edge(from, to, capacity int) {
	f.edges = append(f.edges, flowEdge{to, f.first[from], capacity}, flowEdge{from, f.first[to], 0})
	f.first[from], f.first[to] = len(f.edges)-2, len(f.edges)-1
}

// capacity returns the residual capacity of the first edge added from node n.
func (f *network) capacity(n int) int {
	e := f.first[n]
	for f.edges[e].next >= 0 {
		e = f.edges[e].next
	}
	return f.edges[e].left
}

// maxFlow sends as much as it can from source to sink, by shortest ways
// (Dinic, 1970), and returns how much that is.
func (f *network) maxFlow() (sum int) {
	level := make([]int, len(f.first))
	at := make([]int, len(f.first))
	for f.levels(level) {
		copy(at, f.first)
		for {
			n := f.push(origin, math.MaxInt, level, at)
			if n == 0 {
				break
			}
			sum += n
		}
	}
	return sum
}

// levels numbers nodes by their distance from the source, and reports whether
// the sink can be reached.
func (f *network) levels(level []int) bool {
	for i := range level {
		level[i] = -1
	}
	level[origin] = 0
	queue := []int{origin}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for e := f.first[n]; e >= 0; e = f.edges[e].next {
			if to := f.edges[e].to; f.edges[e].left > 0 && level[to] < 0 {
				level[to] = level[n] + 1
				queue = append(queue, to)
			}
		}
	}
	return level[sink] >= 0
}

// push sends up to most from n to the sink along one way.
func (f *network) push(n, most int, level, at []int) int {
	if n == sink {
		return most
	}
	for ; at[n] >= 0; at[n] = f.edges[at[n]].next {
		e := &f.edges[at[n]]
		if e.left == 0 || level[e.to] != level[n]+1 {
			continue
		}
		if sent := f.push(e.to, min(most, e.left), level, at); sent > 0 {
			if e.left != math.MaxInt {
				e.left -= sent
			}
			if back := &f.edges[at[n]^1]; back.left != math.MaxInt {
				back.left += sent
			}
			return sent
		}
	}
	return 0
}

// reachesSink tells, after maxFlow, from which nodes more could flow to the
// sink. Edges into these from others are the minimum cut next to the sink.
func (f *network) reachesSink() []bool {
	reaches := make([]bool, len(f.first))
	reaches[sink] = true
	stack := []int{sink}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for e := f.first[n]; e >= 0; e = f.edges[e].next {
			// The edge that comes to n is the other one of the pair.
			if from := f.edges[e].to; f.edges[e^1].left > 0 && !reaches[from] {
				reaches[from] = true
				stack = append(stack, from)
			}
		}
	}
	return reaches
}
