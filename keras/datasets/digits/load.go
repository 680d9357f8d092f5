package digits

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
)

// Sizes of the default training and test sets.
const (
	TrainSamples = 12000
	TestSamples  = 2000
)

// Load returns a training and a test set as mnist.Load does: X float32 with
// 784 pixels from 0 to 1 per image, Y int32 with the digit. It needs no files:
// the images are drawn, always the same ones. It fails only where there is no
// device to hold them.
func Load() (train, test *keras.Pipeline, err error) {
	defer tensor.Catch(&err)
	return Dataset(TrainSamples, 1), Dataset(TestSamples, 2), nil
}

// Dataset returns the first n samples of a seed. It panics with *tensor.Error
// where there is no device to hold them.
func Dataset(n int, seed uint64) *keras.Pipeline {
	images, labels := Raw(n, seed)
	return keras.FromImages(images, labels, 784)
}
