// Package mnist reads the MNIST database of handwritten digits (LeCun, Cortes
// and Burges): 60,000 training and 10,000 test images of 28x28 grey-scale pixels
// with labels 0 to 9.
//
// The data come from a directory of the user's own, in the IDX format of the
// original files, or are downloaded once into the user's cache directory.
// A directory may hold any set of the same form, such as Fashion-MNIST or KMNIST:
// its shapes and labels are checked but not its content. Downloaded files are
// compared with the SHA-256 of the original data.
//
// Files may be compressed with gzip or not and be named either
// train-images-idx3-ubyte or train-images.idx3-ubyte, with or without .gz.
package mnist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	side   = 28
	pixels = side * side // bytes of one image
)

// dataFile is one of the four files.
type dataFile struct {
	stem, format string // the name is stem-format or stem.format
	sum          string // SHA-256 of the decompressed original, hexadecimal
}

// dataFiles lists the four files: training images and labels, test images and
// labels.
func dataFiles() [4]dataFile {
	return [4]dataFile{
		{"train-images", "idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
		{"train-labels", "idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
		{"t10k-images", "idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
		{"t10k-labels", "idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
	}
}

// names are the spellings a file is looked for under, the original first.
func (f dataFile) names() []string {
	a, b := f.stem+"-"+f.format, f.stem+"."+f.format
	return []string{a + ".gz", b + ".gz", a, b}
}

func standardNames() []string {
	var names []string
	for _, f := range dataFiles() {
		names = append(names, f.names()[0])
	}
	return names
}

// find returns the path of the file in dir.
func (f dataFile) find(dir string) (string, error) {
	for _, name := range f.names() {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("mnist: %w", err)
		}
	}
	return "", fmt.Errorf("mnist: %s: got none of the wanted files, want one of %s: %w", dir, strings.Join(f.names(), ", "), fs.ErrNotExist)
}

// raw returns the pixels (0 to 255, row-major, shape (n, 28, 28)) and labels
// (0 to 9, shape (n)) of the training and the test set.
//
// They are read from the directory dir. An empty dir means the original MNIST,
// downloaded into the cache directory unless it is there already; ctx ends the
// download.
func raw(ctx context.Context, dir string, o Options) (trainImages, trainLabels, testImages, testLabels []byte, err error) {
	if dir == "" {
		dir, err = cacheDir()
		if err == nil {
			d := newDownloader(dir)
			if o.Progress != nil {
				d.progress = append(d.progress, o.Progress)
			}
			err = d.downloadAll(ctx)
		}
		if err != nil {
			return nil, nil, nil, nil, err
		}
	}
	files := dataFiles()
	trainImages, trainLabels, err = readSet(dir, files[0], files[1], int64(o.MaxBytes))
	if err != nil {
		return nil, nil, nil, nil, err
	}
	testImages, testLabels, err = readSet(dir, files[2], files[3], int64(o.MaxBytes))
	if err != nil {
		return nil, nil, nil, nil, err
	}
	return trainImages, trainLabels, testImages, testLabels, nil
}

// readSet reads the images and labels of one set and checks that they belong
// together.
func readSet(dir string, imageFile, labelFile dataFile, limit int64) (images, labels []byte, err error) {
	imagePath, err := imageFile.find(dir)
	if err != nil {
		return nil, nil, err
	}
	labelPath, err := labelFile.find(dir)
	if err != nil {
		return nil, nil, err
	}
	dims, images, err := readIDX(imagePath, 3, limit)
	if err != nil {
		return nil, nil, err
	}
	if dims[1] != side || dims[2] != side {
		return nil, nil, fmt.Errorf("mnist: %s: got images of %dx%d pixels, want %dx%d", imagePath, dims[1], dims[2], side, side)
	}
	_, labels, err = readIDX(labelPath, 1, limit)
	if err != nil {
		return nil, nil, err
	}
	if len(labels) != dims[0] {
		return nil, nil, fmt.Errorf("mnist: %s: got %d labels, want %d, one for each image of %s", labelPath, len(labels), dims[0], imagePath)
	}
	for i, l := range labels {
		if l > 9 {
			return nil, nil, fmt.Errorf("mnist: %s: got label %d at index %d, want 0 to 9", labelPath, l, i)
		}
	}
	return images, labels, nil
}
