package callbacks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mezzo-ml/mezzo/keras"
)

// CSVLogger writes the logs of each epoch to a file, with the same bytes as
// Keras's CSVLogger. The columns are epoch, from 0, and the logs of the first
// epoch by name. If that epoch had no validation, each log also gets a column
// val_…. A value that an epoch does not have is NA.
type CSVLogger struct {
	File      string // required
	Separator string // one character; default: ","
	Append    bool   // go on with a file that exists, without a new header, instead of replacing it

	file  *os.File
	state csvState
}

type csvState struct {
	Header  bool // to be written
	Columns []string
	Size    int64 // of the file
}

// Callback makes the hooks.
func (c *CSVLogger) Callback() keras.Callback {
	return keras.Callback{
		Name:          "CSVLogger",
		FirstRankOnly: true,
		TrainBegin: func(context.Context, *keras.Run) error {
			c.close()
			c.state = csvState{}
			if c.File == "" {
				return errors.New("callback CSVLogger: no File given")
			}
			if s := cmp.Or(c.Separator, ","); utf8.RuneCountInString(s) != 1 {
				return fmt.Errorf("callback CSVLogger: Separator: got %q, want one character", s)
			}
			return c.wrap(c.try())
		},
		EpochEnd: func(_ context.Context, r *keras.Run) error { return c.wrap(c.epochEnd(r.Epoch, r.Logs)) },
		TrainEnd: func(context.Context, *keras.Run) error { return c.wrap(errors.Join(c.open(), c.close())) },
		Save: func() (keras.CallbackState, error) {
			if err := c.open(); err != nil {
				return keras.CallbackState{}, err
			}
			// Or a checkpoint could know of rows that a power cut takes away.
			if err := c.file.Sync(); err != nil {
				return keras.CallbackState{}, err
			}
			return save(c.state)
		},
		Load: func(s keras.CallbackState) error {
			if err := load(s, &c.state); err != nil {
				return err
			}
			return c.resume()
		},
	}
}

func (c *CSVLogger) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("callback CSVLogger: %w", err)
}

// try finds out whether the file can be written, before the first step instead
// of after the first epoch. What is in it stays.
func (c *CSVLogger) try() error {
	f, err := os.OpenFile(c.File, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// open opens the file when it is first needed: until then it is not known
// whether training is resumed.
func (c *CSVLogger) open() (err error) {
	if c.file != nil {
		return nil
	}
	c.state.Header = true
	mode := os.O_TRUNC
	if c.Append {
		mode = os.O_APPEND
		if info, err := os.Stat(c.File); err == nil {
			c.state.Header, c.state.Size = info.Size() == 0, info.Size()
		}
	}
	c.file, err = os.OpenFile(c.File, os.O_CREATE|os.O_WRONLY|mode, 0o644)
	return err
}

// resume opens the file and takes off it what was written after the
// checkpoint.
func (c *CSVLogger) resume() (err error) {
	if c.file, err = os.OpenFile(c.File, os.O_WRONLY, 0o644); err != nil {
		return err
	}
	info, err := c.file.Stat()
	if err != nil {
		return err
	}
	if n := info.Size(); n < c.state.Size {
		return fmt.Errorf("%s: got %d bytes, want the %d that were written before the checkpoint; put it back, or leave the callback out", c.File, n, c.state.Size)
	}
	if err := c.file.Truncate(c.state.Size); err != nil {
		return err
	}
	_, err = c.file.Seek(0, io.SeekEnd)
	return err
}

func (c *CSVLogger) close() error {
	f := c.file
	c.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

func (c *CSVLogger) epochEnd(epoch int, logs keras.Logs) error {
	if err := c.open(); err != nil {
		return err
	}
	if c.state.Columns == nil {
		validated := false
		for _, l := range logs {
			c.state.Columns = append(c.state.Columns, l.Name)
			validated = validated || strings.HasPrefix(l.Name, "val_")
		}
		slices.Sort(c.state.Columns)
		if !validated {
			for _, k := range slices.Clone(c.state.Columns) {
				c.state.Columns = append(c.state.Columns, "val_"+k)
			}
		}
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true // as Python's csv.excel
	w.Comma, _ = utf8.DecodeRuneInString(cmp.Or(c.Separator, ","))
	if c.state.Header {
		w.Write(append([]string{"epoch"}, c.state.Columns...))
		c.state.Header = false
	}
	row := []string{strconv.Itoa(epoch)}
	for _, k := range c.state.Columns {
		value := "NA"
		if logs.Has(k) {
			value = repr(logs.Get(k))
		}
		row = append(row, value)
	}
	w.Write(row)
	w.Flush()
	if err := w.Error(); err != nil { // the Separator
		return err
	}
	n, err := c.file.Write(b.Bytes())
	c.state.Size += int64(n)
	return err
}
