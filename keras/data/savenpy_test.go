package data_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
)

// TestSaveNPY: what is saved is read again, type, shape and bits; what is wrong
// leaves no file. That NumPy reads such files is in the golden tests of
// keras/saving, which writes them with the same code.
func TestSaveNPY(t *testing.T) {
	dir := t.TempDir()
	arrays := map[string]*keras.Tensor{
		"empty": keras.NewTensor([]float64{}, 0, 3), "scalar": keras.NewTensor([]int64{-5}).Reshape(),
		"bools": keras.NewTensor([]bool{true, false, true}, 3), "bytes": keras.NewTensor([]uint8{1, 255}, 2, 1),
		"deep/ints": keras.NewTensor([]int32{1, -2, 3, -4, 5, -6}, 1, 2, 3),
	}
	for _, d := range []keras.DType{keras.Float16, keras.BFloat16, keras.Float32, keras.Float64} {
		arrays[d.String()] = keras.NewTensor([]float64{0.5, -1.25, 1e-3, 65504, 3, 4, 5}, 7).Cast(d)
	}
	same := func(name string, got *keras.Tensor) {
		t.Helper()
		want := arrays[name]
		if name == "bfloat16" { // NumPy's file does not say more than two bytes
			return
		}
		if !got.Type().Equal(want.Type()) || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	for name, a := range arrays {
		path := filepath.Join(dir, filepath.Base(name)+".npy")
		check(t, data.SaveNPY(path, a))
		got, err := data.LoadNPY(path)
		check(t, err)
		same(name, got)
	}
	all := filepath.Join(dir, "all.npz")
	check(t, data.SaveNPZ(all, arrays))
	got, err := data.LoadNPZ(all)
	check(t, err)
	if len(got) != len(arrays) {
		t.Errorf("got %d arrays, want %d", len(got), len(arrays))
	}
	for name, a := range got {
		same(name, a)
	}
	path := filepath.Join(dir, "no.npz")
	wantError(t, data.SaveNPZ(path, map[string]*keras.Tensor{"../up": arrays["bools"]}), path+`: cannot save: array ../up: got a member named "../up", which points out of the archive`)
	wantError(t, data.SaveNPY(path, nil), path+": cannot save: got no tensor or several, want one")
	wantError(t, data.SaveNPY(filepath.Join(dir, "no", "a.npy"), arrays["bools"]), filepath.Join(dir, "no", "a.npy")+": cannot save: no such file or directory")
	if left, _ := filepath.Glob(filepath.Join(dir, "no*")); len(left) > 0 {
		t.Errorf("it left %q", left)
	}
}
