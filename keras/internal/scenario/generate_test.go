package scenario

import (
	"math/rand/v2"
	"slices"
)

// generate makes the random program of a seed.
func generate(seed uint64) program {
	g := generator{Rand: rand.New(rand.NewPCG(seed, 3)), p: &program{Seed: seed}}
	g.p.Policy = pick(g, policies...)
	switch g.IntN(10) {
	case 0, 1, 2, 3:
		g.vectors()
	case 4, 5:
		g.p.Input, g.p.Words = []int{2 + g.IntN(6)}, pick(g, 11, 60, 300)
		width := pick(g, 8, 33, 100, 128)
		g.add(block{Kind: "embedding", A: g.p.Words, B: width, Name: pick(g, "", "", "mask")})
		g.sequence(g.p.Input[0], width, g.p.Blocks[0].Name == "mask")
	case 6, 7:
		steps, width := 2+g.IntN(6), pick(g, 1, 7, 20, 100)
		g.p.Input = []int{steps, width}
		g.sequence(steps, width, false)
	default:
		g.images()
	}
	g.add(block{Kind: "dense", A: labels})
	g.rule()
	g.actions()
	return *g.p
}

// generator makes a program.
type generator struct {
	*rand.Rand
	p *program
}

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

// chance is true that often.
func (g generator) chance(p float64) bool { return g.Float64() < p }

func (g generator) add(b block) { g.p.Blocks = append(g.p.Blocks, b) }

var activations = []string{"", "relu", "tanh", "gelu", "silu", "sigmoid", "elu"}

// norm adds what keeps the shape.
func (g generator) norm() {
	switch g.IntN(8) {
	case 0, 1:
		g.add(block{Kind: "batchnorm"})
	case 2:
		g.add(block{Kind: "layernorm"})
	case 3:
		g.add(block{Kind: "rmsnorm"})
	case 4:
		g.add(block{Kind: "dropout", A: 10 + g.IntN(40)})
	}
}

// vectors makes a dense network. The first layer often has more than the 64 KiB
// of weights from which on they are kept packed.
func (g generator) vectors() {
	width := pick(g, 3, 17, 130, 260, 300, 300)
	g.p.Input = []int{width}
	for range 1 + g.IntN(3) {
		if g.chance(0.2) {
			g.add(block{Kind: "residual", A: width, Name: pick(g, activations...)})
		} else {
			width = pick(g, 2, 16, 31, 64, 116, 140, 256)
			g.add(block{Kind: "dense", A: width, Name: pick(g, activations...)})
		}
		g.norm()
	}
}

// sequence makes layers for sequences, which end with vectors. Layers that do not
// take masks are left out where there are some.
func (g generator) sequence(steps, width int, masked bool) {
	for range 1 + g.IntN(2) {
		switch g.IntN(8) {
		case 0:
			width = pick(g, 5, 33, 96)
			g.add(block{Kind: "lstm", A: width, Name: "all"})
		case 1:
			width = pick(g, 5, 33, 96)
			g.add(block{Kind: "gru", A: width, Name: "all"})
		case 2:
			width = pick(g, 5, 33)
			g.add(block{Kind: "rnn", A: width, Name: "all"})
		case 3:
			g.add(block{Kind: "attention", A: 1 + g.IntN(3), B: pick(g, 4, 8, 17), Name: pick(g, "", "causal")})
		case 4:
			width = pick(g, 3, 40, 128)
			g.add(block{Kind: "distributed", A: width, Name: pick(g, activations...)})
		case 5:
			if !masked {
				width = pick(g, 4, 19, 64)
				g.add(block{Kind: "conv1d", A: width, B: 1 + g.IntN(3), Name: pick(g, "same", "causal")})
			}
		case 6:
			if !masked {
				g.add(block{Kind: "maxpool1d"})
				steps = (steps + 1) / 2
			}
		case 7:
			g.add(block{Kind: "residual", A: width, Name: pick(g, activations...)})
		}
		switch g.IntN(6) {
		case 0:
			g.add(block{Kind: "layernorm"})
		case 1:
			g.add(block{Kind: "dropout", A: 10 + g.IntN(40)})
		}
	}
	switch {
	case g.chance(0.2):
		g.add(block{Kind: "lstm", A: pick(g, 5, 33, 96)})
	case g.chance(0.2):
		g.add(block{Kind: "gru", A: pick(g, 5, 33, 96)})
	case g.chance(0.2):
		g.add(block{Kind: "both", A: pick(g, 5, 33)})
	case masked || g.chance(0.5):
		g.add(block{Kind: "globalavg1d"})
	case g.chance(0.5):
		g.add(block{Kind: "globalmax1d"})
	default:
		g.add(block{Kind: "flatten"})
	}
}

