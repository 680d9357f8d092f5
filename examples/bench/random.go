package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/policy"
)

// kind is a family of operations whose shapes are drawn at random.
type kind struct {
	name     string
	draw     func(g *rand.Rand) row
	settings []string // of the peer; the fastest counts
}

// kinds lists what -random draws. PyTorch computes a product into a given result,
// convolutions in both layouts; attention is not compiled, which takes a minute for
// each shape.
var kinds = []kind{
	{"mm", func(g *rand.Rand) row {
		return product(logUniform(g, 1, 4096), logUniform(g, 1, 4096), logUniform(g, 1, 4096), false, false)
	}, []string{"mm into"}},
	{"conv", randomConvolution, []string{"channels first", "channels last"}},
	{"attention", randomAttention, []string{"eager"}},
}

// logUniform draws a number between low and high, all powers of two alike.
func logUniform(g *rand.Rand, low, high int) int {
	l, h := math.Log(float64(low)), math.Log(float64(high+1))
	return min(high, int(math.Exp(l+(h-l)*g.Float64())))
}

// Shapes are drawn again if a call multiplies more than this or an array of it has
// more elements: the widths that are common in layers, without those that take
// seconds.
const (
	mostFlops    = 2e10
	mostElements = 1 << 24
)

// randomConvolution draws a convolution of images or one of its gradients.
func randomConvolution(g *rand.Rand) row {
	for {
		window := []int{1, 1, 2, 3, 3, 3, 5, 7}[g.IntN(8)]
		size := logUniform(g, window, 224)
		c := convolution{
			x:      op.Shape{logUniform(g, 1, 64), size, size, logUniform(g, 1, 1024)},
			w:      op.Shape{window, window, 0, logUniform(g, 1, 1024)},
			stride: 1 + g.IntN(4)/3, // one in four has a stride of 2
			pad:    g.IntN(2) * (window / 2),
			groups: 1,
		}
		c.w[2] = c.x[3]
		c.name = fmt.Sprintf("conv%dx%d-b%d-%dx%d-%dto%d-stride%d-pad%d", window, window, c.x[0], size, size, c.x[3], c.w[3], c.stride, c.pad)
		r := conv(c, []string{"forward", "input", "kernel"}[g.IntN(3)])
		if r.flops <= mostFlops && c.x.Size() <= mostElements && r.spec["y"].(op.Shape).Size() <= mostElements {
			return r
		}
	}
}

// randomAttention draws self-attention, every other time with its gradients.
func randomAttention(g *rand.Rand) row {
	for {
		h := heads{
			batch: logUniform(g, 1, 64), steps: logUniform(g, 1, 2048), count: logUniform(g, 1, 16),
			size: []int{16, 32, 40, 64, 64, 64, 80, 96, 128, 128}[g.IntN(10)],
		}
		r := attention(h, g.IntN(2) == 0)
		r.name = fmt.Sprintf("%s-h%dx%d", r.name, h.count, h.size)
		if r.flops <= mostFlops && h.batch*h.steps*h.count*h.size <= mostElements {
			return r
		}
	}
}

// comparison is a random row under a policy: the peer's time divided by Mezzo's.
type comparison struct {
	row          row
	ours, theirs float64 // seconds
	label        string  // the peer's setting
}

func (c comparison) ratio() float64 { return c.theirs / c.ours }

// random times n shapes of each kind and prints how the ratios are distributed and
// the worst rows. A seed always gives the same shapes.
func (t *table) random(ctx context.Context, n int, seed uint64, names []string, worst int) error {
	for _, name := range names {
		if !slices.ContainsFunc(kinds, func(k kind) bool { return k.name == name }) {
			return fmt.Errorf("-kinds: got %q; want some of mm, conv and attention", name)
		}
	}
	for _, k := range kinds {
		if !slices.Contains(names, k.name) {
			continue
		}
		g := rand.New(rand.NewPCG(seed, 0))
		results := map[string][]comparison{}
		for range n {
			r := k.draw(g)
			for _, p := range t.policies {
				c, err := t.compare(ctx, r, p, k.settings)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", r.name, p, err)
				}
				if c.theirs > 0 {
					results[p] = append(results[p], c)
				}
			}
		}
		for _, p := range t.policies {
			if err := t.distribution(k, p, seed, results[p], worst); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare times a row under a policy in turns with the fastest of the settings of
// the first peer.
func (t *table) compare(ctx context.Context, r row, name string, settings []string) (c comparison, err error) {
	defer policy.SetGlobal(policy.SetGlobal(name))
	call, err := r.build(ctx)
	if err != nil {
		return c, err
	}
	ours := &contender{runner: own(call)}
	if err := ours.calibrate(*least); err != nil {
		return c, err
	}
	theirs, err := t.peers[name][0].best(r.spec, name, *least, settings...)
	if err != nil {
		return c, err
	}
	c = comparison{row: r, label: theirs.label}
	if theirs.runner == nil {
		return c, nil
	}
	for range *reps {
		for _, side := range []*contender{ours, theirs} {
			if err := ctx.Err(); err != nil {
				return c, err
			}
			time.Sleep(settle)
			wall, _, err := side.runner.repeat(side.calls)
			if err != nil {
				return c, err
			}
			side.walls = append(side.walls, wall.Seconds()/float64(side.calls))
		}
	}
	c.ours, c.theirs = ours.median(), theirs.median()
	return c, nil
}

// distribution prints the quantiles of the ratios and the worst rows.
func (t *table) distribution(k kind, policy string, seed uint64, all []comparison, worst int) error {
	if len(all) == 0 {
		_, err := fmt.Fprintf(t.w, "%s, %s: the peer computes none of the shapes\n\n", k.name, policy)
		return err
	}
	slices.SortFunc(all, func(a, b comparison) int { return cmp.Compare(a.ratio(), b.ratio()) })
	at := func(q float64) float64 { return all[min(len(all)-1, int(q*float64(len(all))))].ratio() }
	below, _ := slices.BinarySearchFunc(all, 1.0, func(c comparison, x float64) int { return cmp.Compare(c.ratio(), x) })
	peer := t.peerNames[0]
	var s strings.Builder
	fmt.Fprintf(&s, "%s, %s: %s's time / Mezzo's on %d shapes of seed %d: 5th percentile %.2f, median %.2f, 95th %.2f, worst %.2f; %.0f %% below 1\n\n",
		k.name, policy, peer, len(all), seed, at(0.05), at(0.5), at(0.95), all[0].ratio(), 100*float64(below)/float64(len(all)))
	fmt.Fprintf(&s, "| row | µs | GFLOP/s | %s, µs | %s / Mezzo |\n|---|---|---|---|---|\n", peer, peer)
	for _, c := range all[:min(worst, len(all))] {
		fmt.Fprintf(&s, "| %s | %.4g | %.4g | %.4g (%s) | %.2f |\n", c.row.name, 1e6*c.ours, c.row.flops/c.ours/1e9, 1e6*c.theirs, c.label, c.ratio())
	}
	_, err := fmt.Fprintln(t.w, s.String())
	return err
}
