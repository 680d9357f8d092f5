package saving

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// The members of a `.keras` file.
const (
	metadataFile = "metadata.json"
	configFile   = "config.json"
	weightsFile  = "model.weights.h5"
)

// What Load reads of the texts in a file, which may be compressed a thousand
// times.
const (
	maxConfig = 16 << 20 // bytes of config.json, by default
	maxValues = 1 << 20  // values and keys in config.json, up to that size
	maxNested = 256      // lists and objects in config.json within one another
	maxPacked = 16 << 20 // bytes of vocabularies beyond those that the file has
	maxWords  = 1 << 20  // of vocabularies, beyond one for two bytes that the file has
)

// epoch is the time of members that have none: where zip's times start.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// kerasVersion is the release of Keras whose files Save writes.
const kerasVersion = "3.16.0"

// Save writes a model, which must be built: its layers, how they are wired, and
// its weights, as Keras's model.save does; path ends in ".keras". What Compile
// was given is not part of the file. Layers of classes that UnmarshalConfig
// does not know are an error; see layers.Register.
func Save(path string, m *keras.Model, opts ...Option) error {
	if !strings.HasSuffix(path, ".keras") {
		return fmt.Errorf("saving: got file name %q, want one that ends in .keras, as Keras does", path)
	}
	c, err := contentOf(m, opts)
	if err != nil {
		return fileError(path, err)
	}
	return c.save(path)
}

// Write writes what Save does to w, for a place that is no file: a request, a
// database, a page. It takes the memory of the weights once more, as nothing else
// is written first.
func Write(w io.Writer, m *keras.Model, opts ...Option) error {
	c, err := contentOf(m, opts)
	if err == nil {
		err = c.write(w, &memory{})
	}
	if err != nil {
		return safeio.Short(fmt.Errorf("saving: %w", err))
	}
	return nil
}

// content is what a `.keras` file holds of a model.
type content struct {
	config       []byte
	weights      *hdf5.Group
	vocabularies map[string]string
}

func contentOf(m *keras.Model, opts []Option) (c content, err error) {
	o, err := describe(m)
	if err != nil {
		return c, err
	}
	c.vocabularies = map[string]string{}
	takeVocabularies(o, "", c.vocabularies)
	if c.config, err = json.Marshal(o); err != nil {
		return c, err
	}
	c.weights, err = weightTree(m, options(opts))
	return c, err
}

// scratch is where weights are written before they are copied.
type scratch interface {
	io.WriterAt
	io.ReadSeeker
}

// memory is a scratch without a file.
type memory struct {
	bytes.Reader
	b []byte
}

// WriteAt implements io.WriterAt.
func (m *memory) WriteAt(b []byte, at int64) (int, error) {
	if end := int(at) + len(b); end > len(m.b) {
		m.b = append(m.b, make([]byte, end-len(m.b))...)
		m.Reset(m.b)
	}
	return copy(m.b[at:], b), nil
}

