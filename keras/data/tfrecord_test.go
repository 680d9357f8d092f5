package data_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/internal/tfrecord"
)

// example is the i-th one of testdata/golden.py.
func example(i int) data.Example {
	image := []byte{}
	for k := range i {
		image = append(image, byte(k))
	}
	return data.Example{
		"image":   {Bytes: [][]byte{image}},
		"box":     {Floats: []float32{float32(i) + 0.5, -1e-30, float32(math.Inf(1))}},
		"label":   {Ints: []int64{int64(i), int64(-i), 1 << 62}},
		"names":   {Bytes: [][]byte{[]byte("a"), {}, []byte("ä")}},
		"empty":   {Ints: []int64{}},
		"nothing": {},
	}
}

// TestTensorFlow reads files that TensorFlow has written, and writes what it
// would write.
func TestTensorFlow(t *testing.T) {
	for name, compression := range map[string]string{"examples.tfrecord": "", "examples.gz.tfrecord": "GZIP", "examples.zlib.tfrecord": "ZLIB"} {
		path := filepath.Join("testdata", name)
		records := epoch(t, data.TFRecordFiles([]string{path, path}, data.TFRecordOptions{Compression: compression}), 0)
		if len(records) != 6 {
			t.Fatalf("%s: got %d records of two files, want 6", name, len(records))
		}
		var file bytes.Buffer
		w := data.NewTFRecordWriter(&file)
		for i, r := range records {
			e, err := data.ParseExample(r)
			check(t, err)
			if want := example(i % 3); !reflect.DeepEqual(e, want) {
				t.Errorf("%s: record %d: got %v, want %v", name, i, e, want)
			}
			if i < 3 {
				check(t, w.Write(e.Marshal()))
			}
		}
		want, err := os.ReadFile(filepath.Join("testdata", "examples.tfrecord"))
		check(t, err)
		if !bytes.Equal(file.Bytes(), want) {
			t.Errorf("%s: the examples are written as\n%q, want\n%q", name, file.Bytes(), want)
		}
	}
}

func TestExampleFields(t *testing.T) {
	e := example(2)
	if x, err := data.Numbers[float32](e, "box", 3); err != nil || x[0] != 2.5 {
		t.Errorf("got %v, %v", x, err)
	}
	if x, err := data.Numbers[int64](e, "empty", -1); err != nil || x == nil || len(x) != 0 {
		t.Errorf("got %v, %v", x, err)
	}
	if b, err := e.Blob("image"); err != nil || !slices.Equal(b, []byte{0, 1}) {
		t.Errorf("got %v, %v", b, err)
	}
	for want, get := range map[string]func() error{
		`feature "label" holds 3 integers, want 2`:                  func() error { _, err := data.Numbers[int64](e, "label", 2); return err },
		`feature "label" holds integers, want floats`:               func() error { _, err := data.Numbers[float32](e, "label", 2); return err },
		`feature "nothing" holds nothing, want integers`:            func() error { _, err := data.Numbers[int64](e, "nothing", 0); return err },
		`there is no feature "lable"; there are ["box" "empty" "im`: func() error { _, err := data.Numbers[int64](e, "lable", 2); return err },
		`feature "names" holds 3 strings of bytes, want 1`:          func() error { _, err := e.Blob("names"); return err },
		`feature "box" holds floats, want bytes`:                    func() error { _, err := e.Blob("box"); return err },
		`there is no feature "x"`:                                   func() error { _, err := e.Blob("x"); return err },
	} {
		wantError(t, get(), want)
	}
}

// TestParseExampleForms: lists that are not packed, fields that are not known,
// and what no Example is.
func TestParseExampleForms(t *testing.T) {
	entry := func(feature string) []byte {
		e := "\x0a\x01a\x12" + string(rune(len(feature))) + feature
		m := "\x0a" + string(rune(len(e))) + e
		return []byte("\x0a" + string(rune(len(m))) + m)
	}
	for feature, want := range map[string]data.Feature{
		"\x1a\x04\x08\x05\x08\x06":           {Ints: []int64{5, 6}},          // one by one
		"\x1a\x07\x0a\x02\x05\x06\x0a\x01\a": {Ints: []int64{5, 6, 7}},       // in two packs
		"\x12\x05\x0d\x00\x00\x80\x3f":       {Floats: []float32{1}},         // one by one
		"\x12\x00":                           {Floats: []float32{}},          // none
		"\x1a\x02\x08\x05\x0a\x03\x0a\x01x":  {Bytes: [][]byte{[]byte("x")}}, // the last list counts
		"\x20\x01\x0a\x03\x0a\x01x":          {Bytes: [][]byte{[]byte("x")}}, // an unknown field
	} {
		e, err := data.ParseExample(entry(feature))
		check(t, err)
		if !reflect.DeepEqual(e["a"], want) {
			t.Errorf("%q: got %v, want %v", feature, e["a"], want)
		}
	}
	for text, want := range map[string]string{
		"\x0a":         "tf.train.Example: ",
		"\x0a\x05\x0a": "tf.train.Example: ",
		string(entry("\x12\x05\x0a\x03\x00\x00\x00")): `tf.train.Example: feature "a": got 3 bytes of floats, want a multiple of 4`,
		string(entry("\x12\x02\x08\x01")):             `tf.train.Example: feature "a": got a value of wire type 0 in a list of floats`,
		string(entry("\x1a\x03\x0a\x01\x80")):         `tf.train.Example: feature "a": `,
	} {
		_, err := data.ParseExample([]byte(text))
		wantError(t, err, want)
	}
}

