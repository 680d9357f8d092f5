package keras

import "github.com/mezzo-ml/mezzo/backend/tensor"

// FromImages returns the dataset of 8-bit images and their labels: X float32
// with the pixels of an image divided by 255, Y int32. It panics with
// *Error when the numbers do not fit.
func FromImages(images, labels []byte, pixels int) *Pipeline {
	if pixels < 1 || len(images) != len(labels)*pixels {
		tensor.Fail("FromImages", "%d bytes of images for %d labels, want %d each", len(images), len(labels), pixels)
	}
	var scaled [256]float32
	for i := range scaled {
		scaled[i] = float32(i) / 255
	}
	x := make([]float32, len(images))
	for i, b := range images {
		x[i] = scaled[b]
	}
	y := make([]int32, len(labels))
	for i, b := range labels {
		y[i] = int32(b)
	}
	return FromTensors(tensor.New(x, len(labels), pixels), tensor.New(y, len(labels)), nil)
}
