package keras

import "github.com/mezzo-ml/mezzo/backend/tensor"

// FromImages returns a dataset of 8-bit images and their labels: X is float32
// [n, pixels] with values divided by 255, Y is int32 [n]. pixels is the number
// of bytes of an image. It panics with *Error if the lengths do not fit.
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
