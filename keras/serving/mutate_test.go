package serving

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

var mutations = flag.Int("mutations", 20_000, "mutated requests of TestMutations for each protocol")

// mutate changes a request at up to 8 places.
func mutate(r *rand.Rand, request []byte) []byte {
	b := append([]byte(nil), request...)
	odd := []string{"[", "]", "{", "}", "null", "NaN", "1e999", "-1", "0", "2147483647", "9223372036854775808", `"`, ",", ":", "\xff\xff\xff\xff\x07"}
	for range 1 + r.IntN(1+r.IntN(8)) {
		at := r.IntN(len(b) + 1)
		switch r.IntN(6) {
		case 0:
			if at < len(b) {
				b[at] ^= 1 << r.IntN(8)
			}
		case 1:
			if at < len(b) {
				b[at] = byte(r.Uint32())
			}
		case 2:
			b = append(b[:at], b[min(len(b), at+1+r.IntN(4)):]...)
		case 3:
			b = append(b[:at:at], append([]byte(odd[r.IntN(len(odd))]), b[at:]...)...)
		case 4: // a piece twice
			end := min(len(b), at+r.IntN(32))
			b = append(b[:end:end], b[at:]...)
		case 5:
			if r.IntN(8) == 0 {
				b = b[:at]
			} else if at+4 <= len(b) {
				binary.LittleEndian.PutUint32(b[at:], r.Uint32())
			}
		}
	}
	return b
}

// memory is what the process has from the system.
func memory() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}

// TestMutations: whatever a body is, the answer is 200 or an error of the client,
// and the process takes at most 64 MiB more.
func TestMutations(t *testing.T) {
	in := keras.Named("x", keras.Input(keras.Unknown))
	free, err := keras.NewModel(in, keras.Apply(&layers.Activation{Activation: "relu", Name: "y"}, in))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		protocol, path string
		seeds          []string // binary data after a NUL
	}{
		{"tfserving", predictPath, []string{
			`{"instances":[[1,2,3],[4,5,6]]}`, `{"signature_name":"serving_default","inputs":[[1,2.5e-1,NaN]]}`, `{"instances":[{"word":1,"numbers":[1,2]}]}`,
			`{"inputs":{"word":[1],"numbers":[[1,-Infinity]]}}`,
		}},
		{"oip", inferPath, []string{
			`{"id":"1","inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`,
			`{"parameters":{"binary_data_output":true},"inputs":[{"name":"word","shape":[1],"datatype":"INT32","data":[1]},{"name":"numbers","shape":[1,2],"datatype":"FP32","data":[[1,2]]}]}`,
			`{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","parameters":{"binary_data_size":12}}]}` + "\x00abcdefghijkl",
		}},
	} {
		t.Run(c.protocol, func(t *testing.T) {
			var handlers []http.Handler
			for _, s := range []*Server{newServer(t, dense(t, 0), Options{}), newServer(t, twoInputs(t), Options{}), newServer(t, free, Options{MaxBatch: 4})} {
				handlers = append(handlers, s.Handler(HandlerOptions{}))
			}
			r := rand.New(rand.NewPCG(1, 2))
			statuses := map[int]int{}
			runtime.GC()
			before, most := memory(), int64(0)
			for i := range *mutations {
				text, raw, binary := strings.Cut(c.seeds[i%len(c.seeds)], "\x00")
				body := mutate(r, []byte(text+raw))
				request := httptest.NewRequest("POST", c.path, strings.NewReader(string(body)))
				if binary {
					request.Header.Set("Inference-Header-Content-Length", strconv.Itoa(len(text)+r.IntN(2)*(r.IntN(9)-4)))
				}
				w := httptest.NewRecorder()
				handlers[r.IntN(len(handlers))].ServeHTTP(w, request)
				statuses[w.Code]++
				if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
					t.Fatalf("request %d: %q: got %d %s", i, body, w.Code, w.Body)
				}
				if i%256 == 0 {
					most = max(most, memory()-before)
				}
			}
			t.Log(fmt.Sprint(*mutations, " requests: ", statuses, ", at most ", most>>20, " MiB more"))
			if most > 64<<20 {
				t.Errorf("it took %d MiB more", most>>20)
			}
			if statuses[http.StatusOK] == 0 || statuses[http.StatusBadRequest] == 0 {
				t.Errorf("got the statuses %v, want both", statuses)
			}
		})
	}
}
