package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// write makes the file at path, or replaces it.
func write(fs atomicfile.FS, path, kind string, meta any, parts []Part) error {
	f := &File{Kind: kind, Parts: parts}
	if meta != nil {
		var err error
		if f.Meta, err = json.Marshal(meta); err != nil {
			return fmt.Errorf("checkpoint: %s: %w", path, err)
		}
	}
	if err := atomicfile.Write(fs, path, func(w atomicfile.File) error { return Write(w, f) }); err != nil {
		return fmt.Errorf("checkpoint: %s: cannot save: %w", path, err)
	}
	return nil
}

// WriteFile makes the file at path, or replaces it, with meta, of any form, as JSON:
// write aside, bring to the disk, rename.
func WriteFile(path, kind string, meta any, parts ...Part) error {
	return write(atomicfile.System{}, path, kind, meta, parts)
}

// ReadFile reads a file of one of the kinds. Files of other kinds, and damaged ones, are
// errors that name the file.
func ReadFile(path string, kinds ...string) (*File, error) {
	f, err := readFile(path)
	if err != nil {
		return nil, safeio.Short(fmt.Errorf("checkpoint: %s: %w", path, atomicfile.Bare(err)))
	}
	if !slices.Contains(kinds, f.Kind) {
		return nil, fmt.Errorf("checkpoint: %s: it holds %s, want %s", path, safeio.Text(f.Kind), strings.Join(kinds, " or "))
	}
	return f, nil
}

func readFile(path string) (*File, error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, size)
}
