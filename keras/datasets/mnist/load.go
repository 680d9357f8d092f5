package mnist

import (
	"context"

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

// LoadContext is Load with a context that ends the download.
func LoadContext(ctx context.Context, dir string) (train, test *keras.Pipeline, err error) {
	defer tensor.Catch(&err)
	trainImages, trainLabels, testImages, testLabels, err := raw(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	return keras.FromImages(trainImages, trainLabels, 784), keras.FromImages(testImages, testLabels, 784), nil
}
