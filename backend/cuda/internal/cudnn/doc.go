// Package cudnn convolves with NVIDIA's cuDNN, a library that is loaded when
// there is one: nothing is linked, and no header of it is needed. Of its two
// interfaces it is the older one, which versions 8 and 9 both have.
//
// Main types: Library is the loaded library, Handle what it holds for a
// device, Problem a convolution or a gradient of one, Convolution how it is
// computed.
package cudnn
