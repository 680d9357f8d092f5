package data_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/data"
)

// TestOperations: what comes, how many are promised, and that every epoch can
// be opened anywhere.
func TestOperations(t *testing.T) {
	noLeaks(t)
	for name, c := range datasets(t) {
		for number, want := range c.want {
			for skip := range len(want) + 1 {
				got, err := read(c.d.Epoch(background, number, skip))
				if err != nil || !slices.Equal(got, want[skip:]) {
					t.Errorf("%s, epoch %d from %d: got %v, %v, want %v", name, number, skip, got, err, want[skip:])
				}
			}
			if n := c.d.Len(); n != len(want) && n != data.Unknown {
				t.Errorf("%s: got Len %d, want %d", name, n, len(want))
			}
		}
		// All counts the epochs by itself.
		first, err := c.d.Collect(background)
		check(t, err)
		second, err := read(c.d.All(background))
		check(t, err)
		if !slices.Equal(first, c.want[0]) || !slices.Equal(second, c.want[1]) {
			t.Errorf("%s: All yields %v, then %v, want %v", name, first, second, c.want)
		}
	}
}

// TestEarlyEnd leaves every dataset after each number of elements: nothing may
// be left running, and the next reading is whole.
func TestEarlyEnd(t *testing.T) {
	noLeaks(t)
	for name, c := range datasets(t) {
		d := data.ParallelMap(c.d.Prefetch(2), 2, double).Prefetch(1)
		for n := 1; n <= min(len(c.want[0]), 4); n++ {
			left := n
			for _, err := range d.Epoch(background, 0, 0) {
				check(t, err)
				if left--; left == 0 {
					break
				}
			}
			if left != 0 {
				t.Errorf("%s: %d elements are missing", name, left)
			}
		}
		if got := epoch(t, d, 1); len(got) != len(c.want[1]) {
			t.Errorf("%s: got %v after readers have left", name, got)
		}
	}
}

// TestCancel ends the context of every dataset in its middle.
func TestCancel(t *testing.T) {
	noLeaks(t)
	gone := errors.New("gone fishing")
	for name, c := range datasets(t) {
		if len(c.want[0]) < 3 {
			continue
		}
		for opName, d := range map[string]*data.Dataset[int]{
			"alone": c.d, "mapped": data.ParallelMap(c.d, 2, double), "ahead": c.d.Prefetch(3),
			"filtered": c.d.Filter(func(int) bool { return true }), "cached": c.d.Cache(), "shuffled": c.d.Shuffle(2),
		} {
			ctx, cancel := context.WithCancelCause(background)
			defer cancel(nil)
			n := 0
			var last error
			for _, err := range d.Epoch(ctx, 0, 0) {
				if last = err; err == nil {
					n++
					cancel(gone)
				}
			}
			if n != 1 || !errors.Is(last, gone) {
				t.Errorf("%s, %s: got %d elements and error %v, want 1 and that of the context", name, opName, n, last)
			}
			if _, err := read(d.Epoch(ctx, 0, 0)); !errors.Is(err, gone) {
				t.Errorf("%s, %s: got error %v of a context that has ended", name, opName, err)
			}
		}
	}
}

// TestBlocked cancels functions and sources that wait.
func TestBlocked(t *testing.T) {
	noLeaks(t)
	ctx, cancel := context.WithCancel(background)
	wait := func(ctx context.Context, x int) (int, error) {
		if x == 3 {
			cancel()
		}
		<-ctx.Done()
		return 0, ctx.Err()
	}
	_, err := read(data.ParallelMap(data.Range(0, 100), 4, wait).Prefetch(3).Epoch(ctx, 0, 0))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	// An endless source that nothing of comes out.
	cancel()
	ctx, cancel = context.WithCancel(background)
	defer cancel()
	_, err = read(data.Range(0, 10).Repeat().Progress(func(done, total int) {
		if done == 100 {
			cancel()
		}
	}).Filter(func(int) bool { return false }).Epoch(ctx, 0, 0))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
}

