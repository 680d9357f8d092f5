package serving

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// TestNumbers: numbers are read as strconv reads them, to the bit: random ones, those
// of other languages, and those beside the middle of two float32.
func TestNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	n := 5_000 // times 16 numbers, as 5 types
	all := []string{"0", "-0", "0.0", "1e22", "1e23", "-1e-22", "1e-45", "1e-46", "3.4028235e38", "3.4028236e38", "1.17549435e-38", "1.1754943e-38", "9007199254740993",
		"9223372036854775807", "-9223372036854775808", "9223372036854775808", "-1", "255", "256", "2147483647", "2147483648", "-2147483648", "-2147483649", "0.10000000149011612",
		"1.0000000596046448", "1.00000005960464477539062", "1.0000000596046447754", "16777217", "16777217.0000000001", "33554431.5", "5e", "-", "01", "1.", ".5", "1e+", "1e9999", "0.00000000000000000000000000000001"}
	for range n {
		f := math.Float32frombits(r.Uint32())
		if f != f || math.IsInf(float64(f), 0) {
			continue
		}
		middle := (float64(f) + float64(math.Nextafter32(f, math.MaxFloat32))) / 2
		for _, v := range []float64{float64(f), r.NormFloat64(), middle, float64(r.IntN(256)) / 255} {
			all = append(all, strconv.FormatFloat(v, 'g', -1, 64), strconv.FormatFloat(v, 'g', 1+r.IntN(19), 64), strconv.FormatFloat(v, 'f', r.IntN(12), 64))
		}
		all = append(all, strconv.FormatFloat(float64(f), 'g', -1, 32), strconv.FormatInt(int64(r.Uint64())>>r.IntN(64), 10))
	}
	fast := 0
	for _, text := range all {
		s := &scanner{text: []byte(text)}
		if _, ok := s.decimal(); ok && s.at == len(text) {
			fast++
		}
		for _, d := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Int32, dtype.Int64, dtype.Uint8} {
			var want []byte
			var err error
			s := &scanner{text: []byte(text)}
			if _, err = s.number(); err == nil {
				err = s.end()
			}
			if err == nil {
				want, err = parsed(d, text)
			}
			e := newElementReader(d, 1)
			s = &scanner{text: []byte(text)}
			failed := e.element(s)
			if failed == nil {
				failed = s.end()
			}
			if (failed == nil) != (err == nil) || err == nil && string(e.data) != string(want) {
				t.Fatalf("%s %s: got %x %v, want %x %v", d, text, e.data, failed, want, err)
			}
		}
	}
	if fast < len(all)/2 {
		t.Errorf("%d of %d numbers are read without strconv", fast, len(all))
	}
}

// parsed is what strconv reads.
func parsed(d dtype.DType, text string) ([]byte, error) {
	switch d {
	case dtype.Float32:
		f, err := strconv.ParseFloat(text, 32)
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(f))), err
	case dtype.Float64:
		f, err := strconv.ParseFloat(text, 64)
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)), err
	case dtype.Int32:
		i, err := strconv.ParseInt(text, 10, 32)
		return binary.LittleEndian.AppendUint32(nil, uint32(i)), err
	case dtype.Int64:
		i, err := strconv.ParseInt(text, 10, 64)
		return binary.LittleEndian.AppendUint64(nil, uint64(i)), err
	}
	i, err := strconv.ParseUint(text, 10, 8)
	return []byte{byte(i)}, err
}

// BenchmarkJSON reads a row of 784 numbers: shortest float32, as Go and JavaScript
// write them, and float64 of the same values, as Python's json does.
func BenchmarkJSON(b *testing.B) {
	v, err := newVersion("m", 1, wide(b), Options{MaxBatch: 64})
	if err != nil {
		b.Fatal(err)
	}
	for _, bits := range []int{32, 64} {
		b.Run("float"+strconv.Itoa(bits), func(b *testing.B) {
			body := []byte(`{"instances":[[`)
			for i := range 784 {
				if i > 0 {
					body = append(body, ", "...)
				}
				body = strconv.AppendFloat(body, float64(float32(i%256)/255), 'g', -1, bits)
			}
			body = append(body, "]]}"...)
			for b.Loop() {
				if _, _, err := parseTF(v, body); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// wide returns a model of 784 numbers.
func wide(t testing.TB) *keras.Model {
	t.Helper()
	in := keras.Named("x", keras.Input(784))
	m, err := keras.NewModel(in, keras.Apply(&layers.Activation{Activation: "relu", Name: "y"}, in))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
