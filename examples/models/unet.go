package models

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// UNet is the network of Ronneberger et al. 2015 for the segmentation of
// images, with unpadded convolutions: every output pixel has seen all of its
// surroundings, and the output is smaller than the input by a margin.
type UNet struct {
	Size    int // rows and columns of an input
	Filters int // of the first level; each level below has twice as many
	Depth   int // how many times the image is halved
	Classes int
}

// BobRoss is the UNet that segments landscapes of 164x164 pixels, mirrored at
// their edges to 256x256, into nine classes: 7,703,497 trainable weights,
// 21.57 billion multiplications for an image.
var BobRoss = UNet{Size: 256, Filters: 64, Depth: 3, Classes: 9}

// OutputSize is the number of rows and columns of the output. Each level cuts
// four pixels off on its way down and on its way up.
func (u UNet) OutputSize() (int, error) {
	size := u.Size
	for range u.Depth {
		size = (size - 4) / 2
	}
	for range u.Depth {
		size = 2 * (size - 4)
	}
	if size -= 4; size <= 0 {
		return 0, fmt.Errorf("UNet: Size is %d, which leaves nothing at Depth %d", u.Size, u.Depth)
	}
	return size, nil
}

// Model builds the network. A block is two 3x3 convolutions, each followed by
// a ReLU and a batch normalization. On the way up, what a level had on the way
// down is cropped and joined with what comes from below.
//
// Shapes: [batch Size Size 3] → [batch OutputSize OutputSize Classes], logits.
func (u UNet) Model() (*keras.Model, error) {
	size, err := u.OutputSize()
	if err != nil {
		return nil, err
	}
	block := func(x *keras.Tensor, filters int) *keras.Tensor {
		for range 2 {
			x = keras.Apply(&layers.Conv2D{Filters: filters, KernelSize: layers.PerAxis{3}, Activation: "relu", KernelInitializer: "he_normal"}, x)
			x = keras.Apply(&layers.BatchNormalization{Momentum: new(0.9), Epsilon: new(1e-5)}, x)
		}
		return x
	}
	in := keras.Input(u.Size, u.Size, 3)
	var skips []*keras.Tensor
	x, filters := in, u.Filters
	for range u.Depth {
		x = block(x, filters)
		skips = append(skips, x)
		x = keras.Apply(&layers.MaxPooling2D{}, x)
		filters *= 2
	}
	x = block(x, filters)
	for level := u.Depth - 1; level >= 0; level-- {
		filters /= 2
		x = keras.Apply(&layers.Conv2DTranspose{Filters: filters, KernelSize: layers.PerAxis{2}, Strides: layers.PerAxis{2}}, x)
		if x.Err() != nil {
			return nil, x.Err()
		}
		margin := skips[level].Dim(1) - x.Dim(1)
		low, high := margin/2, margin-margin/2
		skip := keras.Apply(&layers.Cropping2D{Cropping: layers.PerAxis{low, high, low, high}}, skips[level])
		x = block(keras.Apply(&layers.Concatenate{}, skip, x), filters)
	}
	x = keras.Apply(&layers.Conv2D{Filters: u.Classes, KernelSize: layers.PerAxis{1}}, x)
	model, err := keras.NewModel(in, x)
	if err == nil && x.Dim(1) != size {
		err = fmt.Errorf("UNet: the output has %d rows, want %d", x.Dim(1), size)
	}
	return model, err
}

// MACs is how many multiplications the convolutions of an image need.
func (u UNet) MACs() []int {
	var all []int
	block := func(size, in, out int) int {
		all = append(all, (size-2)*(size-2)*9*in*out, (size-4)*(size-4)*9*out*out)
		return size - 4
	}
	size, in, filters := u.Size, 3, u.Filters
	for range u.Depth {
		size = block(size, in, filters) / 2
		in, filters = filters, 2*filters
	}
	size = block(size, in, filters)
	for range u.Depth {
		all = append(all, size*size*4*filters*filters/2)
		filters /= 2
		size = block(2*size, 2*filters, filters)
	}
	return append(all, size*size*filters*u.Classes)
}