// images makes a convolutional network.
func (g generator) images() {
	h, w, channels := 4+g.IntN(9), 4+g.IntN(9), pick(g, 1, 3, 8, 17, 32)
	g.p.Input = []int{h, w, channels}
	for range 1 + g.IntN(2) {
		switch g.IntN(6) {
		case 0, 1:
			channels = pick(g, 4, 13, 32)
			g.add(block{Kind: "conv2d", A: channels, B: pick(g, 1, 3, 3), Name: pick(g, "same", "same", "valid")})
			if g.p.Blocks[len(g.p.Blocks)-1].Name == "valid" {
				k := g.p.Blocks[len(g.p.Blocks)-1].B
				h, w = h-k+1, w-k+1
			}
		case 2:
			channels = pick(g, 5, 16)
			g.add(block{Kind: "strided", A: channels, B: pick(g, 2, 3), Name: "same"})
			h, w = (h+1)/2, (w+1)/2
		case 3:
			g.add(block{Kind: "depthwise", B: pick(g, 2, 3), Name: pick(g, activations...)})
		case 4:
			channels = pick(g, 6, 16)
			g.add(block{Kind: "separable", A: channels, B: 3})
		case 5:
			channels = pick(g, 3, 9)
			g.add(block{Kind: "transposed", A: channels, B: pick(g, 2, 3)})
			h, w = 2*h, 2*w
		}
		g.norm()
		switch g.IntN(5) {
		case 0:
			g.add(block{Kind: "maxpool"})
			h, w = (h+1)/2, (w+1)/2
		case 1:
			g.add(block{Kind: "avgpool"})
			h, w = (h+1)/2, (w+1)/2
		}
		if h < 3 || w < 3 {
			break
		}
	}
	if g.chance(0.5) {
		g.add(block{Kind: "globalavg2d"})
	} else {
		g.add(block{Kind: "flatten"})
	}
	if g.chance(0.4) {
		g.add(block{Kind: "dense", A: pick(g, 16, 116, 140), Name: "relu"})
	}
}

func (g generator) rule() {
	u := &g.p.Optimizer
	u.Class = pick(g, "SGD", "momentum", "Adam", "Adam", "AdamW", "RMSprop", "Adagrad", "Nadam", "Adamax", "Lamb")
	u.Rate = pick(g, 0.001, 0.003)
	if slices.Contains([]string{"SGD", "momentum", "Adagrad"}, u.Class) {
		u.Rate *= 10
	}
	u.EMA = g.chance(0.3)
	if u.EMA && g.chance(0.3) {
		u.Overwrite = 2
	}
	if g.chance(0.2) {
		u.Clip = 1
	}
	if g.chance(0.2) {
		u.Accumulate = 2 + g.IntN(2)
	}
	u.Scaled = g.chance(0.3)
}

