package preprocessing

import (
	"reflect"

	"github.com/mezzo-ml/mezzo/layers"
)

// register makes class T known to layers.UnmarshalConfig under its name.
func register[T any, L interface {
	*T
	layers.Layer
}]() {
	layers.Register(reflect.TypeFor[T]().Name(), func() layers.Layer { return L(new(T)) })
}

func init() {
	register[AugMix]()
	register[AutoContrast]()
	register[CategoryEncoding]()
	register[CenterCrop]()
	register[ContrastLimitedAdaptiveHistogramEqualization]()
	register[CutMix]()
	register[Discretization]()
	register[Equalization]()
	register[FeatureSpace]()
	register[HashedCrossing]()
	register[Hashing]()
	register[IntegerLookup]()
	register[MaxNumBoundingBoxes]()
	register[MelSpectrogram]()
	register[MixUp]()
	register[Normalization]()
	register[RandAugment]()
	register[RandomBrightness]()
	register[RandomColorDegeneration]()
	register[RandomColorJitter]()
	register[RandomContrast]()
	register[RandomCrop]()
	register[RandomElasticTransform]()
	register[RandomErasing]()
	register[RandomFlip]()
	register[RandomGaussianBlur]()
	register[RandomGrayscale]()
	register[RandomHue]()
	register[RandomInvert]()
	register[RandomPerspective]()
	register[RandomPosterization]()
	register[RandomRotation]()
	register[RandomSaturation]()
	register[RandomSharpness]()
	register[RandomShear]()
	register[RandomTranslation]()
	register[RandomZoom]()
	register[Rescaling]()
	register[Resizing]()
	register[STFTSpectrogram]()
	register[Solarization]()
	register[StringLookup]()
	register[TextVectorization]()
}
