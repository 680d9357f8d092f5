"""preprocessing.json: preprocessing layers as Keras writes them into config.json.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
Re-run: python preprocessing.py
"""

import json
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import keras  # noqa: E402

L = keras.layers
V = ["a", "b"]
LAYERS = [
    L.Normalization(axis=-1, mean=[1.0, 2.0], variance=[0.5, 4.0]), L.Rescaling(0.5, offset=-1.0), L.CategoryEncoding(num_tokens=3, output_mode="count"),
    L.Discretization(bin_boundaries=[0.0, 1.5]), L.Discretization(num_bins=4, epsilon=0.02, output_mode="one_hot"),
    L.Hashing(5), L.Hashing(5, mask_value="x", salt=7, output_mode="one_hot"), L.Hashing(5, mask_value=3, salt=[7, 9]),
    L.HashedCrossing(5), L.HashedCrossing(5, output_mode="one_hot"),
    L.StringLookup(vocabulary=V), L.StringLookup(max_tokens=9, num_oov_indices=2, mask_token="", salt=3),
    L.StringLookup(vocabulary=V, idf_weights=[0.5, 1.5], output_mode="tf_idf", pad_to_max_tokens=True, max_tokens=7),
    L.IntegerLookup(vocabulary=[5, 7], mask_token=0), L.IntegerLookup(vocabulary=[5, 7], invert=True, oov_token=-9),
    L.TextVectorization(), L.TextVectorization(max_tokens=50, standardize=None, split="character", ngrams=2, output_sequence_length=8, vocabulary=V),
    L.TextVectorization(split=None, ngrams=(1, 3), output_mode="tf_idf", vocabulary=V, idf_weights=[0.5, 1.5]),
    L.Resizing(3, 4), L.Resizing(3, 4, interpolation="lanczos3", antialias=True, pad_to_aspect_ratio=True, fill_value=0.5),
    L.CenterCrop(3, 4), L.RandomCrop(3, 4, seed=1), L.RandomFlip("horizontal", seed=1), L.RandomContrast(0.25, seed=1), L.RandomBrightness(0.25, (0, 1), seed=1),
    L.RandomRotation((-0.5, 0.25), fill_mode="wrap", seed=1), L.RandomZoom(0.25, seed=1), L.RandomZoom(0.25, (-0.5, 0.5), interpolation="nearest", seed=1),
    L.RandomTranslation(0.25, 0.5, fill_mode="constant", fill_value=1.0, seed=1),
    L.RandomInvert(0.5, seed=1), L.RandomGrayscale(0.25, seed=1),
    L.AutoContrast(), L.AutoContrast((0, 1), data_format="channels_first"), L.Equalization(), L.Equalization((-1, 1), bins=64),
    L.ContrastLimitedAdaptiveHistogramEqualization(), L.ContrastLimitedAdaptiveHistogramEqualization((0, 1), 2.5, (4, 6), data_format="channels_first"),
    L.MixUp(), L.MixUp(0.4, seed=1), L.CutMix(), L.CutMix((0.25, 0.5), seed=1), L.RandomErasing(), L.RandomErasing(0.5, scale=0.25, fill_value=1.5, seed=1),
    L.RandomErasing(fill_value=[1.0, 2.0, 3.0]), L.RandomColorDegeneration(0.5, seed=1), L.RandomColorJitter(), L.RandomColorJitter((0, 1), 0.5, (0.25, 0.5), 0.5, 0.25, seed=1),
    L.RandomElasticTransform(), L.RandomElasticTransform(0.5, 0.25, "nearest", "wrap", 1.5, (0, 1), seed=1), L.RandomGaussianBlur(),
    L.RandomGaussianBlur(0.5, 5, (0.25, 0.5), (0, 1), seed=1), L.RandomHue(0.5), L.RandomHue((0.25, 0.5), (0, 1), "channels_first", seed=1), L.RandomPerspective(),
    L.RandomPerspective(0.5, 0.25, "nearest", 1.5, seed=1), L.RandomPosterization(4), L.RandomPosterization((2, 5), (0, 1), seed=1), L.RandomSaturation(0.5),
    L.RandomSaturation((0.25, 0.5), (0, 1), seed=1), L.RandomSharpness(0.5), L.RandomSharpness((0.25, 0.5), (0, 1), seed=1), L.RandomShear(),
    L.RandomShear(0.25, (0.25, 0.5), "nearest", "wrap", 1.5, seed=1), L.Solarization(), L.Solarization(0.25, (0.25, 0.5), (0, 1), seed=1), L.RandAugment(),
    L.RandAugment((0, 1), 3, 0.25, "nearest", seed=1), L.AugMix(), L.AugMix((0, 1), 2, 4, 0.25, 0.5, False, "nearest", seed=1),
]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "preprocessing.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(keras.saving.serialize_keras_object(x)) for x in LAYERS) + "\n]\n")