func TestTFRecordErrors(t *testing.T) {
	noLeaks(t)
	good, err := os.ReadFile(filepath.Join("testdata", "examples.tfrecord"))
	check(t, err)
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, content, 0o600))
		return path
	}
	flipped := bytes.Clone(good)
	flipped[len(good)-7] ^= 1
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	var head bytes.Buffer
	check(t, data.NewTFRecordWriter(&head).Write(make([]byte, 1<<20)))
	z.Write(head.Bytes())
	z.Close()
	for want, c := range map[string]struct {
		path string
		o    data.TFRecordOptions
		n    int
	}{
		"no such file": {filepath.Join(dir, "none"), data.TFRecordOptions{}, 0},
		file("cut", good[:len(good)-1]) + ": record 2: truncated: got 3 bytes of its checksum, want 4":    {filepath.Join(dir, "cut"), data.TFRecordOptions{}, 2},
		file("flip", flipped) + ": record 2: its checksum is ":                                            {filepath.Join(dir, "flip"), data.TFRecordOptions{}, 2},
		file("text", []byte("these are no records")) + ": record 0: the checksum of its length is ":       {filepath.Join(dir, "text"), data.TFRecordOptions{}, 0},
		file("plain", good) + ": gzip: invalid header":                                                    {filepath.Join(dir, "plain"), data.TFRecordOptions{Compression: "GZIP"}, 0},
		file("small", good) + ": record 0: it has ":                                                       {filepath.Join(dir, "small"), data.TFRecordOptions{MaxRecord: 10}, 0},
		file("bomb", bomb.Bytes()) + ": record 0: it has 1048576 bytes, want at most 1000; see MaxRecord": {filepath.Join(dir, "bomb"), data.TFRecordOptions{Compression: "GZIP", MaxRecord: 1000}, 0},
		`Compression is "zip", want GZIP, ZLIB or nothing`:                                                {filepath.Join(dir, "plain"), data.TFRecordOptions{Compression: "zip"}, 0},
	} {
		got, err := read(data.TFRecordFiles([]string{c.path}, c.o).Epoch(background, 0, 0))
		if len(got) != c.n || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %d records and error %v, want %d and %s", len(got), err, c.n, want)
		}
	}
	if _, err := read(data.TFRecord(filepath.Join(dir, "plain")).Take(1).Epoch(background, 0, 0)); err != nil {
		t.Error(err)
	}
	// A cache that is damaged says so.
	d := data.Range(0, 3).CacheFile(file("cache", good[:20]), number())
	_, err = d.Collect(background)
	wantError(t, err, filepath.Join(dir, "cache")+": record 0: truncated")
}

func FuzzTFRecord(f *testing.F) {
	good, err := os.ReadFile(filepath.Join("testdata", "examples.tfrecord"))
	check(f, err)
	f.Add(good)
	f.Add(good[:100])
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "f")
		check(t, os.WriteFile(path, b, 0o600))
		var file bytes.Buffer
		w := data.NewTFRecordWriter(&file)
		for r, err := range data.TFRecord(path).Epoch(background, 0, 0) {
			if err != nil {
				if !strings.Contains(err.Error(), path) {
					t.Errorf("got error %v, want the name of the file", err)
				}
				return
			}
			check(t, w.Write(r))
		}
		if !bytes.Equal(file.Bytes(), b) {
			t.Errorf("read and written: got %q, want %q", file.Bytes(), b)
		}
	})
}

func FuzzExample(f *testing.F) {
	for i := range 3 {
		f.Add(example(i).Marshal())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := data.ParseExample(b)
		if err != nil {
			return
		}
		again, err := data.ParseExample(e.Marshal())
		check(t, err)
		if fmt.Sprint(again) != fmt.Sprint(e) {
			t.Errorf("got %v, want %v", again, e)
		}
	})
}

// TestRecordsThatClaimBytes reads files that say they have large records: memory
// is taken for what they have.
func TestRecordsThatClaimBytes(t *testing.T) {
	dir := t.TempDir()
	head := func(n uint64) []byte { // of a record of n bytes
		b := binary.LittleEndian.AppendUint64(nil, n)
		return binary.LittleEndian.AppendUint32(b, tfrecord.Checksum(b))
	}
	packed := func(n uint64) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write(append(head(n), make([]byte, 1<<20)...))
		check(t, err)
		check(t, z.Close())
		return b.Bytes()
	}
	for _, c := range []struct {
		file        []byte
		compression string
		want        string
	}{
		{append(head(1<<30), make([]byte, 10_000)...), "", "record 0: truncated: got 10000 bytes, want 1073741824: unexpected EOF"},
		{head(1<<30 + 1), "", "record 0: it has 1073741825 bytes, want at most 1073741824; see MaxRecord"},
		{packed(64 << 20), "GZIP", "record 0: truncated: got 1048576 bytes, want 67108864: unexpected EOF"},
		{packed(64<<20 + 1), "GZIP", "record 0: it has 67108865 bytes, want at most 67108864; see MaxRecord"},
	} {
		path := filepath.Join(dir, "records")
		check(t, os.WriteFile(path, c.file, 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := data.TFRecordFiles([]string{path}, data.TFRecordOptions{Compression: c.compression}).Collect(t.Context())
		runtime.ReadMemStats(&after)
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("got error %v, want %s", err, c.want)
		}
		// Of 1 MiB that there is, in buffers that double.
		if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
			t.Errorf("%s: took %d KiB", c.want, used>>10)
		}
	}
}
