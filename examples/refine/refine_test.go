package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/mezzo-ml/mezzo/keras"
)

var ctx = context.Background()

// system returns a system whose matrix has that condition number.
func system(n int, condition float64, cluster bool) *System {
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	a := Matrix(rng, n, condition, cluster)
	b := make([]float64, n)
	for i := range b {
		b[i] = rng.NormFloat64()
	}
	return NewSystem(a, b)
}

func roundoff(t keras.DType) float64 { return t.Epsilon() / 2 }

// TestFactorize: L·U is the scaled and permuted matrix, but for one rounding of
// the matrix, of L and of U to the type and for float32 sums: Higham 2002, Accuracy
// and Stability of Numerical Algorithms, theorem 9.3. Sizes are around multiples of
// panelWidth.
func TestFactorize(t *testing.T) {
	for _, dt := range types {
		for _, n := range []int{1, 2, 7, panelWidth, panelWidth + 1, 3*panelWidth - 1, 200} {
			s := system(n, 10, false)
			f, err := Factorize(ctx, s.a, n, dt)
			if err != nil {
				t.Fatal(err)
			}
			order := make([]int, n)
			for i := range order {
				order[i] = i
			}
			for i, p := range f.pivots {
				order[i], order[p] = order[p], order[i]
			}
			bound := 3*roundoff(dt) + 2*float64(n)*roundoff(keras.Float32)
			for i := range n {
				for j := range n {
					want := f.row[order[i]] * s.a[order[i]*n+j] * f.col[j]
					got, size := 0.0, 0.0
					for k := range min(i, j+1) {
						x := float64(f.lu[i*n+k]) * float64(f.lu[k*n+j])
						got, size = got+x, size+math.Abs(x)
					}
					if i <= j {
						got, size = got+float64(f.lu[i*n+j]), size+math.Abs(float64(f.lu[i*n+j]))
					}
					if math.Abs(got-want) > bound*size+dt.SmallestSubnormal() {
						t.Fatalf("%v, n = %d: element %d,%d of L·U is %v, want %v", dt, n, i, j, got, want)
					}
					if x := f.lu[i*n+j]; dt.Round(x) != x {
						t.Fatalf("%v, n = %d: element %d,%d of the factors is %v, no %v", dt, n, i, j, x, dt)
					}
					if i > j && math.Abs(float64(f.lu[i*n+j])) > 1 {
						t.Fatalf("%v, n = %d: element %d,%d of L is %v: no partial pivoting", dt, n, i, j, f.lu[i*n+j])
					}
				}
			}
		}
	}
}

// TestConverges: refinement reaches the backward error of float64 where theory
// says so (condition·roundoff well below 1, or for GMRES its square root and more),
// and the solution of Dgesv; beyond that it says that it has not converged.
func TestConverges(t *testing.T) {
	const n = 150
	for _, c := range []struct {
		t         keras.DType
		condition float64
		cluster   bool
		lu, gmres bool // converge
	}{
		{keras.Float32, 1e1, false, true, true},
		{keras.Float32, 1e4, false, true, true},
		{keras.Float32, 1e9, false, false, true},
		{keras.Float32, 1e14, true, false, true},
		{keras.BFloat16, 1e1, false, true, true},
		{keras.BFloat16, 1e4, false, false, true},
		{keras.BFloat16, 1e8, true, false, true},
		{keras.Float16, 1e2, false, true, true},
		{keras.Float16, 1e6, true, false, true},
		{keras.Float16, 1e5, false, false, true},
	} {
		s := system(n, c.condition, c.cluster)
		f, err := Factorize(ctx, s.a, n, c.t)
		if err != nil {
			t.Fatal(err)
		}
		want, reference, ok := s.Dgesv()
		if !ok || !(reference <= s.Bound()) {
			t.Fatalf("Dgesv: backward error %v", reference)
		}
		for _, m := range []struct {
			name      string
			solve     func() (Solution, error)
			converges bool
		}{
			{"LU", func() (Solution, error) { return s.Refine(ctx, f) }, c.lu},
			{"GMRES", func() (Solution, error) { return s.RefineGMRES(ctx, f, n) }, c.gmres},
		} {
			name := fmt.Sprintf("%v, condition %v, %s", c.t, c.condition, m.name)
			got, err := m.solve()
			if err != nil {
				t.Fatal(err)
			}
			if got.Converged != m.converges || got.Converged != (got.Backward <= s.Bound()) {
				t.Errorf("%s: converged %v with backward error %v after %d steps, want %v", name, got.Converged, got.Backward, got.Steps, m.converges)
			}
			if !got.Converged {
				continue
			}
			if (got.Inner > 0) != (m.name == "GMRES") {
				t.Errorf("%s: %d inner iterations", name, got.Inner)
			}
			difference := 0.0
			for i, x := range got.X {
				difference = max(difference, math.Abs(x-want[i]))
			}
			// Both are solutions of systems that differ by sqrt(n)·unit.
			if limit := 2 * c.condition * float64(n) * s.Bound(); difference > limit*norm(want) {
				t.Errorf("%s: x differs from that of Dgesv by %v, want %v at most", name, difference/norm(want), limit)
			}
		}
	}
}

