package mnist

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
)

// Load returns MNIST as the guide uses it: 60,000 training and 10,000 test
// samples, X float32 with 784 pixels from 0 to 1, already flattened and
// divided by 255, Y int32 with the digit.
//
// dir holds the four IDX files, gzipped or not; any data of those shapes will
// do (Fashion-MNIST, for one). With dir "" the files are downloaded once into
// the user's cache directory and verified by SHA-256.
func Load(dir string) (train, test *keras.Pipeline, err error) {
	return LoadContext(context.Background(), dir)
}

// LoadContext is Load with a context that ends the download, and with functions
// that are told of its progress: how many bytes of how many there are of the
// file at url (-1: not known). See Progbar.
func LoadContext(ctx context.Context, dir string, progress ...func(url string, done, total int)) (train, test *keras.Pipeline, err error) {
	return LoadWith(ctx, dir, Options{Progress: func(url string, done, total int) {
		for _, p := range progress {
			p(url, done, total)
		}
	}})
}

// Options is how LoadWith reads.
type Options struct {
	// MaxBytes is how many bytes of images or labels one file may hold,
	// decompressed. Default: 256 MiB, or the size of the file if that is more.
	MaxBytes keras.Bytes

	// Progress is told of downloads, see LoadContext. Default: nothing.
	Progress func(url string, done, total int)
}

// LoadWith is LoadContext with options.
func LoadWith(ctx context.Context, dir string, o Options) (train, test *keras.Pipeline, err error) {
	defer tensor.Catch(&err)
	if ctx == nil {
		return nil, nil, errors.New("mnist: LoadContext: the context is nil; use context.Background()")
	}
	if o.MaxBytes < 0 {
		return nil, nil, fmt.Errorf("mnist: MaxBytes is %d, want a positive number", int64(o.MaxBytes))
	}
	trainImages, trainLabels, testImages, testLabels, err := raw(ctx, dir, o)
	if err != nil {
		return nil, nil, err
	}
	return keras.FromImages(trainImages, trainLabels, 784), keras.FromImages(testImages, testLabels, 784), nil
}

// Progbar shows downloads on w as Keras does: where each file comes from, and a
// bar of its bytes.
//
//	train, test, err := mnist.LoadContext(ctx, "", mnist.Progbar(os.Stderr))
func Progbar(w io.Writer) func(url string, done, total int) {
	bar, last := keras.NewProgbar(w), ""
	return func(url string, done, total int) {
		if url != last {
			bar.Finish() // of a file that broke off
			fmt.Fprintf(w, "Downloading data from %s\n", url)
			last = url
		}
		bar.Update(done, total)
	}
}
