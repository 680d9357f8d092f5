package digits

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"runtime"
	"testing"
)

func TestRawShapesAndSmallCounts(t *testing.T) {
	for _, n := range []int{-3, 0, 1, 7, 129} {
		images, labels := Raw(n, 1)
		want := max(n, 0)
		if len(images) != want*784 || len(labels) != want {
			t.Errorf("Raw(%d): got %d bytes and %d labels, want %d and %d", n, len(images), len(labels), want*784, want)
		}
		if images == nil || labels == nil {
			t.Errorf("Raw(%d): got a nil slice, want an empty one", n)
		}
	}
}

// TestRawGolden pins the images down: a data set that changes makes every
// number reported about it worthless.
func TestRawGolden(t *testing.T) {
	images, labels := Raw(500, 42)
	h := sha256.New()
	h.Write(images)
	h.Write(labels)
	got := hex.EncodeToString(h.Sum(nil))
	const want = "27edd29ad7b8ba4b2a348143418ffb1627fb48cdad66d765a201155851266817"
	if got != want {
		t.Errorf("Raw(500, 42): got SHA-256 %s, want %s", got, want)
	}
}

func TestRawIsAFunctionOfSeedAndIndex(t *testing.T) {
	const n = 1000
	images, labels := Raw(n, 9)

	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one, oneLabels := Raw(n, 9)
	if !bytes.Equal(images, one) || !bytes.Equal(labels, oneLabels) {
		t.Error("images differ between one processor and several")
	}
	runtime.GOMAXPROCS(5)
	few, fewLabels := Raw(333, 9)
	if !bytes.Equal(images[:333*784], few) || !bytes.Equal(labels[:333], fewLabels) {
		t.Error("the first 333 images depend on how many are asked for")
	}
}

// TestRawSeedsAreIndependent looks for an image that two neighbouring seeds
// share at any position, as a seed merely added to the index would give.
func TestRawSeedsAreIndependent(t *testing.T) {
	const n = 400
	seen := map[[784]byte]uint64{}
	for _, seed := range []uint64{0, 1, 2, math.MaxUint64} {
		images, _ := Raw(n, seed)
		for i := range n {
			key := [784]byte(images[i*784:])
			if other, ok := seen[key]; ok {
				t.Fatalf("image %d of seed %d is also an image of seed %d", i, seed, other)
			}
			seen[key] = seed
		}
	}
}

func TestRawLabelsAreBalanced(t *testing.T) {
	const n = 10000
	_, labels := Raw(n, 3)
	var count [10]int
	for _, l := range labels {
		if l > 9 {
			t.Fatalf("got label %d, want 0 to 9", l)
		}
		count[l]++
	}
	// Five standard deviations of a binomial count with p = 1/10.
	slack := 5 * math.Sqrt(n*0.1*0.9)
	for d, c := range count {
		if math.Abs(float64(c)-n/10) > slack {
			t.Errorf("digit %d: got %d of %d images, want %d within %.0f", d, c, n, n/10, slack)
		}
	}
}

// TestRawPixelsLookLikeMNIST checks what a user of MNIST relies on: mostly
// exact zeros, strong ink, and a digit that stays near the centre.
func TestRawPixelsLookLikeMNIST(t *testing.T) {
	const n = 2000
	images, labels := Raw(n, 4)
	var zeros, sum, sumX, sumY float64
	for i := range n {
		var peak byte
		for p, v := range images[i*784 : (i+1)*784] {
			if v == 0 {
				zeros++
			}
			peak = max(peak, v)
			sum += float64(v)
			sumX += float64(v) * float64(p%28)
			sumY += float64(v) * float64(p/28)
		}
		if peak < 128 {
			t.Errorf("image %d (a %d): got a brightest pixel of %d, want at least 128", i, labels[i], peak)
		}
	}
	// MNIST: 81 % of the pixels are 0 and the mean is 33.3.
	if share := zeros / (n * 784); share < 0.70 || share > 0.95 {
		t.Errorf("got %.3f of the pixels at exactly 0, want 0.70 to 0.95", share)
	}
	if mean := sum / (n * 784); mean < 15 || mean > 50 {
		t.Errorf("got mean pixel %.1f, want 15 to 50", mean)
	}
	if x, y := sumX/sum, sumY/sum; math.Abs(x-13.5) > 1.5 || math.Abs(y-13.5) > 1.5 {
		t.Errorf("got mean centre (%.2f, %.2f), want (13.5, 13.5) within 1.5", x, y)
	}
}

// TestNearestMean keeps the set useful: a linear rule must learn something from
// it and must not solve it. The value is deterministic, so the range only has
// to leave room for deliberate changes to the generator.
func TestNearestMean(t *testing.T) {
	const train, test = 3000, 1000
	images, labels := Raw(train, 1)
	var mean [10][784]float64
	var count [10]float64
	for i, l := range labels {
		count[l]++
		for p, v := range images[i*784 : (i+1)*784] {
			mean[l][p] += float64(v)
		}
	}
	for d := range mean {
		for p := range mean[d] {
			mean[d][p] /= count[d]
		}
	}
	images, labels = Raw(test, 2)
	right := 0
	for i, l := range labels {
		best, least := 0, math.Inf(1)
		for d := range mean {
			sum := 0.0
			for p, v := range images[i*784 : (i+1)*784] {
				e := mean[d][p] - float64(v)
				sum += e * e
			}
			if sum < least {
				best, least = d, sum
			}
		}
		if best == int(l) {
			right++
		}
	}
	if got := 100 * float64(right) / test; got < 60 || got > 99.5 {
		t.Errorf("nearest class mean: got %.1f %% right, want 60 to 99.5", got)
	} else {
		t.Logf("nearest class mean: %.1f %%", got)
	}
}

func BenchmarkRaw(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for b.Loop() {
		Raw(100, 1)
	}
	b.ReportMetric(100*float64(b.N)/b.Elapsed().Seconds(), "images/s")
}
