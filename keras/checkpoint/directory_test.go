package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
)

// names lists the files of a directory.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestDirectory(t *testing.T) {
	d := &Directory{Path: filepath.Join(t.TempDir(), "a[1]*", "b")}
	if s, err := d.Load(background); s != nil || err != nil {
		t.Errorf("without a directory: got %v, %v", s, err)
	}
	for _, at := range [][2]int{{0, 10}, {0, 20}, {1, 0}, {1, 10}, {9, 0}, {10, 0}} {
		check(t, d.Save(background, state(at[0], at[1])))
	}
	if got, want := names(t, d.Path), []string{"epoch-00009-step-00000000.ckpt", "epoch-00010-step-00000000.ckpt"}; !slices.Equal(got, want) {
		t.Errorf("got files %q, want %q", got, want)
	}
	s, err := d.Load(background)
	check(t, err)
	if s.Epoch != 10 {
		t.Errorf("got epoch %d, want 10", s.Epoch)
	}

	// A damaged file is passed over, unless there is no other.
	all, err := d.Files()
	check(t, err)
	damage := func(path string) {
		b, err := os.ReadFile(path)
		check(t, err)
		check(t, os.WriteFile(path, b[:len(b)-1], 0o644))
	}
	damage(all[1])
	if s, err = d.Load(background); err != nil || s.Epoch != 9 {
		t.Errorf("with a damaged file: got %v, %v, want epoch 9", s, err)
	}
	damage(all[0])
	if _, err = d.Load(background); err == nil || !strings.Contains(err.Error(), all[1]) {
		t.Errorf("with damaged files only: got %v, want an error that names %s", err, all[1])
	}
	check(t, d.Save(background, state(9, 5)))
	if got, want := names(t, d.Path), []string{"epoch-00009-step-00000000.ckpt", "epoch-00009-step-00000005.ckpt"}; !slices.Equal(got, want) {
		t.Errorf("got files %q, want %q without what lies ahead", got, want)
	}

	// What was left unfinished goes; what is someone else's stays.
	other := filepath.Join(d.Path, "notes.txt")
	check(t, os.WriteFile(other, nil, 0o644))
	check(t, os.WriteFile(filepath.Join(d.Path, "epoch-00001-step-00000000.ckpt.0123abcd.tmp"), nil, 0o644))
	check(t, d.Save(background, state(9, 6)))
	check(t, d.Remove())
	if got := names(t, d.Path); !slices.Equal(got, []string{"notes.txt"}) {
		t.Errorf("after Remove: got %q", got)
	}
	check(t, os.Remove(other))
	check(t, d.Remove())
	if _, err := os.Stat(d.Path); err == nil {
		t.Error("the empty directory is still there")
	}
}

func TestKeepBest(t *testing.T) {
	for mode, want := range map[string]string{"min": "00002", "max": "00003"} {
		d := &Directory{Path: t.TempDir(), Keep: 1, Best: "loss", Mode: mode}
		l := []float64{0.5, 0.1, 0.7, 0.3, 0.3}
		for i := range l {
			check(t, d.Save(background, state(i, 3, l[:i]...)))
			check(t, d.Save(background, state(i+1, 0, l[:i+1]...)))
		}
		got := names(t, d.Path)
		if !slices.Equal(got, []string{"epoch-" + want + "-step-00000000.ckpt", "epoch-00005-step-00000000.ckpt"}) {
			t.Errorf("%s: got files %q, want that of epoch %s and the last", mode, got, want)
		}
		s, err := d.Load(background)
		check(t, err)
		if best := d.BestFile(&s.History); filepath.Base(best) != got[0] {
			t.Errorf("%s: got best file %s, want %s", mode, best, got[0])
		}
	}
}

func TestDirectoryErrors(t *testing.T) {
	for _, c := range []struct {
		d    Directory
		want string
	}{
		{Directory{}, "checkpoint: Directory: no Path given"},
		{Directory{Path: "x", Keep: -1}, "checkpoint: Directory: Keep is -1, want a positive number"},
		{Directory{Path: "x", Mode: "most"}, `checkpoint: Directory: Mode is "most", want min or max`},
		{Directory{Path: "x", Best: "accuracy"}, `checkpoint: Directory: Best is "accuracy"; want a Mode, min or max, for what is not a loss`},
	} {
		_, err := c.d.Load(background)
		wantError(t, err, c.want)
		wantError(t, c.d.Save(background, state(1, 0)), c.want)
	}
}

// faulty is a file system in which the n-th call fails, counted from 1, a
// write after half of its bytes.
type faulty struct {
	calls, fail int
	err         error
	die         func() // instead of an error
}

func (f *faulty) next() error {
	if f.calls++; f.calls != f.fail {
		return nil
	}
	if f.die != nil {
		f.die()
	}
	return f.err
}

func (f *faulty) Create(path string) (atomicfile.File, error) {
	if err := f.next(); err != nil {
		return nil, err
	}
	out, err := atomicfile.System{}.Create(path)
	return &faultyFile{out, f}, err
}

func (f *faulty) Rename(from, to string) error {
	if err := f.next(); err != nil {
		return err
	}
	return atomicfile.System{}.Rename(from, to)
}

