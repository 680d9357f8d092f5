// Command refine solves systems of linear equations to the accuracy of float64
// from factors in float32, bfloat16 and float16: iterative refinement, mixed
// precision as numerical linear algebra has it. The factorization, which has 2/3·n³
// operations, is in low precision; residuals, with 2·n² operations each, are in
// float64. gonum's Dgesv, all in float64, stands beside it.
//
//	go run ./examples/refine
//	go run ./examples/refine -n 1024,2048,4096 -condition 1e2,1e6 -plot refine.svg
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	sizes      = flag.String("n", "256,512,1024", "numbers of equations")
	conditions = flag.String("condition", "1e1,1e2,1e4,1e6,1e8,1e10,1e12,1e14", "condition numbers")
	cluster    = flag.Bool("cluster", false, "matrices with one small singular value instead of a geometric sequence of them")
	inner      = flag.Int("inner", 200, "iterations of GMRES in a step of refinement, at most")
	seed       = flag.Uint64("seed", 1, "seed of the matrices")
	repeat     = flag.Int("repeat", 1, "times are the least of so many runs")
	plotFile   = flag.String("plot", "", "draw errors and times into this file: .svg, .png or .pdf")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

// types are those of the factors.
var types = []keras.DType{keras.Float32, keras.BFloat16, keras.Float16}

// A row is one line of the table.
type row struct {
	n         int
	condition float64
	factors   string // the type, float64 for Dgesv
	backward  float64
	converged bool
	time      time.Duration
}

func run(ctx context.Context) error {
	ns, err := numbers("n", *sizes, 1, 1<<14)
	if err != nil {
		return err
	}
	ks, err := numbers("condition", *conditions, 1, 1e18)
	if err != nil {
		return err
	}
	if *repeat < 1 || *inner < 1 {
		return fmt.Errorf("-repeat and -inner: got %d and %d, want 1 or more", *repeat, *inner)
	}
	fmt.Println(policy.EffectiveText())
	var rows []row
	for _, n := range ns {
		fmt.Printf("n = %.0f: converged is a backward error of %.1e\n", n, math.Sqrt(n)*unit)
		fmt.Printf("  %-9s  %-8s  %-24s  %14s  %8s  %s\n", "condition", "factors", "method", "backward error", "time", "beside Dgesv")
		if err := warm(ctx, int(n)); err != nil {
			return err
		}
		for _, k := range ks {
			more, err := compare(ctx, int(n), k)
			if err != nil {
				return err
			}
			rows = append(rows, more...)
		}
	}
	if *plotFile == "" {
		return nil
	}
	return draw(*plotFile, rows)
}

// numbers reads a list between commas.
func numbers(name, list string, least, most float64) ([]float64, error) {
	var all []float64
	for s := range strings.SplitSeq(list, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		if err != nil || !(x >= least && x <= most) || name == "n" && x != math.Trunc(x) {
			return nil, fmt.Errorf("-%s: got %q, want numbers from %g to %g between commas", name, s, least, most)
		}
		all = append(all, x)
	}
	return all, nil
}

// warm compiles the products of factorizations of size n, so that times have none
// of it.
func warm(ctx context.Context, n int) error {
	a := make([]float64, n*n)
	for i := range n {
		a[i*n+i] = 1
	}
	for _, t := range types {
		if _, err := Factorize(ctx, a, n, t); err != nil {
			return err
		}
	}
	return nil
}

// compare solves one system with Dgesv and with factors of each type.
func compare(ctx context.Context, n int, condition float64) ([]row, error) {
	rng := rand.New(rand.NewPCG(*seed, uint64(n)))
	a := Matrix(rng, n, condition, *cluster)
	b := make([]float64, n)
	for i := range b {
		b[i] = rng.NormFloat64()
	}
	s := NewSystem(a, b)

	reference := row{n: n, condition: condition, factors: "float64"}
	reference.time = timed(func() { _, reference.backward, reference.converged = s.Dgesv() })
	fmt.Printf("  %-9.0e  %-8s  %-24s  %14.1e  %s\n", condition, "float64", "Dgesv", reference.backward, milliseconds(reference.time))
	rows := []row{reference}
	for _, t := range types {
		r := row{n: n, condition: condition, factors: t.String()}
		var method string
		var err error
		r.time = timed(func() { method, r.backward, r.converged, err = s.solve(ctx, t) })
		if err != nil {
			return nil, err
		}
		beside := "does not converge"
		if r.converged {
			beside = fmt.Sprintf("%.2f times as fast", float64(reference.time)/float64(r.time))
		}
		fmt.Printf("  %-9s  %-8s  %-24s  %14.1e  %s  %s\n", "", t, method, r.backward, milliseconds(r.time), beside)
		rows = append(rows, r)
	}
	return rows, nil
}

// solve factorizes in t, refines, and if that does not converge refines with
// GMRES and the same factors.
func (s *System) solve(ctx context.Context, t keras.DType) (method string, backward float64, converged bool, err error) {
	f, err := Factorize(ctx, s.a, s.n, t)
	if errors.Is(err, ErrNoFactors) {
		return "no factors", math.NaN(), false, nil
	}
	if err != nil {
		return "", 0, false, err
	}
	x, err := s.Refine(ctx, f)
	if err != nil {
		return "", 0, false, err
	}
	method = fmt.Sprintf("LU, %d steps", x.Steps)
	if !x.Converged {
		if x, err = s.RefineGMRES(ctx, f, *inner); err != nil {
			return "", 0, false, err
		}
		method = fmt.Sprintf("GMRES, %d steps of %.0f", x.Steps, float64(x.Inner)/float64(x.Steps))
	}
	return method, x.Backward, x.Converged, nil
}

// timed returns the least time of f in -repeat runs.
func timed(f func()) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range *repeat {
		start := time.Now()
		f()
		least = min(least, time.Since(start))
	}
	return least
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%7.1f ms", d.Seconds()*1000)
}