// TestScaling: rows and columns far beyond float16's range do not matter, and a
// matrix whose U grows makes the scale decrease.
func TestScaling(t *testing.T) {
	const n = 80
	s := system(n, 10, false)
	for i := range n {
		for j := range n {
			s.a[i*n+j] *= math.Pow(10, float64(i%9)-4) * math.Pow(100, float64(j%7)-3)
		}
	}
	s = NewSystem(s.a, s.b)
	f, err := Factorize(ctx, s.a, n, keras.Float16)
	if err != nil {
		t.Fatal(err)
	}
	if x, err := s.Refine(ctx, f); err != nil || !x.Converged {
		t.Errorf("got backward error %v, %v", x.Backward, err)
	}
	// Wilkinson's matrix, whose U grows to 2^(m-1).
	for _, m := range []int{14, 60} {
		w := make([]float64, m*m)
		for i := range m {
			for j := range i {
				w[i*m+j] = -1
			}
			w[i*m+i], w[i*m+m-1] = 1, 1
		}
		b := make([]float64, m)
		b[0], b[m-1] = 1, 0.3
		s := NewSystem(w, b)
		f, err := Factorize(ctx, w, m, keras.Float16)
		if m == 60 {
			if !errors.Is(err, ErrNoFactors) {
				t.Errorf("U of 2^59: got %v, want %v", err, ErrNoFactors)
			}
			if method, _, converged, err := s.solve(ctx, keras.Float16); method != "no factors" || converged || err != nil {
				t.Errorf("got %q, %v, %v", method, converged, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if x, err := s.Refine(ctx, f); err != nil || !x.Converged {
			t.Errorf("U of 2^13: got backward error %v, %v", x.Backward, err)
		}
	}
}

// TestNoFactors: matrices without an inverse, and numbers that are not finite, are
// errors.
func TestNoFactors(t *testing.T) {
	for _, dt := range types {
		for name, a := range map[string][]float64{
			"zeros": {0, 0, 0, 0}, "equal rows": {1, 1, 1, 1}, "NaN": {math.NaN(), 1, 1, 2}, "NaN below": {1, 2, 3, math.NaN()}, "infinity": {1, math.Inf(1), 1, 1}, "range": {1e300, 1, 1, 1},
		} {
			_, err := Factorize(ctx, a, 2, dt)
			if dt == keras.Float16 && name == "range" {
				if err != nil { // it is scaled
					t.Errorf("%v, %s: %v", dt, name, err)
				}
				continue
			}
			if !errors.Is(err, ErrNoFactors) {
				t.Errorf("%v, %s: got %v, want %v", dt, name, err, ErrNoFactors)
			}
		}
	}
}

// TestSameBits: factors and solutions do not depend on the number of processors.
func TestSameBits(t *testing.T) {
	const n = 300
	s := system(n, 1e3, false)
	var factors [2]*Factors
	var solutions [2]Solution
	for i, p := range []int{1, 3} {
		old := runtime.GOMAXPROCS(p)
		var err error
		if factors[i], err = Factorize(ctx, s.a, n, keras.Float16); err == nil {
			solutions[i], err = s.RefineGMRES(ctx, factors[i], 50)
		}
		runtime.GOMAXPROCS(old)
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(factors[0].lu, factors[1].lu) || !slices.Equal(solutions[0].X, solutions[1].X) {
		t.Error("other bits on three processors than on one")
	}
}

// TestMatrix: singular values are those that are asked for.
func TestMatrix(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		for _, n := range []int{1, 2, 31} {
			const condition = 1e5
			a := Matrix(rand.New(rand.NewPCG(1, 1)), n, condition, cluster)
			var svd mat.SVD
			if !svd.Factorize(mat.NewDense(n, n, a), mat.SVDNone) {
				t.Fatal("no singular values")
			}
			for i, got := range svd.Values(nil) {
				want := math.Pow(condition, -float64(i)/float64(max(n-1, 1)))
				if cluster {
					want = 1
				}
				if i == n-1 {
					want = 1 / condition
				}
				if math.Abs(got-want) > 100*unit {
					t.Errorf("n = %d, cluster %v: singular value %d is %v, want %v", n, cluster, i, got, want)
				}
			}
		}
	}
}

// TestInterrupted: a cancelled context ends a solve.
func TestInterrupted(t *testing.T) {
	s := system(100, 1e8, false)
	f, err := Factorize(ctx, s.a, 100, keras.BFloat16)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Refine(ctx, f); !errors.Is(err, context.Canceled) {
		t.Errorf("Refine: got %v", err)
	}
	if _, err := s.RefineGMRES(ctx, f, 9); !errors.Is(err, context.Canceled) {
		t.Errorf("RefineGMRES: got %v", err)
	}
}

// TestDraw: each kind of file is written, with one line for each type.
func TestDraw(t *testing.T) {
	var rows []row
	for _, n := range []int{100, 200} {
		for _, k := range []float64{1e1, 1e3} {
			for _, name := range []string{"float64", "float16"} {
				rows = append(rows, row{n: n, condition: k, factors: name, backward: 1e-16 * k, converged: k < 100, time: 1e6})
			}
		}
	}
	for _, suffix := range []string{".svg", ".png", ".pdf"} {
		path := filepath.Join(t.TempDir(), "plot"+suffix)
		if err := draw(path, rows); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			t.Errorf("%s: %d bytes, %v", suffix, len(data), err)
		}
		if suffix == ".svg" && (!bytes.Contains(data, []byte("backward error")) || !bytes.Contains(data, []byte("float16"))) {
			t.Error("the axes and lines have no names")
		}
	}
	if err := draw("plot.gif", rows); err == nil || !strings.Contains(err.Error(), ".svg") {
		t.Errorf("got %v", err)
	}
}

// TestNumbers: lists of the flags are checked.
func TestNumbers(t *testing.T) {
	if got, err := numbers("n", "8, 16", 1, 100); err != nil || !slices.Equal(got, []float64{8, 16}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, list := range []string{"", "x", "0", "101", "1.5", "NaN", "8,,9"} {
		if got, err := numbers("n", list, 1, 100); err == nil || !strings.HasPrefix(err.Error(), "-n: got") {
			t.Errorf("%q: got %v, %v", list, got, err)
		}
	}
}
