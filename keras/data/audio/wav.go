// Package audio reads sound files as tensors, for layers such as
// preprocessing.MelSpectrogram and preprocessing.STFTSpectrogram.
package audio

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// MaxBytes is how many bytes the numbers of a sound may take, unless Options says
// otherwise: 12 hours of one channel at 24 kHz.
const MaxBytes keras.Bytes = 4 << 30

// Options limits what is read.
type Options struct {
	MaxBytes keras.Bytes // of the float32 numbers; default: MaxBytes
}

// Sound is what a file has.
type Sound struct {
	Samples *keras.Tensor // float32 [samples channels]; integers are divided by 2^(bits-1), so that they are in [-1, 1)
	Rate    int           // samples a second
}

// LoadWAV reads a WAV file (tf.io.read_file and tf.audio.decode_wav, which reads 16 bits
// alone): PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits, of any number of
// channels. Compressed sound is an error. A file that ends within its samples, as one that
// is still being written, has those that are complete.
func LoadWAV(path string, options ...Options) (*Sound, error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := decode(bufio.NewReaderSize(f, 1<<16), size, options)
	if err != nil {
		return nil, safeio.Short(fmt.Errorf("%s: %w", path, err))
	}
	return s, nil
}

// DecodeWAV is LoadWAV of a file's contents.
func DecodeWAV(r io.Reader, options ...Options) (*Sound, error) {
	return decode(r, math.MaxInt64, options)
}

// format is the chunk "fmt ".
type format struct {
	code     uint16 // 1: integers, 3: floats
	channels int
	rate     int
	bits     int
}

const extensible = 0xFFFE // the code is in the chunk's extension

// decode reads a file of at most size bytes.
func decode(r io.Reader, size int64, options []Options) (*Sound, error) {
	limit := MaxBytes
	if len(options) > 0 && options[0].MaxBytes > 0 {
		limit = options[0].MaxBytes
	}
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil || string(head[:4]) != "RIFF" || string(head[8:]) != "WAVE" {
		return nil, errors.New("it is no WAV file: it does not begin with RIFF … WAVE")
	}
	var form *format
	for {
		var chunk [8]byte
		if _, err := io.ReadFull(r, chunk[:]); err != nil {
			return nil, errors.New("it has no samples: there is no chunk \"data\"")
		}
		name, n := string(chunk[:4]), int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch name {
		case "fmt ":
			var err error
			if form, err = readFormat(r, n); err != nil {
				return nil, err
			}
		case "data":
			if form == nil {
				return nil, errors.New("the samples come before their format")
			}
			return form.read(r, min(n, size), limit)
		default:
			if _, err := io.CopyN(io.Discard, r, n+n%2); err != nil {
				return nil, fmt.Errorf("it ends within the chunk %q", name)
			}
		}
	}
}

// readFormat reads a chunk "fmt " of n bytes.
func readFormat(r io.Reader, n int64) (*format, error) {
	if n < 16 || n > 1<<12 {
		return nil, fmt.Errorf("the chunk \"fmt \" has %d bytes, want 16 to 4096", n)
	}
	b := make([]byte, n+n%2)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, errors.New("it ends within the chunk \"fmt \"")
	}
	u16 := func(at int) uint16 { return binary.LittleEndian.Uint16(b[at:]) }
	f := &format{code: u16(0), channels: int(u16(2)), rate: int(binary.LittleEndian.Uint32(b[4:])), bits: int(u16(14))}
	if f.code == extensible && n >= 26 {
		f.code = u16(24)
	}
	ok := f.code == 1 && (f.bits == 8 || f.bits == 16 || f.bits == 24 || f.bits == 32) || f.code == 3 && (f.bits == 32 || f.bits == 64)
	switch {
	case !ok:
		return nil, fmt.Errorf("its samples have the format %d and %d bits, want integers (1) of 8, 16, 24 or 32 bits or floats (3) of 32 or 64", f.code, f.bits)
	case f.channels == 0 || f.rate == 0:
		return nil, fmt.Errorf("it has %d channels and %d samples a second, want 1 or more", f.channels, f.rate)
	}
	return f, nil
}

// read reads samples of at most n bytes.
func (f *format) read(r io.Reader, n int64, limit keras.Bytes) (*Sound, error) {
	width := int64(f.bits/8) * int64(f.channels)
	if most := n / width * int64(f.channels); most > int64(limit)/4 {
		return nil, fmt.Errorf("it has %d numbers, want at most %d: see Options.MaxBytes", most, int64(limit)/4)
	}
	var numbers []float32 // grows with what is read, not with what the file says
	buffer := make([]byte, width*max(1, 1<<16/width))
	for left := n / width * width; left > 0; {
		k, err := io.ReadFull(r, buffer[:min(left, int64(len(buffer)))])
		numbers = f.floats(numbers, buffer[:int64(k)/width*width])
		left -= int64(k)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return &Sound{Samples: keras.NewTensor(numbers, len(numbers)/f.channels, f.channels), Rate: f.rate}, nil
}

// floats appends samples as float32.
func (f *format) floats(dst []float32, b []byte) []float32 {
	le := binary.LittleEndian
	switch {
	case f.code == 3 && f.bits == 32:
		for ; len(b) > 0; b = b[4:] {
			dst = append(dst, math.Float32frombits(le.Uint32(b)))
		}
	case f.code == 3:
		for ; len(b) > 0; b = b[8:] {
			dst = append(dst, float32(math.Float64frombits(le.Uint64(b))))
		}
	case f.bits == 8: // the only one without a sign
		for _, v := range b {
			dst = append(dst, (float32(v)-128)/(1<<7))
		}
	case f.bits == 16:
		for ; len(b) > 0; b = b[2:] {
			dst = append(dst, float32(int16(le.Uint16(b)))/(1<<15))
		}
	case f.bits == 24:
		for ; len(b) > 0; b = b[3:] {
			dst = append(dst, float32(int32(uint32(b[0])<<8|uint32(b[1])<<16|uint32(b[2])<<24)>>8)/(1<<23))
		}
	default:
		for ; len(b) > 0; b = b[4:] {
			dst = append(dst, float32(float64(int32(le.Uint32(b)))/(1<<31)))
		}
	}
	return dst
}
