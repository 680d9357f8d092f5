package keras

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestProgressKeras compares what is printed with what Keras's ProgbarLogger
// prints, byte for byte: see testdata/make_progbar.py.
func TestProgressKeras(t *testing.T) {
	f, err := os.Open("testdata/progbar.json.gz")
	check(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	check(t, err)
	var file struct {
		Cases []struct {
			Verbose, Target, Epochs int
			Script                  []struct {
				Epoch  int
				Add    float64
				Step   int
				Finish bool
				Logs   [][2]string
			}
			Text string
		}
	}
	check(t, json.NewDecoder(r).Decode(&file))
	if len(file.Cases) < 50 {
		t.Fatalf("got %d cases", len(file.Cases))
	}
	for i, c := range file.Cases {
		name := fmt.Sprintf("%d: verbose %d, %d steps, %d epochs", i, c.Verbose, c.Target, c.Epochs)
		p, w, clock := testProgress(c.Verbose, c.Target, 0)
		for _, e := range c.Script {
			clock.add(time.Duration(e.Add * float64(time.Second)))
			var logs []logItem
			for _, l := range e.Logs {
				x, err := strconv.ParseFloat(l[1], 64)
				check(t, err)
				logs = append(logs, logItem{Name: l[0], Value: x})
			}
			switch {
			case e.Epoch > 0:
				p.epoch(e.Epoch, c.Epochs)
			case e.Finish:
				p.finish(logs)
			default:
				p.step(e.Step, logs)
			}
		}
		got, want := strings.Split(w.String(), "\r"), strings.Split(c.Text, "\r")
		for k := range max(len(got), len(want)) {
			if k >= len(got) || k >= len(want) || got[k] != want[k] {
				t.Errorf("%s: part %d of %d:\ngot  %q\nwant %q", name, k, len(want), got[min(k, len(got)-1)], want[min(k, len(want)-1)])
				break
			}
		}
	}
}
