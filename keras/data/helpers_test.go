package data_test

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
)

var background = context.Background()

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// epoch returns the elements of an epoch.
func epoch[T any](t testing.TB, d *data.Dataset[T], number int) []T {
	t.Helper()
	return epochFrom(t, d, number, 0)
}

func epochFrom[T any](t testing.TB, d *data.Dataset[T], number, skip int) []T {
	t.Helper()
	all, err := read(d.Epoch(background, number, skip))
	check(t, err)
	return all
}

func read[T any](seq iter.Seq2[T, error]) (all []T, err error) {
	for x, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, x)
	}
	return all, nil
}

// noLeaks fails if there are more goroutines of datasets at the end of the test
// than now.
func noLeaks(t *testing.T) {
	t.Helper()
	stacks := func() (n int, text string) {
		b := make([]byte, 1<<20)
		b = b[:runtime.Stack(b, true)]
		for g := range strings.SplitSeq(string(b), "\n\n") {
			// Goroutines of other tests of this package run, too: what counts is
			// where a goroutine is, or who made it.
			if strings.Contains(g, "keras/internal/pipeline.") || strings.Contains(g, "keras/data.") {
				n++
				text += g + "\n\n"
			}
		}
		return n, text
	}
	t.Cleanup(func() {
		// One that has told its reader that it is done may still be returning.
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			n, text := stacks()
			if n == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d goroutines are left:\n%s", n, text)
			}
		}
	})
}

// double is a function for Map that takes a while for some elements.
func double(_ context.Context, x int) (int, error) {
	if x%7 == 0 {
		runtime.Gosched()
	}
	return 2 * x, nil
}

// datasets has every operation, with what it yields in epochs 0 and 1.
func datasets(t testing.TB) map[string]struct {
	d    *data.Dataset[int]
	want [2][]int
} {
	type row = struct {
		d    *data.Dataset[int]
		want [2][]int
	}
	same := func(d *data.Dataset[int], want ...int) row { return row{d, [2][]int{want, want}} }
	upto := func(n int) *data.Dataset[int] { return data.Range(0, n) }
	rows := map[string]row{
		"Range":          same(data.Range(3, 7), 3, 4, 5, 6),
		"Range of none":  same(data.Range(7, 3)),
		"FromSlice":      same(data.FromSlice([]int{5, 1, 4}), 5, 1, 4),
		"Take":           same(upto(10).Take(3), 0, 1, 2),
		"Take of fewer":  same(upto(3).Take(10), 0, 1, 2),
		"Take none":      same(upto(3).Take(0)),
		"Skip":           same(upto(6).Skip(4), 4, 5),
		"Skip all":       same(upto(3).Skip(10)),
		"Skip, unknown":  same(unknown(6).Skip(4), 4, 5),
		"Take, unknown":  same(unknown(6).Take(4), 0, 1, 2, 3),
		"Skip and Take":  same(upto(9).Skip(2).Take(3), 2, 3, 4),
		"Shard":          same(upto(8).Shard(3, 1), 1, 4, 7),
		"Shard, 2":       same(upto(8).Shard(3, 2), 2, 5),
		"Repeat":         same(upto(2).Repeat(3), 0, 1, 0, 1, 0, 1),
		"Repeat, 0":      same(upto(2).Repeat(0)),
		"Repeat forever": same(upto(2).Repeat().Take(5), 0, 1, 0, 1, 0),
		"Repeat nothing": same(upto(0).Repeat()),
		"Repeat unknown": same(unknown(2).Repeat(2), 0, 1, 0, 1),
		"Concatenate":    same(upto(2).Concatenate(upto(0), unknown(3), upto(1)), 0, 1, 0, 1, 2, 0),
		"Filter":         same(upto(9).Filter(func(x int) bool { return x%3 == 1 }), 1, 4, 7),
		"Prefetch":       same(upto(4).Prefetch(2), 0, 1, 2, 3),
		"Map":            same(data.Map(upto(4), double), 0, 2, 4, 6),
		"ParallelMap":    same(data.ParallelMap(upto(9), 3, double), 0, 2, 4, 6, 8, 10, 12, 14, 16),
		"Progress":       same(upto(3).Progress(func(int, int) {}), 0, 1, 2),
		"FlatMap": same(data.FlatMap(upto(4), func(_ context.Context, n int) (*data.Dataset[int], error) {
			return data.Range(10*n, 10*n+n), nil
		}), 10, 20, 21, 30, 31, 32),
		// TensorFlow: tf.data.Dataset.range(1, 6).interleave(lambda x:
		// tf.data.Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4)
		"Interleave": same(data.Interleave(data.Range(1, 6), 2, 4, func(_ context.Context, n int) (*data.Dataset[int], error) {
			return data.FromSlice([]int{n}).Repeat(6), nil
		}), 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5),
		"Zip": same(data.Map(data.Zip(upto(3), data.Range(5, 9)), func(_ context.Context, p data.Pair[int, int]) (int, error) {
			return 10*p.First + p.Second, nil
		}), 5, 16, 27),
		"Enumerate": same(data.Map(data.Enumerate(data.Range(5, 8)), func(_ context.Context, p data.Pair[int, int]) (int, error) {
			return 10*p.First + p.Second, nil
		}), 5, 16, 27),
		"Chunk": same(data.Map(data.Chunk(upto(7), 3, false), func(_ context.Context, c []int) (int, error) {
			return 100*len(c) + c[0], nil
		}), 300, 303, 106),
		"Chunk, dropped": same(data.Map(data.Chunk(unknown(7), 3, true), func(_ context.Context, c []int) (int, error) {
			return 100*len(c) + c[0], nil
		}), 300, 303),
		"Chunk, unknown": same(data.Map(data.Chunk(unknown(7), 3, false), func(_ context.Context, c []int) (int, error) {
			return 100*len(c) + c[0], nil
		}), 300, 303, 106),
	}
	// Those whose epochs differ: pinned by what they are made of.
	shuffled := upto(20).Shuffle(8, 3)
	a, b, c := epoch(t, shuffled, 0), epoch(t, shuffled, 1), epoch(t, shuffled, 2)
	d := epoch(t, shuffled, 3)
	rows["Shuffle"] = row{upto(20).Shuffle(8, 3), [2][]int{a, b}}
	rows["Shuffle, Repeat"] = row{upto(20).Shuffle(8, 3).Repeat(2), [2][]int{slices.Concat(a, b), slices.Concat(c, d)}}
	rows["Shuffle, Cache"] = same(upto(20).Shuffle(8, 3).Cache(), a...)
	rows["Cache, Shuffle"] = row{upto(20).Cache().Shuffle(8, 3), [2][]int{a, b}}
	return rows
}

// unknown is Range(0, n) of which the length is not known.
func unknown(n int) *data.Dataset[int] {
	return data.FromGenerator(func(ctx context.Context, _ int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range n {
				if !yield(i, nil) {
					return
				}
			}
		}
	})
}

var errBroken = errors.New("disk on fire")

// broken yields n numbers, then an error.
func broken(n int) *data.Dataset[int] {
	return unknown(n).Concatenate(data.FromGenerator(func(context.Context, int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) { yield(0, errBroken) }
	}))
}

// sample is one tensor of n numbers x.
func sample(x float32, n int) keras.Batch {
	v := make([]float32, n)
	for i := range v {
		v[i] = x
	}
	return keras.Batch{X: keras.NewTensor(v, n)}
}
