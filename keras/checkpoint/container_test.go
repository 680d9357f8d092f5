package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
)

// encode is a file in memory.
func encode(t testing.TB, f *File) []byte {
	t.Helper()
	var b bytes.Buffer
	check(t, Write(&b, f))
	return b.Bytes()
}

func decode(b []byte) (*File, error) { return Read(bytes.NewReader(b), int64(len(b))) }

func sample() *File {
	return &File{Kind: "weights", Meta: json.RawMessage(`{"a":1}`), Parts: []Part{
		{"model", []keras.Array{array("kernel", 2, 3), array("bias"), array("empty", 0, 5)}}, {"none", []keras.Array{}}}}
}

// forge makes a file of this header and data, its checksum right.
func forge(header string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(magic), version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	b = append(append(b, header...), data...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// bytesOf are the bytes of an array of the sample.
func bytesOf(shape ...int) []byte { return array("", shape...).Data }

func TestRoundTrip(t *testing.T) {
	b := encode(t, sample())
	got, err := decode(b)
	check(t, err)
	if !reflect.DeepEqual(got, sample()) {
		t.Errorf("got %+v, want %+v", got, sample())
	}
	if again := encode(t, got); !bytes.Equal(again, b) {
		t.Error("written again it differs")
	}
	// Arrays are aligned.
	if at := bytes.Index(b, bytesOf(2, 3)); at%alignment != 0 {
		t.Errorf("an array starts at byte %d", at)
	}
	bad := sample()
	bad.Parts[0].Arrays[0].Data = nil
	wantError(t, Write(new(bytes.Buffer), bad), "array kernel: got 0 bytes, want 24 for float32[2 3]")
}

// TestDamage: of a file with any byte changed, or cut anywhere, or with more
// behind it, nothing is read.
func TestDamage(t *testing.T) {
	b := encode(t, sample())
	for i := range b {
		damaged := bytes.Clone(b)
		damaged[i] ^= 0x10
		if _, err := decode(damaged); err == nil {
			t.Errorf("read with byte %d changed", i)
		}
		if _, err := decode(b[:i]); err == nil {
			t.Errorf("read when cut after %d bytes", i)
		}
	}
	if _, err := decode(append(bytes.Clone(b), 0)); err == nil {
		t.Error("read with a byte more")
	}
}

// TestLargeArrays: arrays that are written and read in parts, while the checksum
// is made, are the same bytes in between smaller ones; damage in any part is seen.
func TestLargeArrays(t *testing.T) {
	f := &File{Kind: "weights", Parts: []Part{{Name: "model"}}}
	for i, n := range []int{3, chunk/4 - 1, chunk / 4, chunk/4 + 1, 1, 3*chunk/4 + 5, 2} {
		a := array(fmt.Sprint("w", i), n)
		for k := range a.Data {
			a.Data[k] = byte(k * k >> 7)
		}
		f.Parts[0].Arrays = append(f.Parts[0].Arrays, a)
	}
	b := encode(t, f)
	got, err := decode(b)
	check(t, err)
	for i, a := range f.Parts[0].Arrays {
		if !bytes.Equal(got.Parts[0].Arrays[i].Data, a.Data) {
			t.Errorf("array %d was read with other bytes than written", i)
		}
	}
	for at := len(b) / 2; at < len(b); at += chunk/3 + 1 {
		b[at] ^= 4
		if _, err := decode(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d changed: got %v, want ErrDamaged", at, err)
		}
		b[at] ^= 4
	}
}

func TestReadErrors(t *testing.T) {
	later := encode(t, sample())
	later[len(magic)] = 9
	flipped := encode(t, sample())
	flipped[bytes.Index(flipped, bytesOf(2, 3))] ^= 1
	sum := sha256.Sum256(flipped[:len(flipped)-32])
	array := func(dtype, shape string) []byte {
		return forge(fmt.Sprintf(`{"kind":"","parts":[{"name":"p","arrays":[{"name":"w","dtype":%q,"shape":%s}]}]}`, dtype, shape))
	}
	for _, c := range []struct {
		file []byte
		want string
	}{
		{nil, "got 0 bytes, want 48 or more; it is no checkpoint"},
		{bytes.Repeat([]byte("x"), 64), `it starts with "xxxxxxxx", want "\x89MEZZO\r\n"; it is no checkpoint`},
		{later, "got version 9 of the format, want 1; another version of this module wrote it"},
		{flipped, fmt.Sprintf("got SHA-256 %x, want %x; the file is damaged", sum, flipped[len(flipped)-32:])},
		{forge("{"), "header: unexpected end of JSON input"},
		{append([]byte(magic), "\x01\x00\x00\x00\xff\xff\xff\xff................................"...), "header: got 4294967295 bytes, want at most 0; the file is damaged"},
		{array("float8", "[1]"), `array w: dtype: got "float8", want one of bool, uint8, int8, int32, int64, float16, bfloat16, float32, float64`},
		{array("float32", "[-1]"), "array w: got shape [-1], want sizes of 0 or more"},
		{array("float32", "[4611686018427387904,4]"), "array w: float32[4611686018427387904 4] is larger than the file"},
		{array("float32", "[3]"), "array w: got a file of 136 bytes, want 172 or more; it is truncated"},
		{array("float32", "["+strings.Repeat("1,", 32)+"1]"), "array w: got 33 axes, want at most 32"},
		{forge(`{"parts":[]}`, 0), "got 61 bytes, want 60 as the header says"},
	} {
		_, err := decode(c.file)
		wantError(t, err, c.want)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encode(f, sample()))
	f.Add(encode(f, &File{}))
	f.Add(forge(`{"parts":[{"arrays":[{"dtype":"bool","shape":[0]}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		// With its checksum made right, so that what is behind it is reached.
		if len(b) >= fixed+sha256.Size {
			sum := sha256.Sum256(b[:len(b)-sha256.Size])
			b = append(bytes.Clone(b[:len(b)-sha256.Size]), sum[:]...)
		}
		file, err := decode(b)
		if err != nil {
			return
		}
		total := 0
		for _, p := range file.Parts {
			for _, a := range p.Arrays {
				total += len(a.Data)
				if len(a.Data) != a.Type.Bytes() {
					t.Errorf("array of %d bytes is %v", len(a.Data), a.Type)
				}
			}
		}
		if total > len(b) {
			t.Errorf("%d bytes of arrays from a file of %d", total, len(b))
		}
		again, err := decode(encode(t, file))
		if err != nil || len(again.Parts) != len(file.Parts) {
			t.Errorf("written again: %v", err)
		}
	})
}

func TestState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.ckpt")
	want := state(3, 7, 0.1, 1e-300)
	check(t, Save(path, want))
	got, err := Load(path)
	check(t, err)
	want.Metrics, want.Callbacks[0].Arrays = []keras.Array{}, []keras.Array{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	_, err = Load(path + "x")
	wantError(t, err, "checkpoint: "+path+"x: no such file or directory")
	_, err = Load(filepath.Dir(path))
	wantError(t, err, "checkpoint: "+filepath.Dir(path)+": it is a directory, want a regular file")
	check(t, os.WriteFile(path, forge(`{"kind":"training","meta":{"Epoch":-1},"parts":[]}`), 0o644))
	_, err = Load(path)
	wantError(t, err, "checkpoint: "+path+": its header contradicts itself")
	check(t, os.WriteFile(path, forge(`{"kind":"training","meta":{"Epoch":1.5},"parts":[]}`), 0o644))
	if _, err = Load(path); err == nil || !strings.HasPrefix(err.Error(), "checkpoint: "+path+": json: ") {
		t.Errorf("got %v", err)
	}
}
