"""layers.json: forward values of the basic layers under three policies, and float32 gradients.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_layers.py (see README.md).
"""

from functools import partial

from common import np, rand, uniform, write
from recorders import record

cases = []
add = partial(record, cases)

K, B = rand(2, 6, 4, scale=0.5), rand(3, 4, scale=0.5)
X2, X3 = rand(4, 5, 6), rand(5, 2, 3, 6)
add("dense", "Dense", {"units": 4}, {"x": X2}, {"kernel": K, "bias": B})
add("dense_relu", "Dense", {"units": 4, "activation": "relu"}, {"x": X2}, {"kernel": K, "bias": B})
add("dense_no_bias", "Dense", {"units": 4, "use_bias": False}, {"x": X2}, {"kernel": K})
add("dense_3d", "Dense", {"units": 4, "activation": "tanh"}, {"x": X3}, {"kernel": K, "bias": B})
add("dense_softmax", "Dense", {"units": 4, "activation": "softmax"}, {"x": X2}, {"kernel": K, "bias": B})
add("dense_wide", "Dense", {"units": 3}, {"x": rand(6, 2, 256)},
    {"kernel": rand(7, 256, 3, scale=0.1, digits=4), "bias": rand(8, 3)})


def bn(c, scale=True, center=True):
    w = {}
    if scale:
        w["gamma"] = uniform(10, c, low=0.5, high=1.5)
    if center:
        w["beta"] = rand(11, c)
    w["moving_mean"], w["moving_variance"] = rand(12, c), uniform(13, c, low=0.2, high=2)
    return w


XB = np.round(rand(14, 8, 3) * 2 + 1, 3).astype(np.float32)
add("batch_norm_train", "BatchNormalization", {}, {"x": XB}, bn(3), True)
add("batch_norm_infer", "BatchNormalization", {}, {"x": XB}, bn(3), False)
add("batch_norm_args_train", "BatchNormalization", {"momentum": 0.9, "epsilon": 1e-5}, {"x": XB}, bn(3), True)
add("batch_norm_no_center_scale_train", "BatchNormalization", {"center": False, "scale": False}, {"x": XB}, bn(3, False, False), True)
add("batch_norm_no_center_train", "BatchNormalization", {"center": False}, {"x": XB}, bn(3, True, False), True)
add("batch_norm_no_scale_infer", "BatchNormalization", {"scale": False}, {"x": XB}, bn(3, False, True), False)
X4 = rand(15, 2, 3, 4, 2)
add("batch_norm_4d_train", "BatchNormalization", {}, {"x": X4}, bn(2), True)
add("batch_norm_axis1_train", "BatchNormalization", {"axis": 1}, {"x": X4}, bn(3), True)
add("batch_norm_axis1_infer", "BatchNormalization", {"axis": 1}, {"x": X4}, bn(3), False)
add("batch_norm_constant_train", "BatchNormalization", {}, {"x": np.full((4, 3), 2.5, np.float32)}, bn(3), True)

XL = rand(16, 2, 3, 4)
add("layer_norm", "LayerNormalization", {}, {"x": XL}, {"gamma": uniform(17, 4, low=0.5, high=1.5), "beta": rand(18, 4)})
add("layer_norm_axis12", "LayerNormalization", {"axis": [1, 2]}, {"x": XL},
    {"gamma": uniform(19, 3, 4, low=0.5, high=1.5), "beta": rand(20, 3, 4)})
add("layer_norm_axis1", "LayerNormalization", {"axis": 1}, {"x": XL}, {"gamma": uniform(21, 3, low=0.5, high=1.5), "beta": rand(22, 3)})
add("layer_norm_no_center_scale", "LayerNormalization", {"center": False, "scale": False, "epsilon": 1e-5}, {"x": XL}, {})
add("layer_norm_constant_70000", "LayerNormalization", {}, {"x": np.full((2, 4), 70000, np.float32)},
    {"gamma": np.ones(4, np.float32), "beta": rand(23, 4)},
    note="no NaN; the exact answer is beta. Keras evaluates x*s+(beta-mean*s) in float32, whose cancellation here leaves multiples of 0.25")

add("flatten", "Flatten", {}, {"x": XL})
add("flatten_channels_first", "Flatten", {"data_format": "channels_first"}, {"x": XL})
add("reshape", "Reshape", {"target_shape": [4, 3]}, {"x": XL})
add("reshape_infer", "Reshape", {"target_shape": [-1, 6]}, {"x": XL})
add("concatenate", "Concatenate", {}, {"x0": rand(24, 2, 3), "x1": rand(25, 2, 2), "x2": rand(26, 2, 1)})
add("concatenate_axis1", "Concatenate", {"axis": 1}, {"x0": rand(27, 2, 1, 3), "x1": rand(28, 2, 2, 3)})
for cls in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"):
    pair = {"x0": rand(29, 2, 3, scale=3), "x1": rand(30, 2, 3, scale=3)}
    add(cls.lower(), cls, {}, pair)
    if cls != "Subtract":
        add(cls.lower() + "_three_broadcast", cls, {}, {**pair, "x2": rand(31, 2, 1)})
for cls, args in (("ReLU", {}), ("ReLU", {"negative_slope": 0.1, "max_value": 2.0}), ("LeakyReLU", {}), ("ELU", {}), ("Softmax", {}),
                  ("Activation", {"activation": "gelu"})):
    add("_".join([cls.lower()] + sorted(args)), cls, args, {"x": rand(32, 2, 5, scale=2)})

write("layers.json", cases)