// TestErrors: an error passes through every operation, after what came before
// it, and ends the sequence.
func TestErrors(t *testing.T) {
	noLeaks(t)
	all := func(int) bool { return true }
	ident := func(_ context.Context, x int) (int, error) { return x, nil }
	fails := func(_ context.Context, x int) (int, error) {
		if x == 4 {
			return 0, errBroken
		}
		return x, nil
	}
	file := filepath.Join(t.TempDir(), "cache")
	for name, c := range map[string]struct {
		d *data.Dataset[int]
		n int
	}{
		"source":          {broken(4), 4},
		"take":            {broken(4).Take(9), 4},
		"skip":            {broken(4).Skip(1), 3},
		"skip past it":    {broken(4).Skip(9), 0},
		"shard":           {broken(4).Shard(2, 0), 2},
		"repeat":          {broken(4).Repeat(2), 4},
		"concatenate":     {broken(4).Concatenate(data.Range(0, 3)), 4},
		"filter":          {broken(4).Filter(all), 4},
		"prefetch":        {broken(4).Prefetch(2), 4},
		"shuffle":         {broken(4).Shuffle(2), 2},
		"cache":           {broken(4).Cache(), 4},
		"cache in a file": {broken(4).CacheFile(file, number()), 4},
		"map":             {data.Map(broken(4), ident), 4},
		"parallel map":    {data.ParallelMap(broken(4), 2, ident), 4},
		"map's function":  {data.Map(data.Range(0, 9), fails), 4},
		"parallel map's":  {data.ParallelMap(data.Range(0, 1000), 4, fails), 4},
		"zip, first":      {data.Map(data.Zip(broken(4), data.Range(0, 9)), first), 4},
		"zip, second":     {data.Map(data.Zip(data.Range(0, 9), broken(4)), first), 4},
		"chunk":           {data.Map(data.Chunk(broken(4), 2, false), func(_ context.Context, c []int) (int, error) { return c[0], nil }), 2},
		"interleave":      {data.Interleave(data.Range(0, 3), 2, 1, func(context.Context, int) (*data.Dataset[int], error) { return broken(2), nil }), 4},
		"interleave's": {data.FlatMap(data.Range(0, 9), func(_ context.Context, n int) (*data.Dataset[int], error) {
			_, err := fails(background, n)
			return data.Range(0, 1), err
		}), 4},
	} {
		for range 2 {
			got, err := read(c.d.Epoch(background, 0, 0))
			if len(got) != c.n || !errors.Is(err, errBroken) {
				t.Errorf("%s: got %v and error %v, want %d elements and that of the source", name, got, err, c.n)
			}
			if (strings.HasSuffix(name, "function") || strings.HasSuffix(name, "'s")) && !strings.Contains(fmt.Sprint(err), "element 4: ") {
				t.Errorf("%s: got error %v, want the number of the element", name, err)
			}
		}
	}
	for want, d := range map[string]*data.Dataset[int]{
		"Shard: part 3 of 3":                    data.Range(0, 1).Shard(3, 3),
		"Interleave: cycle is 0":                data.Interleave(data.Range(0, 1), 0, 1, func(context.Context, int) (*data.Dataset[int], error) { return nil, nil }),
		"Collect: the dataset has no end":       data.Range(0, 1).Repeat(),
		"the dataset ends after 2 elements; 3 ": data.FromGenerator(func(ctx context.Context, _ int) iter.Seq2[int, error] { return unknown(2).Epoch(ctx, 0, 0) }).Skip(0),
	} {
		_, err := d.Collect(background)
		if strings.HasPrefix(want, "the dataset ends") {
			_, err = read(d.Epoch(background, 0, 3))
		}
		wantError(t, err, want)
	}
	_, err := data.Chunk(data.Range(0, 3), 0, false).Collect(background)
	wantError(t, err, "Chunk: size is 0, want a positive number")
}

func first(_ context.Context, p data.Pair[int, int]) (int, error) { return p.First, nil }

// number is a Codec of numbers below 256.
func number() data.Codec[int] {
	return data.Codec[int]{
		Encode: func(x int) ([]byte, error) { return []byte{byte(x)}, nil },
		Decode: func(b []byte) (int, error) {
			if len(b) != 1 {
				return 0, fmt.Errorf("got %d bytes, want 1", len(b))
			}
			return int(b[0]), nil
		},
	}
}

// TestShortResume: a dataset that has become shorter than the place to go on
// from says so, whatever is made of it.
func TestShortResume(t *testing.T) {
	for name, d := range map[string]*data.Dataset[int]{
		"generator":   unknown(3),
		"take":        unknown(9).Take(3),
		"filter":      data.Range(0, 3).Filter(func(int) bool { return true }),
		"repeat":      unknown(3).Repeat(1),
		"concatenate": unknown(1).Concatenate(unknown(2)),
		"shuffle":     unknown(3).Shuffle(9),
		"flat map":    data.FlatMap(data.Range(0, 3), func(context.Context, int) (*data.Dataset[int], error) { return data.Range(0, 1), nil }),
		"chunk":       data.Map(data.Chunk(unknown(6), 2, true), func(_ context.Context, c []int) (int, error) { return c[0], nil }),
		"prefetch":    unknown(3).Prefetch(1),
	} {
		if _, err := read(d.Epoch(background, 0, 3)); err != nil {
			t.Errorf("%s: from its end: got error %v", name, err)
		}
		_, err := read(d.Epoch(background, 0, 5))
		wantError(t, err, "the dataset ends after")
	}
}

