package audio

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wav makes a file: the format, chunks in front of the samples, the samples.
func wav(code, channels, bits int, extended bool, samples []byte) []byte {
	le := binary.LittleEndian
	form := le.AppendUint16(nil, uint16(code))
	if extended {
		form = le.AppendUint16(nil, extensible)
	}
	form = le.AppendUint16(form, uint16(channels))
	form = le.AppendUint32(form, 16000)
	form = le.AppendUint32(form, uint32(16000*channels*bits/8))
	form = le.AppendUint16(form, uint16(channels*bits/8))
	form = le.AppendUint16(form, uint16(bits))
	if extended {
		form = le.AppendUint16(form, 22)
		form = le.AppendUint16(form, uint16(bits))
		form = le.AppendUint32(form, 0)
		form = le.AppendUint16(form, uint16(code))
		form = append(form, "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"...)
	}
	var out bytes.Buffer
	chunk := func(name string, b []byte) {
		out.WriteString(name)
		out.Write(le.AppendUint32(nil, uint32(len(b))))
		out.Write(b)
		if len(b)%2 == 1 {
			out.WriteByte(0)
		}
	}
	out.WriteString("RIFF\x00\x00\x00\x00WAVE")
	chunk("LIST", []byte("odd"))
	chunk("fmt ", form)
	chunk("data", samples)
	return out.Bytes()
}

func f32(xs ...float32) (b []byte) {
	for _, x := range xs {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// TestWAV: 16 bits as tf.audio.decode_wav has them, the others by the same rule.
func TestWAV(t *testing.T) {
	for _, c := range []struct {
		name                 string
		code, channels, bits int
		samples              []byte
		want                 []float32
	}{
		{"8 bits", 1, 1, 8, []byte{0, 128, 255}, []float32{-1, 0, 127.0 / 128}},
		{"16 bits", 1, 2, 16, []byte{0, 0x80, 0xff, 0x7f, 1, 0, 0, 0}, []float32{-1, 32767.0 / 32768, 1.0 / 32768, 0}},
		{"24 bits", 1, 1, 24, []byte{0, 0, 0x80, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff}, []float32{-1, 8388607.0 / 8388608, -1.0 / 8388608}},
		{"32 bits", 1, 1, 32, []byte{0, 0, 0, 0x80, 0, 0, 0, 0x40}, []float32{-1, 0.5}},
		{"floats", 3, 1, 32, f32(0.25, -3), []float32{0.25, -3}},
		{"doubles", 3, 1, 64, binary.LittleEndian.AppendUint64(nil, math.Float64bits(0.5)), []float32{0.5}},
		{"half a sample at the end", 1, 2, 16, []byte{0, 0x40, 0, 0x40, 1, 0}, []float32{0.5, 0.5}},
		{"none", 1, 1, 16, nil, nil},
	} {
		for _, extended := range []bool{false, true} {
			s, err := DecodeWAV(bytes.NewReader(wav(c.code, c.channels, c.bits, extended, c.samples)))
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			got, err := s.Samples.Values()
			if err != nil || !slices.Equal(got, c.want) || s.Rate != 16000 || s.Samples.Dim(1) != c.channels || s.Samples.Dim(0) != len(c.want)/c.channels {
				t.Errorf("%s: got %v, %v at %d a second, %v, want %v", c.name, s.Samples.Shape(), got, s.Rate, err, c.want)
			}
		}
	}
}

func TestWAVErrors(t *testing.T) {
	good := wav(1, 1, 16, false, []byte{1, 0, 2, 0})
	claims := slices.Clone(good) // 2 GiB of samples
	binary.LittleEndian.PutUint32(claims[len(claims)-8:], 1<<31)
	for _, c := range []struct {
		b    []byte
		o    Options
		want string
	}{
		{nil, Options{}, "it is no WAV file: it does not begin with RIFF … WAVE"},
		{good[:40], Options{}, `it ends within the chunk "fmt "`},
		{good[:12], Options{}, `it has no samples: there is no chunk "data"`},
		{wav(2, 1, 4, false, nil), Options{}, "its samples have the format 2 and 4 bits, want integers (1) of 8, 16, 24 or 32 bits or floats (3) of 32 or 64"},
		{wav(1, 0, 16, false, nil), Options{}, "it has 0 channels and 16000 samples a second, want 1 or more"},
		{claims, Options{MaxBytes: 1 << 20}, "it has 1073741824 numbers, want at most 262144: see Options.MaxBytes"},
	} {
		if _, err := DecodeWAV(bytes.NewReader(c.b), c.o); err == nil || err.Error() != c.want {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
	// What a file says is not believed: it has two samples.
	path := filepath.Join(t.TempDir(), "a.wav")
	if err := os.WriteFile(path, claims, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadWAV(path)
	if err != nil || s.Samples.Dim(0) != 2 {
		t.Errorf("got %v, %v, want two samples", s, err)
	}
	if _, err := LoadWAV(t.TempDir()); err == nil || !strings.Contains(err.Error(), "it is a directory") {
		t.Errorf("got error %v, want one about the directory", err)
	}
}

func FuzzDecodeWAV(f *testing.F) {
	f.Add(wav(1, 2, 16, true, make([]byte, 40)))
	f.Add(wav(3, 1, 64, false, make([]byte, 40)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeWAV(bytes.NewReader(b), Options{MaxBytes: 1 << 16})
		if err == nil && (s.Samples.Shape().Size() > 1<<14 || s.Samples.Dim(1) < 1 || s.Rate < 1) {
			t.Errorf("got %v at %d a second", s.Samples.Type(), s.Rate)
		}
	})
}
