package data

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// CSVOptions has the settings of CSV.
type CSVOptions struct {
	Comma       rune        // between fields; default: ','
	NoHeader    bool        // the first line is a record, not the names of columns
	Compression string      // "", "GZIP" or "ZLIB"
	MaxRecord   keras.Bytes // bytes of a record; default: 1 MiB
}

// CSV returns the records of a file of comma-separated values (tf.data:
// experimental.CsvDataset and make_csv_dataset). T says what a record becomes:
//
//   - []string, or a slice of numbers: its fields;
//   - a struct: each exported field gets the column that its tag names, or that
//     has its name, or, without a header, that of its place. The tag may have
//     what an empty field stands for, and "-" leaves a field out.
//
// For example:
//
//	type Passenger struct {
//		Age      float32 `csv:"age,default=-1"`
//		Class    int     `csv:"pclass"`
//		Survived bool    `csv:"survived"`
//	}
//
// Fields of structs are strings, bools, integers and floats. Errors name the
// file, the line and the column.
func CSV[T any](path string, o CSVOptions) *Dataset[T] {
	if o.Comma == 0 {
		o.Comma = ','
	}
	if o.MaxRecord == 0 {
		o.MaxRecord = 1 << 20
	}
	return fromFile(path, func(_ pipeline.Start, f io.Reader, yield func(T, error) bool) error {
		return readCSV(f, o, yield)
	})
}

// readCSV yields the records of a file until there are none, or the reader has
// left.
func readCSV[T any](f io.Reader, o CSVOptions, yield func(T, error) bool) error {
	f, err := decompress(bufio.NewReaderSize(f, 1<<16), o.Compression)
	if err != nil {
		return err
	}
	limit := &recordLimit{r: f, max: int64(o.MaxRecord)}
	r := csv.NewReader(limit)
	r.Comma, r.ReuseRecord = o.Comma, true
	next := func() ([]string, error) {
		limit.left = int64(o.MaxRecord) + 1<<16 // csv reads ahead
		fields, err := r.Read()
		var parse *csv.ParseError
		switch {
		case errors.Is(err, csv.ErrFieldCount):
			line, _ := r.FieldPos(0)
			return nil, fmt.Errorf("line %d: got %d fields, want %d as in the first line", line, len(fields), r.FieldsPerRecord)
		case errors.As(err, &parse):
			return nil, fmt.Errorf("line %d: %w", parse.Line, parse.Err)
		}
		return fields, err
	}
	var header []string
	var d *csvDecoder
	if !o.NoHeader {
		if header, err = next(); err == io.EOF {
			return errors.New("it is empty, want a line with the names of the columns")
		} else if err != nil {
			return err
		}
		header = slices.Clone(header)
		header[0] = strings.TrimPrefix(header[0], "\ufeff")
		if d, err = newCSVDecoder(reflect.TypeFor[T](), header, len(header)); err != nil { // also where no lines follow
			return err
		}
	}
	for {
		fields, err := next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if d == nil {
			if d, err = newCSVDecoder(reflect.TypeFor[T](), header, len(fields)); err != nil {
				return err
			}
		}
		var x T
		if column, err := d.decode(reflect.ValueOf(&x).Elem(), fields); err != nil {
			line, _ := r.FieldPos(column)
			return fmt.Errorf("line %d: column %s: %w", line, d.column(column), err)
		}
		if !yield(x, nil) {
			return nil
		}
	}
}

// recordLimit is an error when a record is too long: a quote that is not closed
// must not take the whole file into memory.
type recordLimit struct {
	r         io.Reader
	left, max int64
}

func (l *recordLimit) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("a record has more than %d bytes", l.max)
	}
	n, err := l.r.Read(b[:min(int64(len(b)), l.left)])
	l.left -= int64(n)
	return n, err
}

// csvDecoder makes values of one type of records.
type csvDecoder struct {
	header []string
	list   bool // all fields, or those of a struct:
	fields []csvField
}

type csvField struct {
	index    int // in the struct
	column   int
	whenNone string
	has      bool // whenNone
}

func newCSVDecoder(t reflect.Type, header []string, columns int) (*csvDecoder, error) {
	d := &csvDecoder{header: header}
	switch {
	case t.Kind() == reflect.Slice && parses(t.Elem().Kind()):
		d.list = true
		return d, nil
	case t.Kind() != reflect.Struct:
		return nil, fmt.Errorf("a record cannot become %v, want a struct or a slice of strings or numbers", t)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("csv"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if !parses(f.Type.Kind()) {
			return nil, fmt.Errorf("field %s of %v is %v, want a string, bool, integer or float", f.Name, t, f.Type)
		}
		if name == "" {
			name = f.Name
		}
		at := csvField{index: i, column: len(d.fields)}
		at.whenNone, at.has = strings.CutPrefix(option, "default=")
		if header != nil {
			if at.column = slices.Index(header, name); at.column < 0 {
				return nil, fmt.Errorf("there is no column %q for field %s; there are %s", name, f.Name, safeio.Text(fmt.Sprintf("%q", header)))
			}
		} else if at.column >= columns {
			return nil, fmt.Errorf("got %d columns, want one for each field of %v", columns, t)
		}
		d.fields = append(d.fields, at)
	}
	return d, nil
}

// column names a column in errors.
func (d *csvDecoder) column(i int) string {
	if d.header != nil && i < len(d.header) {
		return safeio.Quote(d.header[i])
	}
	return strconv.Itoa(i)
}

// decode fills in v. It returns the column that an error is of.
func (d *csvDecoder) decode(v reflect.Value, record []string) (int, error) {
	if d.list {
		v.Set(reflect.MakeSlice(v.Type(), len(record), len(record)))
		for i, text := range record {
			if err := parse(v.Index(i), text); err != nil {
				return i, err
			}
		}
		return 0, nil
	}
	for _, f := range d.fields {
		text := record[f.column]
		if text == "" && f.has {
			text = f.whenNone
		}
		if err := parse(v.Field(f.index), text); err != nil {
			return f.column, err
		}
	}
	return 0, nil
}

func parses(k reflect.Kind) bool {
	return k == reflect.String || k == reflect.Bool || k >= reflect.Int && k <= reflect.Uint64 || k == reflect.Float32 || k == reflect.Float64
}

// parse sets v to what a text says.
func parse(v reflect.Value, text string) error {
	trimmed := strings.TrimSpace(text)
	var err error
	switch k := v.Kind(); {
	case k == reflect.String:
		v.SetString(strings.Clone(text)) // the record is used again
	case k == reflect.Bool:
		var x bool
		if x, err = strconv.ParseBool(trimmed); err == nil {
			v.SetBool(x)
		}
	case k <= reflect.Int64:
		var x int64
		if x, err = strconv.ParseInt(trimmed, 10, v.Type().Bits()); err == nil {
			v.SetInt(x)
		}
	case k <= reflect.Uint64:
		var x uint64
		if x, err = strconv.ParseUint(trimmed, 10, v.Type().Bits()); err == nil {
			v.SetUint(x)
		}
	default:
		var x float64
		if x, err = strconv.ParseFloat(trimmed, v.Type().Bits()); err == nil {
			v.SetFloat(x)
		}
	}
	if err != nil {
		var n *strconv.NumError
		if errors.As(err, &n) && n.Err == strconv.ErrRange {
			return fmt.Errorf("got %s, which %v has no place for", safeio.Quote(text), v.Type())
		}
		return fmt.Errorf("got %s, want %v", safeio.Quote(text), v.Type())
	}
	return nil
}
