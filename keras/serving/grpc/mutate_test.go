package servinggrpc

import (
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"path"
	"runtime"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/serving"
)

var mutations = flag.Int("mutations", 20_000, "mutated requests of TestMutations for each service")

// seeds returns requests of a method for the models of targets.
func seeds(method string) [][]byte {
	x := floats(1, 2, 3)
	if method == inferMethod {
		return [][]byte{
			inferRequest("x", "FP32", []int{1, 3}, x),
			inferRequest("x", "FP32", []int{2, 3}, floats(1, 2, 3, 4, 5, 6)),
			build(text(1, "m"), text(2, "1"), text(3, "id"), sub(4, text(1, "a"), sub(2, integer(1, 1))),
				sub(5, text(1, "x"), text(2, "FP32"), dims(3, 1, 3), sub(5, blob(6, x))), sub(6, text(1, "y"))),
		}
	}
	shape := tfDims(2, 1, 3)
	return [][]byte{
		predictRequest("x", integer(1, 1), shape, blob(4, x)),
		predictRequest("x", integer(1, 1), shape, blob(5, x)),
		predictRequest("x", integer(1, 1), tfDims(2, 2, 3), fixed32(5, 1)),
		build(sub(1, text(1, "m"), sub(2, integer(1, 1)), text(3, signatureName)), sub(2, text(1, "x"), sub(2, integer(1, 1), shape, blob(5, x))), text(3, "y")),
	}
}

// targets are methods of servers with an input of fixed and of unknown width.
func targets(t testing.TB) (all []registrar) {
	for _, width := range []int{3, keras.Unknown} {
		var r registrar
		Register(&r, newServer(t, halfPlusTwo(t, width), serving.Options{MaxBatch: 4}))
		all = append(all, r)
	}
	return all
}

// mutate changes a message at a few places, also by numbers at the ends of ranges.
func mutate(r *rand.Rand, request []byte) []byte {
	b := append([]byte(nil), request...)
	odd := []uint64{0, 1, 127, 128, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxInt64, math.MaxUint64}
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
			b = append(b[:at:at], append(binary.AppendUvarint(nil, odd[r.IntN(len(odd))]), b[at:]...)...)
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

// checkAnswer: an answer is an error of the client, or a message.
func checkAnswer(t *testing.T, request, answer []byte, err error) codes.Code {
	t.Helper()
	code := status.Code(err)
	switch code {
	case codes.OK:
		if fields(answer, func(field) error { return nil }) != nil || len(answer) == 0 {
			t.Fatalf("%q: got %q, which is no message", request, answer)
		}
	case codes.InvalidArgument, codes.NotFound:
	default:
		t.Fatalf("%q: got %v", request, err)
	}
	return code
}

// TestMutations: whatever a message is, the answer is right or an error of the
// client, and the process takes at most 64 MiB more.
func TestMutations(t *testing.T) {
	for _, method := range []string{inferMethod, predictMethod} {
		t.Run(path.Base(method), func(t *testing.T) {
			all, requests := targets(t), seeds(method)
			r := rand.New(rand.NewPCG(1, 2))
			got := map[codes.Code]int{}
			runtime.GC()
			before, most := memory(), int64(0)
			for i := range *mutations {
				request := mutate(r, requests[i%len(requests)])
				answer, err := all[r.IntN(len(all))][method](t.Context(), request)
				got[checkAnswer(t, request, answer, err)]++
				if i%256 == 0 {
					most = max(most, memory()-before)
				}
			}
			t.Logf("%d requests: %v, at most %d MiB more", *mutations, got, most>>20)
			if most > 64<<20 {
				t.Errorf("it took %d MiB more", most>>20)
			}
			if got[codes.OK] == 0 || got[codes.InvalidArgument] == 0 || got[codes.NotFound] == 0 {
				t.Errorf("got the codes %v, want OK, INVALID_ARGUMENT and NOT_FOUND", got)
			}
		})
	}
}

// FuzzInfer: no message makes ModelInfer panic, or the server fail.
func FuzzInfer(f *testing.F) { fuzz(f, inferMethod) }

// FuzzPredict: no message makes Predict panic, or the server fail.
func FuzzPredict(f *testing.F) { fuzz(f, predictMethod) }

func fuzz(f *testing.F, method string) {
	for _, request := range seeds(method) {
		f.Add(request)
	}
	all := targets(f)
	f.Fuzz(func(t *testing.T, request []byte) {
		for _, r := range all {
			answer, err := r[method](t.Context(), request)
			checkAnswer(t, request, answer, err)
		}
	})
}