func (f *faulty) Remove(path string) error {
	if err := f.next(); err != nil {
		return err
	}
	return atomicfile.System{}.Remove(path)
}

func (f *faulty) SyncDir(path string) error {
	if err := f.next(); err != nil {
		return err
	}
	return atomicfile.System{}.SyncDir(path)
}

type faultyFile struct {
	atomicfile.File
	fs *faulty
}

func (f *faultyFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b[:len(b)/2])
	if err == nil {
		err = f.fs.next()
	}
	if err != nil {
		return n, err
	}
	rest, err := f.File.Write(b[n:])
	return n + rest, err
}

func (f *faultyFile) Sync() error {
	if err := f.fs.next(); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestFullDisk: whatever fails while a state is saved, the error or the log says so, and
// there is still a whole state: the old one or the new one.
func TestFullDisk(t *testing.T) {
	var want [2]bytes.Buffer
	for i := range want {
		fmt.Fprintf(&want[i], "%+v", state(i+1, 0).Model)
	}
	failed := 0
	for n := 1; ; n++ {
		var log bytes.Buffer
		d := &Directory{Path: t.TempDir(), Keep: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		check(t, d.Save(background, state(1, 0)))
		fs := &faulty{fail: n, err: &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}}
		d.files = fs
		err := d.Save(background, state(2, 0))
		if fs.calls < n { // every call has failed once
			check(t, err)
			break
		}
		failed++
		if err == nil { // the old state stays
			err = errors.New(strings.TrimSpace(strings.Replace(log.String(), `device"`, "device", 1)))
		}
		if !strings.HasSuffix(err.Error(), "no space left on device") {
			t.Errorf("call %d fails: got %v", n, err)
		}
		s, err := d.Load(background)
		check(t, err)
		if s.Epoch != 1 && s.Epoch != 2 || fmt.Sprintf("%+v", s.Model) != want[s.Epoch-1].String() {
			t.Errorf("call %d fails: got state of epoch %d", n, s.Epoch)
		}
		d.files = nil
		check(t, d.Save(background, state(3, 0)))
		if got := names(t, d.Path); !slices.Equal(got, []string{"epoch-00003-step-00000000.ckpt"}) {
			t.Errorf("call %d failed: got files %q after the next Save", n, got)
		}
	}
	if failed < 8 { // create, some writes, sync, rename, sync of the directory, remove
		t.Errorf("only %d calls could fail", failed)
	}
	d := &Directory{Path: t.TempDir(), files: &faulty{fail: 3, err: syscall.ENOSPC}}
	path := filepath.Join(d.Path, "epoch-00001-step-00000000.ckpt")
	wantError(t, d.Save(background, state(1, 0)), "checkpoint: "+path+": cannot save: no space left on device")
	if got := names(t, d.Path); len(got) > 0 {
		t.Errorf("a failed Save leaves %q", got)
	}
}

func TestWeights(t *testing.T) {
	model := func(units int, policyName string) *keras.Model { return dense(t, units, policyName) }
	path := filepath.Join(t.TempDir(), "w.ckpt")
	a := model(3, "mixed_float16")
	check(t, SaveWeights(path, a))
	for _, p := range []string{"float32", "mixed_bfloat16", "mixed_float16", "float64", "float16"} {
		b := model(3, p)
		check(t, b.SetSeed(99))
		check(t, LoadWeights(path, b))
		for i, w := range b.Weights() {
			got, err := w.Float64s()
			check(t, err)
			want, err := a.Weights()[i].Float64s()
			check(t, err)
			for k := range got {
				if rounded := float64(w.DType().Round(float32(want[k]))); got[k] != rounded {
					t.Fatalf("%s: %s[%d]: got %v, want %v", p, w.Name(), k, got[k], rounded)
				}
			}
		}
	}
	wantError(t, LoadWeights(path, model(4, "float32")), "checkpoint: "+path+": weight a/kernel: got float32[2 3], want float32[2 4]")
	wantError(t, LoadWeights(path, keras.Sequential()), "checkpoint: "+path+": model sequential has no weight a/kernel float32[2 3]")
	wantError(t, SaveWeights(path, keras.Sequential()), "checkpoint: "+path+": model sequential has no weights; call it on data or Build it first")
	wantError(t, LoadVariables(path, a), "checkpoint: "+path+": it holds weights, want variables")

	// A custom loop's variables, and those of another loop.
	vars := filepath.Join(t.TempDir(), "v.ckpt")
	check(t, SaveVariables(vars, a))
	b := model(3, "mixed_float16")
	check(t, b.SetSeed(99))
	check(t, LoadVariables(vars, b))
	x, err := keras.ArraysOf(a)
	check(t, err)
	y, err := keras.ArraysOf(b)
	check(t, err)
	if fmt.Sprint(x) != fmt.Sprint(y) {
		t.Error("variables differ after LoadVariables")
	}
	wantError(t, LoadVariables(vars, a, b), "checkpoint: "+vars+": got 3 variables, want 6: a/kernel is missing")
	wantError(t, LoadVariables(vars), "checkpoint: "+vars+": got 3 variables, want 0: there is no a/kernel")
}
