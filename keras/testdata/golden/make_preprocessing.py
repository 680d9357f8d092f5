"""preprocessing.json: layers of package preprocessing that need no random numbers or strings, recorded as in layers.json, layers2.json and steps.json.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_preprocessing.py (see README.md).
"""

from functools import partial

from common import np, rand, write
from recorders import POLICIES as ALL, record, record_masked, record_steps

cases = []
add = partial(record_masked, cases)

record(cases, "rescaling_offset_scale", "Rescaling", {"scale": 1 / 255, "offset": -0.5}, {"x": rand(32, 2, 5, scale=2)})

IDS = np.array([[1, 2, 0], [4, 0, 0]], np.int32)
X2, X4 = rand(1, 3, 4), rand(3, 2, 3, 4, 4)

SIGNALS = rand(20, 2, 14, 2)
STFT = {"frame_length": 5, "frame_step": 2}
for mode in ("log", "magnitude", "psd", "real", "imag", "angle", "stft"):
    add("stft_" + mode, "STFTSpectrogram", {**STFT, "mode": mode}, {"x": SIGNALS})
add("stft_same", "STFTSpectrogram", {"mode": "stft", "frame_length": 4, "fft_length": 6, "padding": "same", "expand_dims": True}, {"x": SIGNALS})
MEL = {"fft_length": 16, "sequence_stride": 6, "sampling_rate": 8000, "num_mel_bins": 5}
SOUND = rand(21, 2, 60)
add("mel_spectrogram", "MelSpectrogram", MEL, {"x": SOUND})
add("mel_spectrogram_args", "MelSpectrogram", {**MEL, "sequence_length": 11, "window": "hamming", "mag_exp": 1.5, "min_freq": 300.0, "max_freq": 3500.0,
    "power_to_db": False}, {"x": SOUND})
add("mel_spectrogram_top", "MelSpectrogram", {**MEL, "mag_exp": 1.0, "top_db": 3.0, "ref_power": 4.0, "min_power": 0.5}, {"x": SOUND})
add("mel_spectrogram_no_window", "MelSpectrogram", {**MEL, "sequence_length": 11, "window": "none"}, {"x": SOUND}, policies=ALL)
add("normalization_adapted", "Normalization", {}, {"x": X2}, adapt=rand(16, 20, 4, scale=3))
add("normalization_given", "Normalization", {"axis": 1, "mean": [1.0, 2.0, 3.0], "variance": [0.5, 1.0, 4.0]}, {"x": X4[:, :, :2, :2]})
add("normalization_inverted", "Normalization", {"axis": None, "mean": 1.0, "variance": 4.0, "invert": True}, {"x": X2})
add("category_encoding", "CategoryEncoding", {"num_tokens": 5}, {"x": IDS})
add("category_encoding_count", "CategoryEncoding", {"num_tokens": 5, "output_mode": "count"}, {"x": IDS})
add("category_encoding_weights", "CategoryEncoding", {"num_tokens": 5, "output_mode": "count"}, {"x0": IDS, "x1": rand(17, 2, 3)}, grads=False)
add("category_encoding_one_hot", "CategoryEncoding", {"num_tokens": 5, "output_mode": "one_hot"}, {"x": IDS[:, :1]})
add("discretization", "Discretization", {"bin_boundaries": [-1.0, 0.0, 0.5]}, {"x": np.concatenate([X2, [[-1, 0, 0.5, 9]]]).astype(np.float32)})
add("discretization_one_hot", "Discretization", {"bin_boundaries": [0.0, 0.5], "output_mode": "one_hot"}, {"x": X2})

record_steps(cases, "stft_spectrogram", {"class_name": "STFTSpectrogram", "frame_length": 5, "frame_step": 2, "mode": "magnitude"},
    rand(9, 2, 14, 1), rate=0.1, policies=("float32",))  # TensorFlow has no convolution that mixes these types

write("preprocessing.json", cases)