// cost is about how many multiplications a sample takes in a forward pass.
func (p program) cost() int {
	shape := slices.Clone(p.Input)
	if p.Words > 0 {
		shape = append(shape, 1)
	}
	cost := 0
	for _, b := range p.Blocks {
		n, last := volume(shape), len(shape)-1
		width := shape[last]
		switch b.Kind {
		case "dense", "distributed", "residual":
			cost += n * b.A
			shape[last] = b.A
		case "embedding":
			shape[last] = b.B
		case "lstm", "gru", "rnn", "both":
			cost += 4 * n / width * (width + b.A) * b.A
			shape[last] = b.A
		case "attention":
			cost += 4 * n * b.A * b.B
		case "conv1d":
			cost += n * b.A * b.B
			shape[last] = b.A
		case "conv2d", "separable", "strided", "transposed":
			cost += n * b.A * b.B * b.B
			shape[last] = b.A
			if b.Kind == "transposed" {
				shape[0], shape[1] = 2*shape[0], 2*shape[1]
			}
		case "globalavg1d", "globalmax1d", "globalavg2d":
			shape = shape[last:]
		case "flatten":
			shape = []int{n}
		default:
			cost += n
		}
	}
	return cost
}

// budget is about how many multiplications a batch may take in a forward pass:
// what plain Go does in some milliseconds.
const budget = 2 << 20

// rows picks a number of rows.
func (g generator) rows(most int, from ...int) int {
	return max(1, min(pick(g, from...), most))
}

// actions makes the history. It begins with training, and trains and looks
// again and again: that is when something that was kept is out of date.
func (g generator) actions() {
	most := max(2, budget/max(1, g.p.cost()))
	do := func(a action) { a.Model = g.IntN(3); a.Data = uint64(1 + g.IntN(6)); g.p.Ops = append(g.p.Ops, a) }
	small := func() int { return g.rows(most, 1, 7, 16, 17, 31, 32) }
	any := func() int { return g.rows(most, 1, 7, 16, 31, 33, 64, 128, 256, 257) }
	train := func() {
		switch g.IntN(5) {
		case 0:
			n := g.rows(most, 1, 7, 16, 31)
			do(action{Do: "fit", Rows: n + g.IntN(2*n+1), Batch: n, Times: 1 + g.IntN(2)})
		case 1:
			do(action{Do: "step", Rows: small(), Times: 1 + g.IntN(3)})
		case 2:
			do(action{Do: "train", Rows: any(), Times: 1})
		default:
			do(action{Do: "train", Rows: small(), Times: 1 + g.IntN(3)})
		}
	}
	look := func() {
		switch g.IntN(4) {
		case 0:
			n := small()
			do(action{Do: "evaluate", Rows: n + g.IntN(2*n+1), Batch: n})
		case 1:
			do(action{Do: "read", Rows: small(), Times: 1 + g.IntN(3)})
		case 2:
			do(action{Do: "predict", Rows: any(), Times: 1 + g.IntN(2)})
		default:
			do(action{Do: "predict", Rows: small(), Times: 1 + g.IntN(3)})
		}
	}
	for range 3 + g.IntN(6) {
		train()
		for range 1 + g.IntN(2) {
			look()
		}
		if !g.chance(0.5) {
			continue
		}
		switch g.IntN(13) {
		case 0:
			do(action{Do: "rate", Times: 1 + g.IntN(4)})
		case 1:
			do(action{Do: "swap", Rows: small(), Batch: 16})
		case 2:
			do(action{Do: "skip", Rows: small()})
		case 3:
			do(action{Do: "keep"})
		case 4, 5:
			do(action{Do: "put"})
		case 6:
			do(action{Do: "save", Name: pick(g, formats...)})
		case 7, 8:
			do(action{Do: "load"})
		case 9:
			do(action{Do: "clone", Name: pick(g, append([]string{"", ""}, policies...)...)})
		case 10:
			do(action{Do: "freeze", Times: g.IntN(4)})
		case 11:
			do(action{Do: "unfreeze"})
		case 12:
			if g.chance(0.3) {
				do(action{Do: "seed"})
			}
		}
		if g.chance(0.5) {
			look()
		}
	}
	do(action{Do: "honest", Rows: small(), Batch: 16})
}
