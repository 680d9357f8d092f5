// Package preprocessing has the layers that prepare data for a model. They are
// the classes of Keras's package keras.src.layers.preprocessing. Keras lists
// them among its layers; here they have a package of their own, so that
// package layers shows the parts of networks, and a program that prepares no
// data links none of them.
//
//	model := keras.Sequential(
//		&preprocessing.Rescaling{Scale: 1. / 255},
//		&preprocessing.RandomFlip{Mode: "horizontal"},
//		&layers.Conv2D{Filters: 32, KernelSize: []int{3}},
//	)
//
// They are layers like those of package layers: fields, defaults, names in
// files and [layers.Apply] follow the same rules. Importing this package
// registers their classes for [layers.UnmarshalConfig].
//
// # Numbers and categories
//
// [Normalization] and [Discretization] compute their state with keras.Adapt.
// [CategoryEncoding], [Hashing], [HashedCrossing], [IntegerLookup] and
// [StringLookup] make integers or vectors of categories.
//
// # Text
//
// [TextVectorization] makes integers of texts. Tensors hold numbers only, so
// [Strings] stay on the host until Encode of a [StringEncoder] has made
// integers of them.
//
// # Tables
//
// [FeatureSpace] encodes the [Columns] of a table, each by one of these layers, and
// hashes crosses of them.
//
// # Images
//
// [Rescaling], [Resizing], [CenterCrop], [AutoContrast], [Equalization],
// [ContrastLimitedAdaptiveHistogramEqualization] and [Solarization] treat every
// image alike. The Random layers, [AugMix], [RandAugment], [CutMix] and [MixUp]
// change images by random numbers while training only. [MaxNumBoundingBoxes]
// pads lists of boxes.
//
// # Sound
//
// [MelSpectrogram] and [STFTSpectrogram] make spectra of signals.
package preprocessing
