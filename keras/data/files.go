package data

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Labeled is a value with its class index.
type Labeled[T any] struct {
	Value T
	Label int
}

// DirectoryOptions says which files are read from a directory with one
// subdirectory for each class. It has the names and defaults of Keras's
// text_dataset_from_directory and image_dataset_from_directory.
type DirectoryOptions struct {
	// ClassNames are the subdirectories to read, which are the names of the
	// classes. Default: all whose names do not start with a dot, sorted.
	ClassNames []string
	Unlabeled  bool  // Keras: labels=None; all files below the directory, of label 0
	Shuffle    *bool // mix the files, anew in each epoch; default: true
	Seed       uint64

	// ValidationSplit is the share of the files, from the end of their first
	// order, that Subset "validation" takes and "training" leaves. Both must be
	// read with the same Seed and Shuffle.
	ValidationSplit float64
	Subset          string

	FollowLinks bool // go into subdirectories that are symbolic links

	// Progress is called for each file that is found, with their number so far.
	Progress func(files int)
}

// FilesFromDirectory returns the names of the files in the subdirectories of
// dir that end in one of formats (".txt"), with their classes, and the names of
// these.
func FilesFromDirectory(dir string, formats []string, o DirectoryOptions) (files *Dataset[Labeled[string]], classes []string, err error) {
	switch {
	case o.ValidationSplit < 0 || o.ValidationSplit >= 1:
		return nil, nil, fmt.Errorf("%s: ValidationSplit is %v, want a share from 0 to below 1", dir, o.ValidationSplit)
	case o.ValidationSplit > 0 && o.Subset != "training" && o.Subset != "validation", o.ValidationSplit == 0 && o.Subset != "":
		return nil, nil, fmt.Errorf("%s: Subset is %q with ValidationSplit %v, want training or validation with one above 0", dir, o.Subset, o.ValidationSplit)
	case o.Unlabeled && o.ClassNames != nil:
		return nil, nil, fmt.Errorf("%s: got both Unlabeled and ClassNames", dir)
	}
	if !o.Unlabeled {
		if classes, err = classNames(dir, o); err != nil {
			return nil, nil, err
		}
	}
	var all []Labeled[string]
	add := func(path string, label int) {
		all = append(all, Labeled[string]{path, label})
		if o.Progress != nil {
			o.Progress(len(all))
		}
	}
	if o.Unlabeled {
		err = walk(dir, formats, o.FollowLinks, func(path string) { add(path, 0) })
	}
	for label, name := range classes {
		if err == nil {
			err = walk(filepath.Join(dir, name), formats, o.FollowLinks, func(path string) { add(path, label) })
		}
	}
	if err != nil {
		return nil, nil, err
	}
	mix := o.Shuffle == nil || *o.Shuffle
	if mix {
		in := slices.Clone(all)
		for i, k := range pipeline.Order(len(all), max(len(all), 1), o.Seed, 0) {
			all[i] = in[k]
		}
	}
	held := int(o.ValidationSplit * float64(len(all)))
	switch o.Subset {
	case "training":
		all = all[:len(all)-held]
	case "validation":
		all = all[len(all)-held:]
	}
	if len(all) == 0 {
		where := "subdirectories"
		if o.Unlabeled {
			where = "it"
		}
		return nil, nil, fmt.Errorf("%s: there are no files in %s for this dataset, want some that end in %s", dir, where, strings.Join(formats, ", "))
	}
	files = FromSlice(all)
	if mix {
		files = files.Shuffle(len(all), o.Seed)
	}
	return files, classes, nil
}

// classNames lists the subdirectories.
func classNames(dir string, o DirectoryOptions) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		s, err := os.Stat(filepath.Join(dir, e.Name())) // Keras: also links to directories
		if err == nil && s.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	for _, n := range o.ClassNames {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("%s: there is no subdirectory %q for a class; there are %q", dir, n, names)
		}
	}
	if o.ClassNames != nil {
		names = slices.Clone(o.ClassNames)
	}
	return names, nil
}

// maxDepth of directories: links may go in a circle.
const maxDepth = 64

// walk calls found for the files below a directory: directories in the order of
// their paths, files in that of their names.
func walk(dir string, formats []string, links bool, found func(path string)) error {
	type level struct {
		path  string
		files []string
	}
	var levels []level
	var visit func(path string, depth int) error
	visit = func(path string, depth int) error {
		if depth > maxDepth {
			return fmt.Errorf("%s: directories are nested deeper than %d; links may go in a circle", path, maxDepth)
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		l := level{path: path}
		for _, e := range entries {
			sub := filepath.Join(path, e.Name())
			isDir, mode := e.IsDir(), e.Type()
			if e.Type()&fs.ModeSymlink != 0 {
				s, err := os.Stat(sub)
				if err != nil || s.IsDir() && !links {
					continue
				}
				isDir, mode = s.IsDir(), s.Mode()
			}
			if isDir {
				if err := visit(sub, depth+1); err != nil {
					return err
				}
			} else if slices.Contains(formats, strings.ToLower(filepath.Ext(e.Name()))) {
				if err := safeio.Regular(sub, mode); err != nil {
					return err
				}
				l.files = append(l.files, sub)
			}
		}
		levels = append(levels, l)
		return nil
	}
	if err := visit(dir, 0); err != nil {
		return err
	}
	slices.SortFunc(levels, func(a, b level) int { return strings.Compare(a.path, b.path) })
	for _, l := range levels {
		for _, f := range l.files {
			found(f)
		}
	}
	return nil
}

// maxText is how many bytes TextFromDirectory reads of a file at most.
const maxText = 64 << 20

// TextFromDirectory returns the texts of the .txt files in the subdirectories
// of dir, with their classes, and the names of these (Keras:
// text_dataset_from_directory). Texts become tensors by a layer such as
// preprocessing.TextVectorization, in a Map.
func TextFromDirectory(dir string, o DirectoryOptions) (texts *Dataset[Labeled[string]], classes []string, err error) {
	files, classes, err := FilesFromDirectory(dir, []string{".txt"}, o)
	if err != nil {
		return nil, nil, err
	}
	return ParallelMap(files, 0, func(_ context.Context, f Labeled[string]) (Labeled[string], error) {
		text, err := readText(f.Value)
		return Labeled[string]{text, f.Label}, err
	}), classes, nil
}

func readText(path string) (string, error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if size > maxText {
		return "", fmt.Errorf("%s: it has %d bytes, want at most %d", path, size, maxText)
	}
	b, err := safeio.Read(io.LimitReader(f, size), int(size), "bytes")
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return string(b), nil
}

// Lines returns the lines of text files, one file after the other, without
// their ends (tf.data.TextLineDataset).
func Lines(paths ...string) *Dataset[string] {
	return FlatMap(FromSlice(paths), func(_ context.Context, path string) (*Dataset[string], error) {
		return fromFile(path, func(_ pipeline.Start, f io.Reader, yield func(string, error) bool) error {
			return lines(f, yield)
		}), nil
	})
}

// maxLine is how many bytes a line of Lines may have.
const maxLine = 16 << 20

func lines(f io.Reader, yield func(string, error) bool) error {
	s := bufio.NewScanner(f)
	s.Buffer(make([]byte, 1<<16), maxLine)
	n := 0
	for s.Scan() {
		if n++; !yield(s.Text(), nil) {
			return nil
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}
