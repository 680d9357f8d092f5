package npy

import (
	"archive/zip"
	"io"
	"time"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Archive writes arrays by their names as NumPy's savez does: a zip file with
// the file of an array for each.
type Archive struct{ z *zip.Writer }

// NewArchive returns an archive in w.
func NewArchive(w io.Writer) Archive { return Archive{zip.NewWriter(w)} }

// saved is when NumPy says that all was written, so that equal arrays make
// equal files.
var saved = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Add writes an array.
func (a Archive) Add(name string, t op.Type, data []byte) error {
	if err := safeio.Name(name); err != nil {
		return err
	}
	w, err := a.z.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: zip.Store, Modified: saved})
	if err != nil {
		return err
	}
	if _, err := w.Write(Header(t)); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// Close ends the archive; the writer behind it stays open.
func (a Archive) Close() error { return a.z.Close() }