// save writes the file at path.
func (c content) save(path string) error {
	return replace(path, func(f atomicfile.File) error {
		// HDF5 is written in no order, so it takes a file of its own first.
		weights, err := os.OpenFile(f.Name()+".h5", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer func() {
			weights.Close()
			os.Remove(weights.Name())
		}()
		return c.write(f, weights)
	})
}

func (c content) write(to io.Writer, weights scratch) error {
	if err := hdf5.Write(weights, c.weights); err != nil {
		return err
	}
	if _, err := weights.Seek(0, io.SeekStart); err != nil {
		return err
	}
	now := time.Now()
	metadata := fmt.Sprintf(`{"keras_version": %q, "date_saved": %q}`, kerasVersion, now.Format("2006-01-02@15:04:05"))
	z := zip.NewWriter(to)
	type part struct {
		name string
		time time.Time
		from io.Reader
	}
	parts := []part{
		{metadataFile, epoch, strings.NewReader(metadata)},
		{configFile, epoch, bytes.NewReader(c.config)},
		{weightsFile, now, weights},
	}
	for _, name := range slices.Sorted(maps.Keys(c.vocabularies)) {
		parts = append(parts, part{name, now, strings.NewReader(c.vocabularies[name])})
	}
	for _, part := range parts {
		w, err := z.CreateHeader(&zip.FileHeader{Name: part.name, Method: zip.Store, Modified: part.time})
		if err != nil {
			return err
		}
		if _, err := io.Copy(w, part.from); err != nil {
			return err
		}
	}
	return z.Close()
}

// Load reads a model from a file of Save or of Keras's model.save: Sequential
// and functional models of layers that this module has. The model is built, has
// its weights, and is to be compiled.
func Load(path string, opts ...Option) (*keras.Model, error) {
	return opened(path, func(f *os.File, size int64) (*keras.Model, error) { return read(path, f, size, options(opts)) })
}

// Read reads what Load does from the first size bytes of r, for a model that is not
// in a file: embedded in the program, or from a request.
//
//	model, err := saving.Read(bytes.NewReader(b), int64(len(b)))
func Read(r io.ReaderAt, size int64, opts ...Option) (m *keras.Model, err error) {
	func() {
		defer tensor.Catch(&err) // as in opened
		m, err = read("model", r, size, options(opts))
	}()
	if err != nil {
		return nil, safeio.Short(fmt.Errorf("saving: %w", err))
	}
	return m, nil
}

func read(path string, r io.ReaderAt, size int64, c config) (*keras.Model, error) {
	if hdf5.Is(r) {
		return readLegacy(path, r, size, c)
	}
	a, err := openArchive(r, size)
	if err != nil {
		return nil, err
	}
	text, err := a.config(c.maxConfig)
	if err != nil {
		return nil, err
	}
	weights, n, err := a.weights()
	if err != nil {
		return nil, err
	}
	o, err := parseObject(text)
	if err == nil {
		err = a.giveVocabularies(o.Config, "", &weightFile{r: weights, size: n})
	}
	var m *keras.Model
	if err == nil {
		m, err = rebuild(o, c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	if err := loadTree(path+"/"+weightsFile, weights, n, m, config{}); err != nil {
		return nil, fmt.Errorf("%s: %w", weightsFile, err)
	}
	if c.byPath != nil {
		return m.CloneUnder("", c.byPath, true)
	}
	return m, nil
}

// archive is a `.keras` file that is read.
type archive struct {
	r       io.ReaderAt
	members map[string]*zip.File

	packed, words int64 // of vocabularies, see maxPacked and maxWords
}

func openArchive(r io.ReaderAt, size int64) (*archive, error) {
	members, err := safeio.Zip(r, size)
	if err != nil {
		return nil, fmt.Errorf("it is no .keras file: %w", err)
	}
	return &archive{r: r, members: members}, nil
}

func (a *archive) member(name string) (*zip.File, error) {
	if f := a.members[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("it has no member %s; it is no .keras file", name)
}

// config reads config.json, of at most so many bytes (0: maxConfig).
func (a *archive) config(most int64) ([]byte, error) {
	if most == 0 {
		most = maxConfig
	}
	text, err := a.text(configFile, func(f *zip.File) error {
		if f.UncompressedSize64 > uint64(most) {
			return fmt.Errorf("got %d bytes, want at most %d; see WithMaxConfig", f.UncompressedSize64, most)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := safeio.JSON(text, max(maxValues, most/maxConfig*maxValues), maxNested); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	return text, nil
}

// vocabulary reads a member with the words of a layer.
func (a *archive) vocabulary(name string, integers bool) ([]any, error) {
	var stored int64
	text, err := a.text(name, func(f *zip.File) error {
		stored = int64(min(f.CompressedSize64, f.UncompressedSize64))
		if more := f.UncompressedSize64 - uint64(stored); more > uint64(maxPacked-a.packed) {
			return fmt.Errorf("got %d bytes of vocabularies that the file has compressed to %d, want at most %d more", f.UncompressedSize64, stored, maxPacked-a.packed)
		}
		a.packed += int64(f.UncompressedSize64) - stored
		return nil
	})
	if err != nil {
		return nil, err
	}
	words := wordsOf(string(text), integers, stored/2+maxWords-a.words)
	if words == nil {
		return nil, fmt.Errorf("%s: got more than %d words in a vocabulary that the file has compressed to %d bytes", name, stored/2+maxWords-a.words, stored)
	}
	a.words += max(int64(len(words))-stored/2, 0)
	return words, nil
}

// text reads a member if check returns nil.
func (a *archive) text(name string, check func(*zip.File) error) ([]byte, error) {
	f, err := a.member(name)
	if err != nil {
		return nil, err
	}
	err = check(f)
	var r io.ReadCloser
	if err == nil {
		r, err = f.Open()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	b, err := safeio.Read(r, int(f.UncompressedSize64), "bytes")
	if err == nil {
		_, err = r.Read(make([]byte, 1)) // the end, where the checksum is compared
		if err == io.EOF {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// weights finds the weights in the archive and checks their checksum.
func (a *archive) weights() (io.ReaderAt, int64, error) {
	f, err := a.member(weightsFile)
	if err != nil {
		return nil, 0, err
	}
	if f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64 {
		return nil, 0, fmt.Errorf("%s is compressed; Keras stores it as it is", weightsFile)
	}
	r, err := f.Open()
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", weightsFile, err)
	}
	at, err := f.DataOffset()
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", weightsFile, err)
	}
	n := int64(f.UncompressedSize64)
	return io.NewSectionReader(a.r, at, n), n, nil
}
