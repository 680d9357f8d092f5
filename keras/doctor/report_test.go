package doctor_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/doctor"
)

var update = flag.Bool("update", false, "rewrite the reports in testdata")

// reportOf examines the patient whose name begins with name.
func reportOf(t *testing.T, name string) *doctor.Report {
	t.Helper()
	for i := range patients {
		if p := &patients[i]; strings.HasPrefix(p.name, name+" ") {
			r, err := doctor.Examine(t.Context(), p.compiled(t), p.batch(), doctor.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	t.Fatalf("there is no patient %s", name)
	return nil
}

// TestReportJSON reads a report as a program would.
func TestReportJSON(t *testing.T) {
	r := reportOf(t, "07")
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Kind   string
		Before struct {
			Finite bool
			Worst  string
		}
		Origin *struct{ ID, Op, Type string }
		Remedy struct {
			Map      map[string]string
			Verified bool
			After    *struct{ Gradient float64 }
		}
		LossScale *struct {
			Present   float64
			Fits      bool
			Low, High int
		} `json:"loss_scale"`
		Suspects []struct{ Layer, Why string }
		Taps     []struct {
			ID, Op, Type string
			Error        any
			Local        any     `json:"local_error"`
			Largest      float64 // the shadow's, which are finite
			Headroom     any     `json:"headroom_bits"`
			NaNs         int
			Infinities   int
		}
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	if got.Kind != "overflow" || !got.Before.Finite || got.Before.Worst != r.Before.Worst || got.Origin == nil || got.Origin.ID != "own_norm/Square#0" || got.Origin.Type != "float16[32 64]" {
		t.Errorf("got %+v", got)
	}
	if got.Remedy.Map["own_norm"] != "float32" || len(got.Remedy.Map) != 1 || !got.Remedy.Verified || got.Remedy.After == nil || !(got.Remedy.After.Gradient < 0.01) {
		t.Errorf("got the remedy %+v", got.Remedy)
	}
	if s := got.LossScale; s == nil || s.Present != 32768 || !s.Fits || s.Low != r.Scale.Low || s.High != r.Scale.High {
		t.Errorf("got the loss scale %+v, want %+v", s, r.Scale)
	}
	if len(got.Suspects) != len(r.Suspects) || got.Suspects[0].Layer != "own_norm" {
		t.Errorf("got the suspects %+v", got.Suspects)
	}
	at, seen := map[string]int{}, 0
	for i, x := range got.Taps {
		at[x.ID] = i
	}
	for _, v := range r.Taps.Values {
		if v.Shadow == nil {
			continue
		}
		seen++
		i, ok := at[string(v.ID)]
		if x := got.Taps[i]; !ok || x.Op != v.Op.String() || int64(x.NaNs) != v.Shadow.X.NaNs || int64(x.Infinities) != v.Shadow.X.Infinities || math.Abs(x.Largest-v.Shadow.Y.Largest) > 1e-5*x.Largest || (x.Local == nil) != (v.Local == nil) {
			t.Errorf("%s: got %+v", v.ID, x)
		}
	}
	if seen != len(got.Taps) || seen < 120 {
		t.Errorf("got %d values, want %d, at least 120", len(got.Taps), seen)
	}
	square := got.Taps[at["own_norm/Square#0"]]
	if bits, ok := square.Headroom.(float64); !ok || bits > -1 || bits < -2 || square.Infinities == 0 {
		t.Errorf("got %+v for squares of up to 1.56e5, want infinities and between -2 and -1 bits of headroom", square)
	}
}

// TestReportJSONNumbers: numbers that JSON lacks are strings, and nothing is a null
// list.
func TestReportJSONNumbers(t *testing.T) {
	r := &doctor.Report{Before: doctor.Verdict{Loss: math.NaN(), Gradient: math.Inf(1)}, Remedy: doctor.Remedy{Scale: math.Inf(-1)}}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"loss":"NaN"`, `"gradient":"Infinity"`, `"loss_scale":"-Infinity"`, `"taps":[]`, `"suspects":[]`, `"noise":[]`, `"operations":[]`, `"origin":null`, `"loss_scale":null`, `"map":null`, `"after":null`} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("got %s, want %s in it", b, want)
		}
	}
}

// TestReportJSONGolden compares the whole report of a small patient with that in
// testdata: names and texts as they are, numbers within a tenth, since kernels add in
// orders of their own.
func TestReportJSONGolden(t *testing.T) {
	b, err := json.MarshalIndent(reportOf(t, "12"), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "raw_targets.json")
	if *update {
		if err := os.WriteFile(path, append(b, '\n'), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(golden, &want); err != nil {
		t.Fatal(err)
	}
	alike(t, "", got, want)
}

func alike(t *testing.T, at string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for k := range g {
			if _, ok := want[k]; !ok {
				t.Errorf("%s/%s is not in testdata", at, k)
			}
		}
		for k, v := range want {
			alike(t, at+"/"+k, g[k], v)
		}
	case []any:
		g, _ := got.([]any)
		if len(g) != len(want) {
			t.Errorf("%s: got %d elements, want %d", at, len(g), len(want))
			return
		}
		for i, v := range want {
			alike(t, fmt.Sprint(at, "/", i), g[i], v)
		}
	case float64:
		g, ok := got.(float64)
		if !ok || math.Abs(g-want) > 0.1*math.Abs(want)+1e-6 {
			t.Errorf("%s: got %v, want %v", at, got, want)
		}
	default:
		if got != want {
			t.Errorf("%s: got %v, want %v", at, got, want)
		}
	}
}

func TestReportSave(t *testing.T) {
	m := patients[0].compiled(t)
	r, err := doctor.Examine(t.Context(), m, patients[0].batch(), doctor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, start := range map[string]string{"r.txt": "HEALTHY", "r.json": "{", "r.html": "<!"} {
		path := filepath.Join(dir, name)
		if err := r.Save(path); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !strings.HasPrefix(strings.ToLower(string(b)), strings.ToLower(start)) {
			t.Errorf("%s: got %.20q, %v", name, b, err)
		}
	}
	for path, want := range map[string]string{"r.pdf": `r.pdf has the suffix ".pdf", want .txt, .json or .html`, filepath.Join(dir, "no", "r.html"): "r.html: "} {
		if err := r.Save(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", path, err, want)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 3 {
		t.Errorf("the directory has %v, %v, want three files", all, err)
	}
}
