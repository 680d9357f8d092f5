package saving_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// TestWriters: three writers of a path, each with models of one number, and three
// readers: every read gives a whole file of one of them, and nothing else stays.
func TestWriters(t *testing.T) {
	const each = 15
	model := func() *keras.Model {
		m := keras.Sequential(&layers.Dense{Units: 40}, &layers.Dense{Units: 3})
		if err := m.Build(300); err != nil {
			t.Fatal(err)
		}
		return m
	}
	set := func(m *keras.Model, x float64) error {
		for _, v := range m.Variables() {
			all := make([]float64, v.Shape().Size())
			for i := range all {
				all[i] = x
			}
			if err := v.Set(all); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range []struct {
		file string
		save func(string, *keras.Model) error
		load func(string, *keras.Model) error
	}{
		{"m.keras", func(p string, m *keras.Model) error { return saving.Save(p, m) }, loadWeights},
		{"m.weights.h5", saveWeights, loadWeights},
		{"m.safetensors", saving.SaveSafetensors, saving.LoadSafetensors},
		{"m.npz", saving.SaveNPZ, saving.LoadNPZ},
		{"m.ckpt", checkpoint.SaveWeights, checkpoint.LoadWeights},
	} {
		t.Run(f.file, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, f.file)
			first := model()
			check(t, set(first, 1))
			check(t, f.save(path, first))
			var writing, reading sync.WaitGroup
			var done atomic.Bool
			var reads atomic.Int64
			for w := range 3 {
				m := model()
				writing.Go(func() {
					for i := range each {
						if err := set(m, float64(1+each*w+i)); err != nil {
							t.Error(err)
						}
						if err := f.save(path, m); err != nil {
							t.Errorf("writer %d: %v", w, err)
						}
					}
				})
			}
			for range 3 {
				m := model()
				reading.Go(func() {
					for !done.Load() {
						if err := f.load(path, m); err != nil {
							t.Errorf("a read: %v", err)
							return
						}
						var x float64
						for _, v := range m.Variables() {
							all, err := v.Float64s()
							if err != nil {
								t.Error(err)
							}
							for _, y := range all {
								if x == 0 {
									x = y
								}
								if y != x {
									t.Errorf("weights of two models: %v and %v", x, y)
									return
								}
							}
						}
						reads.Add(1)
						runtime.Gosched()
					}
				})
			}
			writing.Wait()
			done.Store(true)
			reading.Wait()
			if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
				t.Errorf("the directory has %v, %v, want the file alone", all, err)
			}
			t.Logf("%d writes, %d reads", 3*each, reads.Load())
		})
	}
}

// TestPlantedLink: a link under the old name of unfinished files is not followed.
func TestPlantedLink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links want a privilege there")
	}
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	check(t, os.WriteFile(victim, []byte("mine"), 0o644))
	for _, name := range []string{"m.keras.tmp", "m.keras.tmp.h5"} {
		check(t, os.Symlink(victim, filepath.Join(dir, name)))
	}
	m := keras.Sequential(&layers.Dense{Units: 1})
	check(t, m.Build(2))
	check(t, saving.Save(filepath.Join(dir, "m.keras"), m))
	if b, err := os.ReadFile(victim); err != nil || strings.TrimSpace(string(b)) != "mine" {
		t.Errorf("the link's target holds %q, %v", b, err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
