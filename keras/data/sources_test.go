package data_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/data"
)

// write makes files with a content in a directory of their own.
func write(t testing.TB, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for path, content := range files {
		path = filepath.Join(dir, path)
		check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

type passenger struct {
	Age      float32 `csv:"age,default=-1"`
	Class    uint8   `csv:"pclass"`
	Survived bool    `csv:"survived"`
	Name     string
	Note     string `csv:"-"`
	Fare     *int   `csv:"-"`
}

const passengers = "\ufeffpclass,Name,age,survived\r\n1,\"O'Connor, Ann\",29.5,1\n3,\"two\nlines\",,false\n"

func TestCSV(t *testing.T) {
	noLeaks(t)
	dir := write(t, map[string]string{"p.csv": passengers, "numbers.tsv": "1\t2.5\n-3\t 4e2 \n", "empty.csv": "", "header.csv": "a,b\n"})
	path := filepath.Join(dir, "p.csv")
	want := []passenger{{Age: 29.5, Class: 1, Survived: true, Name: "O'Connor, Ann"}, {Age: -1, Class: 3, Name: "two\nlines"}}
	d := data.CSV[passenger](path, data.CSVOptions{})
	for number := range 2 {
		if got := epoch(t, d, number); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if got := epochFrom(t, d, 0, 1); !reflect.DeepEqual(got, want[1:]) {
		t.Errorf("from 1: got %v, want %v", got, want[1:])
	}
	if got, want := fmt.Sprintf("%q", epoch(t, data.CSV[[]string](path, data.CSVOptions{}), 0)), `[["1" "O'Connor, Ann" "29.5" "1"] ["3" "two\nlines" "" "false"]]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	tsv := data.CSVOptions{Comma: '\t', NoHeader: true}
	if got := fmt.Sprint(epoch(t, data.CSV[[]float32](filepath.Join(dir, "numbers.tsv"), tsv), 0)); got != "[[1 2.5] [-3 400]]" {
		t.Errorf("got %s", got)
	}
	type pair struct{ A, B float64 }
	if got := fmt.Sprint(epoch(t, data.CSV[pair](filepath.Join(dir, "numbers.tsv"), tsv), 0)); got != "[{1 2.5} {-3 400}]" {
		t.Errorf("got %s", got)
	}
	if got := epoch(t, data.CSV[[]int32](filepath.Join(dir, "header.csv"), data.CSVOptions{}), 0); len(got) != 0 {
		t.Errorf("got %v of a header alone", got)
	}
	if got := epoch(t, data.CSV[[]int32](filepath.Join(dir, "empty.csv"), data.CSVOptions{NoHeader: true}), 0); len(got) != 0 {
		t.Errorf("got %v of nothing", got)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write([]byte(passengers))
	w.Close()
	zipped := filepath.Join(write(t, map[string]string{"p.csv.gz": z.String()}), "p.csv.gz")
	if got := epoch(t, data.CSV[passenger](zipped, data.CSVOptions{Compression: "GZIP"}), 0); !reflect.DeepEqual(got, want) {
		t.Errorf("compressed: got %v, want %v", got, want)
	}
}

func TestCSVErrors(t *testing.T) {
	noLeaks(t)
	dir := write(t, map[string]string{
		"p.csv": passengers, "empty.csv": "",
		"age.csv":    "pclass,Name,age,survived\n1,a,2,1\n1,a,two,1\n",
		"class.csv":  "pclass,Name,age,survived\n256,a,2,1\n",
		"none.csv":   "pclass,Name,age,survived\n,a,2,1\n",
		"ragged.csv": "a,b\n1,2\n1,2,3\n",
		"quote.csv":  "a,b\n1,\"2\n3,4\n",
		"long.csv":   "a\n\"" + strings.Repeat("x", 1<<18) + "\n",
		"bare.csv":   "a,b\n1,2\"\n",
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	row := func(name string) error {
		_, err := data.CSV[passenger](at(name), data.CSVOptions{}).Collect(background)
		return err
	}
	numbers := func(name string, o data.CSVOptions) error {
		_, err := data.CSV[[]int32](at(name), o).Collect(background)
		return err
	}
	type odd struct{ X []int }
	type other struct {
		Ages float32 `csv:"ages"`
	}
	type many struct{ A, B, C, D, E string }
	collect := func(f func() error) error { return f() }
	for want, err := range map[string]error{
		at("age.csv") + `: line 3: column "age": got "two", want float32`:                      row("age.csv"),
		at("class.csv") + `: line 2: column "pclass": got "256", which uint8 has no place for`: row("class.csv"),
		at("none.csv") + `: line 2: column "pclass": got "", want uint8`:                       row("none.csv"),
		at("empty.csv") + `: it is empty, want a line with the names of the columns`:           row("empty.csv"),
		at("ragged.csv") + `: line 3: got 3 fields, want 2 as in the first line`:               numbers("ragged.csv", data.CSVOptions{}),
		at("quote.csv") + `: line 3: extraneous or missing " in quoted-field`:                  numbers("quote.csv", data.CSVOptions{}),
		at("bare.csv") + `: line 2: bare " in non-quoted-field`:                                numbers("bare.csv", data.CSVOptions{}),
		at("long.csv") + `: a record has more than 1000 bytes`:                                 numbers("long.csv", data.CSVOptions{MaxRecord: 1000}),
		at("ragged.csv") + `: line 1: column 0: got "a", want int32`:                           numbers("ragged.csv", data.CSVOptions{NoHeader: true}),
		"no such file": numbers("nowhere.csv", data.CSVOptions{}),
		at("p.csv") + ": a record cannot become map[string]int, want a struct or a slice of strings or numbers": collect(func() error {
			_, err := data.CSV[map[string]int](at("p.csv"), data.CSVOptions{}).Collect(background)
			return err
		}),
		": field X of data_test.odd is []int, want a string, bool, integer or float": collect(func() error {
			_, err := data.CSV[odd](at("p.csv"), data.CSVOptions{}).Collect(background)
			return err
		}),
		`: there is no column "ages" for field Ages; there are ["pclass" "Name" "age" "survived"]`: collect(func() error {
			_, err := data.CSV[other](at("p.csv"), data.CSVOptions{}).Collect(background)
			return err
		}),
		`: got 4 columns, want one for each field of data_test.many`: collect(func() error {
			_, err := data.CSV[many](at("p.csv"), data.CSVOptions{NoHeader: true}).Collect(background)
			return err
		}),
	} {
		wantError(t, err, want)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add(passengers)
	f.Add("pclass,age,survived,Name\n1,2,1,\n")
	f.Add("a\n\"")
	path := filepath.Join(f.TempDir(), "f.csv")
	f.Fuzz(func(t *testing.T, text string) {
		check(t, os.WriteFile(path, []byte(text), 0o600))
		for _, err := range data.CSV[passenger](path, data.CSVOptions{}).Epoch(background, 0, 0) {
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("got error %v, want the name of the file", err)
			}
		}
	})
}

// TestNumPy reads what NumPy has written: each element type, both orders of
// bytes and of axes.
func TestNumPy(t *testing.T) {
	all, err := data.LoadNPZ("testdata/arrays.npz")
	check(t, err)
	for name, want := range map[string]string{
		"bool": "bool", "uint8": "uint8", "int8": "int32", "int16": "int32", "uint16": "int32", "int32": "int32", ">i2": "int32",
		"uint32": "int64", "int64": "int64", "float16": "float16", "float32": "float32", "float64": "float64", ">f4": "float32",
	} {
		x := all[name]
		if x == nil {
			t.Fatalf("there is no array %s of %d", name, len(all))
		}
		v, err := x.Values()
		check(t, err)
		numbers := []float32{0, 1, 2, 3, 4, 5}
		if name == "bool" {
			numbers = []float32{0, 1, 1, 1, 1, 1}
		}
		if got := x.Type().String(); got != want+"[2 3]" || !slices.Equal(v, numbers) {
			t.Errorf("%s: got %s %v, want %s[2 3] %v", name, got, v, want, numbers)
		}
	}
	if len(all) != 13 {
		t.Errorf("got %d arrays, want 13", len(all))
	}
	x, err := data.LoadNPY("testdata/matrix.npy")
	check(t, err)
	if want := "float32[3 2]\n[[0 1]\n [2 3]\n [4 5]]"; fmt.Sprint(x) != want {
		t.Errorf("got %v, want %s", x, want)
	}
}

// npy is the file of an array.
func npy(descr, shape, body string) string {
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", descr, shape)
	return "\x93NUMPY\x01\x00" + string(binary.LittleEndian.AppendUint16(nil, uint16(len(text)))) + text + body
}

func TestNumPyErrors(t *testing.T) {
	good := npy("<f4", "2, 1", "abcdefgh")
	dir := write(t, map[string]string{
		"good": good, "cut": good[:len(good)-1], "more": good + "x", "text": "no array", "huge": npy("<f4", "1099511627776, 1048576", ""),
		"big": npy("<f8", "100000", "few"), "string": npy("<U5", "1", "abcde"), "unsigned": npy("<u8", "1", "abcdefgh"), "bool": npy("|b1", "2", "\x01\x02"),
		"wide": npy("|i1", "3", "\x01\xff\x80"), "none": npy("<f4", "0, 5", ""), "scalar": npy(">i4", "", "\x00\x00\x01\x02"), "odd": npy("", "1", ""),
		"overflow": npy("<f4", "4611686018427387904, 4", ""),
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, want := range map[string]string{
		"good": "float32[2 1]", "wide": "int32[3] [   1   -1 -128]", "none": "float32[0 5]", "scalar": "int32[] 258",
	} {
		x, err := data.LoadNPY(at(name))
		if err != nil || !strings.HasPrefix(fmt.Sprint(x), want) {
			t.Errorf("%s: got %v, %v, want %s", name, x, err, want)
		}
	}
	for name, want := range map[string]string{
		"cut":      ": truncated: got 7 bytes of data, want 8",
		"more":     ": got another number of bytes than the 8 of its shape",
		"text":     ": it does not start as NumPy's arrays do",
		"huge":     ": <f4[1099511627776 1048576] has more than ",
		"big":      ": <f8[100000] has more than ",
		"overflow": ": got shape (4611686018427387904, 4), want at most 32 axes of less than 2^47",
		"string":   `: got elements of type "<U5", want bools, integers`,
		"unsigned": `: got elements of type "<u8"`,
		"bool":     ": got a bool that is neither 0 nor 1",
		"odd":      `: got elements of type "", want numbers`,
	} {
		_, err := data.LoadNPY(at(name))
		wantError(t, err, at(name)+want)
	}
	_, err := data.LoadNPY(dir)
	wantError(t, err, "it is a directory, want a regular file")
	_, err = data.LoadNPY(at("nowhere"))
	wantError(t, err, "no such file")

	archive := func(method uint16, members map[string]string) string {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for name, content := range members {
			w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: method})
			check(t, err)
			w.Write([]byte(content))
		}
		check(t, z.Close())
		return b.String()
	}
	bomb := npy("<f4", "1048576", string(make([]byte, 4<<20)))
	stored := archive(zip.Store, map[string]string{"a.npy": good})
	for content, want := range map[string]string{
		"no zip": "it does not start as a zip archive does",
		archive(zip.Deflate, map[string]string{"a.npy": bomb}):         "array a: <f4[1048576] has more than 1048576 bytes",
		archive(zip.Deflate, map[string]string{"a.npy": bomb[:1<<20]}): "array a: <f4[1048576] has more than 1048576 bytes",
		archive(zip.Store, map[string]string{"a.txt": good}):           `got a member named "a.txt", want arrays, which end in .npy`,
		archive(zip.Store, map[string]string{"../a.npy": good}):        `got a member named "../a.npy", which points out of the archive`,
		archive(zip.Store, map[string]string{"a.npy": "no array"}):     "array a: it does not start as NumPy's arrays do",
		strings.Replace(stored, "abcdefgh", "abcdefgx", 1):             "array a: zip: checksum error",
		stored[:len(stored)-30]:                                        "zip: not a valid zip file",
	} {
		path := filepath.Join(write(t, map[string]string{"a.npz": content}), "a.npz")
		_, err := data.LoadNPZ(path, 1<<20)
		wantError(t, err, path+": "+want)
	}
	// Two arrays that only together are too large.
	half := npy("<f4", "150000", string(make([]byte, 600_000)))
	path := filepath.Join(write(t, map[string]string{"a.npz": archive(zip.Deflate, map[string]string{"a.npy": half, "b.npy": half})}), "a.npz")
	if _, err := data.LoadNPZ(path, 1_000_000); err == nil || !strings.Contains(err.Error(), "array b: <f4[150000] has more than 400000 bytes") {
		t.Errorf("got error %v", err)
	}
	if all, err := data.LoadNPZ(path, 1_200_000); err != nil || len(all) != 2 {
		t.Errorf("got %d arrays, %v", len(all), err)
	}
}

func FuzzNPY(f *testing.F) {
	f.Add([]byte(npy("<f4", "2, 1", "abcdefgh")))
	f.Add([]byte(npy("|i1", "3", "abc")))
	f.Add([]byte(strings.Replace(npy(">i4", "2, 1", "abcdefgh"), "False", "True ", 1)))
	path := filepath.Join(f.TempDir(), "f.npy")
	f.Fuzz(func(t *testing.T, b []byte) {
		check(t, os.WriteFile(path, b, 0o600))
		x, err := data.LoadNPY(path)
		if err == nil && x.Type().Bytes() > 4*len(b) {
			t.Errorf("got %v of %d bytes", x.Type(), len(b))
		}
	})
}

func FuzzNPZ(f *testing.F) {
	b, err := os.ReadFile("testdata/arrays.npz")
	check(f, err)
	f.Add(b)
	path := filepath.Join(f.TempDir(), "f.npz")
	f.Fuzz(func(t *testing.T, b []byte) {
		check(t, os.WriteFile(path, b, 0o600))
		all, err := data.LoadNPZ(path, 1<<20)
		n := 0
		for _, x := range all {
			n += x.Type().Bytes()
		}
		if err == nil && n > 4<<20 {
			t.Errorf("got %d bytes, want at most 4 times the limit", n)
		}
	})
}

func TestTextFromDirectory(t *testing.T) {
	noLeaks(t)
	dir := write(t, map[string]string{"pos/1.txt": "good", "pos/0.txt": "fine", "neg/2.txt": "bad", "neg/readme.md": "?", "neg/sub/3.TXT": "worse", "neg/empty.txt": ""})
	inOrder := data.DirectoryOptions{Shuffle: new(false)}
	texts, classes, err := data.TextFromDirectory(dir, inOrder)
	check(t, err)
	if got, want := fmt.Sprint(classes, epoch(t, texts, 0)), "[neg pos] [{bad 0} { 0} {worse 0} {fine 1} {good 1}]"; got != want || texts.Len() != 5 {
		t.Errorf("got %s, want %s", got, want)
	}
	mixed, _, err := data.TextFromDirectory(dir, data.DirectoryOptions{Seed: 1})
	check(t, err)
	a, b := fmt.Sprint(epoch(t, mixed, 0)), fmt.Sprint(epoch(t, mixed, 1))
	if a == b || len(a) != len(b) {
		t.Errorf("got %s, then %s", a, b)
	}
	// Links to directories, also those that go in a circle.
	if os.Symlink(dir, filepath.Join(dir, "pos", "all")) == nil {
		if texts, _, err = data.TextFromDirectory(dir, inOrder); err != nil || texts.Len() != 5 {
			t.Errorf("got %d files, %v, want links left out", texts.Len(), err)
		}
		_, _, err = data.TextFromDirectory(dir, data.DirectoryOptions{FollowLinks: true})
		wantError(t, err, "links may go in a circle")
	}
	check(t, os.Remove(filepath.Join(dir, "pos", "1.txt")))
	_, err = texts.Collect(background)
	wantError(t, err, filepath.Join(dir, "pos", "1.txt"))
}

func TestLines(t *testing.T) {
	noLeaks(t)
	dir := write(t, map[string]string{"a": "one\r\ntwo\n\nthree", "b": "four\n", "c": ""})
	got := epoch(t, data.Lines(filepath.Join(dir, "a"), filepath.Join(dir, "c"), filepath.Join(dir, "b")), 0)
	if want := `["one" "two" "" "three" "four"]`; fmt.Sprintf("%q", got) != want {
		t.Errorf("got %q, want %s", got, want)
	}
	path := filepath.Join(write(t, map[string]string{"long": "x\n" + strings.Repeat("x", 16<<20)}), "long")
	_, err := data.Lines(path).Collect(background)
	wantError(t, err, path+": line 2: bufio.Scanner: token too long")
}

// TestCSVHeaderAlone: a table without lines still must have the columns.
func TestCSVHeaderAlone(t *testing.T) {
	dir := write(t, map[string]string{"good.csv": "pclass,Name,age,survived\n", "bad.csv": "hello\n"})
	if got := epoch(t, data.CSV[passenger](filepath.Join(dir, "good.csv"), data.CSVOptions{}), 0); len(got) != 0 {
		t.Errorf("got %v, want nothing", got)
	}
	_, err := data.CSV[passenger](filepath.Join(dir, "bad.csv"), data.CSVOptions{}).Collect(background)
	wantError(t, err, `bad.csv: there is no column "age" for field Age; there are ["hello"]`)
}