// TestPanics: a panic comes out where the dataset is read.
func TestPanics(t *testing.T) {
	noLeaks(t)
	oops := func(_ context.Context, x int) (int, error) {
		if x == 5 {
			panic("out of cheese")
		}
		return x, nil
	}
	for name, d := range map[string]*data.Dataset[int]{
		"map":              data.Map(data.Range(0, 9), oops),
		"parallel map":     data.ParallelMap(data.Range(0, 9), 3, oops),
		"source of it":     data.ParallelMap(data.Map(data.Range(0, 9), oops), 3, double),
		"source of ahead":  data.Map(data.Range(0, 9), oops).Prefetch(2),
		"parallel, before": data.ParallelMap(data.Range(0, 9), 3, oops).Prefetch(2),
	} {
		func() {
			defer func() {
				if r := recover(); r != "out of cheese" {
					t.Errorf("%s: got panic %v, want that of the function", name, r)
				}
			}()
			read(d.Epoch(background, 0, 0))
			t.Errorf("%s: the panic got lost", name)
		}()
	}
}

// TestParallelMapIsOrdered reads many elements whose functions take different
// times, with tasks that grow.
func TestParallelMapIsOrdered(t *testing.T) {
	noLeaks(t)
	for _, workers := range []int{0, 1, 2, 7} {
		for _, n := range []int{0, 1, 2, 997, 5000} {
			got := epoch(t, data.ParallelMap(data.Range(0, n), workers, double), 0)
			for i, x := range got {
				if x != 2*i {
					t.Fatalf("%d workers: element %d is %d, want %d", workers, i, x, 2*i)
				}
			}
			if len(got) != n {
				t.Errorf("%d workers: got %d elements, want %d", workers, len(got), n)
			}
		}
	}
}

func TestRandom(t *testing.T) {
	d := data.Random(7)
	a, b := epoch(t, d.Take(9), 0), epoch(t, d.Take(9), 1)
	tail, err := read(d.Take(9).Epoch(background, 0, 4))
	check(t, err)
	if !slices.Equal(a[4:], tail) || slices.Equal(a, b) || slices.Equal(a, epoch(t, data.Random(8).Take(9), 0)) {
		t.Errorf("got %v, %v and from 4 %v", a, b, tail)
	}
	if d.Len() != data.Infinite {
		t.Errorf("got Len %d", d.Len())
	}
}

// TestCache counts how often the source is read.
func TestCache(t *testing.T) {
	read := 0
	source := data.Range(0, 5).Progress(func(int, int) { read++ })
	kept := source.Cache()
	for _, err := range kept.Epoch(background, 0, 0) { // not to the end
		check(t, err)
		break
	}
	for number := range 3 {
		if got := epoch(t, kept, number); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
			t.Errorf("got %v", got)
		}
	}
	if read != 6 {
		t.Errorf("the source was read %d times, want once for the reader that left and once for each element", read)
	}
	read = 0
	path := filepath.Join(t.TempDir(), "numbers.tfrecord")
	for range 2 { // the second one finds the file
		d := source.CacheFile(path, number())
		for number := range 2 {
			if got := epoch(t, d, number); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
				t.Errorf("got %v", got)
			}
			if got := epoch(t, d.Skip(3), number); !slices.Equal(got, []int{3, 4}) {
				t.Errorf("got %v", got)
			}
		}
	}
	if read != 5 {
		t.Errorf("the source was read %d times, want once for each element", read)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(files) != 1 {
		t.Errorf("got files %v, want the one", files)
	}
}

// TestCacheFileShared: trainings that begin at once with one file fill it each for
// itself, and all get all elements.
func TestCacheFileShared(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "numbers.tfrecord")
		var all sync.WaitGroup
		for range 3 {
			d := data.Range(0, 200).CacheFile(path, number())
			all.Go(func() {
				for e := range 2 {
					if got := epoch(t, d, e); len(got) != 200 || got[199] != 199 {
						t.Errorf("epoch %d has %d elements", e, len(got))
					}
				}
			})
		}
		all.Wait()
		if files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(files) != 1 {
			t.Errorf("got files %v, want the one", files)
		}
	}
}

func TestProgress(t *testing.T) {
	var got []string
	epoch(t, data.Range(0, 3).Progress(func(done, total int) { got = append(got, fmt.Sprint(done, "/", total)) }), 0)
	if want := "[1/3 2/3 3/3]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
