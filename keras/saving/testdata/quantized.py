"""quantized.zip: models before and after model.quantize("int8"), and what they compute.

For each model there are NAME.float.keras and NAME.int8.keras, and for each number of
rows N NAME.N.x, the inputs, and NAME.N.y, the outputs of the quantized model, as
float32, or int32 for indices. Activations are those whose results do not depend on
how a library computes functions, so that outputs can be compared bit by bit.
attention.weights.h5 has the quantized weights of attention.float.keras: Keras 3.15
does not load the .keras files that it writes of quantized layers within a layer. There are
no inputs that are not finite: TensorFlow makes 0 or -128 of NaN, by the width of a row.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
Re-run: python quantized.py (in this directory)
"""

import os
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import keras
import numpy as np
from keras import Input, Model, Sequential
from keras import layers as L

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)


def scattered(m):
    """Gives weights of all magnitudes, and a column of zeros to the first matrix."""
    for i, w in enumerate(m.weights):
        v = rng.standard_normal(w.shape) * 10.0 ** rng.uniform(-3, 1, w.shape[-1:])
        if i == 0:
            v[..., 0] = 0
        w.assign(v.astype("float32"))


def dense():
    return Sequential([Input((33,)), L.Dense(19, "relu"), L.Dense(7, use_bias=False)])


def bfloat(policy):
    return lambda: Sequential([Input((33,)), L.Dense(19, "relu", dtype=policy), L.Dense(7, dtype=policy)])


def deep():
    return Sequential([Input((1301,)), L.Dense(3)])


def einsum(dtype):
    def make():
        x = Input((5, 6))
        y = L.EinsumDense("abc,cde->abde", (5, 3, 2), bias_axes="de", activation="relu", dtype=dtype)(x)
        y = L.EinsumDense("abde,def->abf", (5, 7), bias_axes="f", dtype=dtype)(y)
        y = L.EinsumDense("abc,dc->adb", (4, 5), dtype=dtype)(y)
        y = L.EinsumDense("abc,bcd->abd", (4, 3), bias_axes="bd", dtype=dtype)(y)
        y = L.EinsumDense("abc,cd->ad", (6,), dtype=dtype)(y)
        return Model(x, y)

    return make


def embedding(dtype):
    return lambda: Sequential([Input((4,), dtype="int32"), L.Embedding(11, 6, dtype=dtype), L.Flatten(), L.Dense(5, dtype=dtype)])


def nested():
    a = Input((8,))
    inner = Model(a, L.Dense(5)(L.Dense(6, "relu")(a)), name="inner")
    x = Input((3, 8))
    y = L.Dense(8, "relu")(x)  # in TimeDistributed, Keras 3.15 computes with the integers as they are
    y = L.Flatten()(y)
    y = L.Dense(8)(y)
    y = L.Add()([inner(y), inner(L.ReLU()(y))])
    return Model(x, L.Dense(2, dtype="mixed_bfloat16")(y))


def attention():
    x = Input((4, 6))
    return Model(x, L.MultiHeadAttention(2, 3)(x, x))


models = {
    "dense": (dense, [1, 7, 64, 257]),
    "mixed_bfloat16": (bfloat("mixed_bfloat16"), [1, 7, 64]),
    "bfloat16": (bfloat("bfloat16"), [7]),
    "deep": (deep, [5]),
    "einsum": (einsum("float32"), [1, 7]),
    "einsum_bfloat16": (einsum("mixed_bfloat16"), [3]),
    "embedding": (embedding("float32"), [1, 7]),
    "embedding_bfloat16": (embedding("mixed_bfloat16"), [7]),
    "nested": (nested, [1, 7]),
    "attention": (attention, []),
}

with zipfile.ZipFile("quantized.zip", "w", zipfile.ZIP_DEFLATED) as z:

    def put(name, data):
        z.writestr(zipfile.ZipInfo(name), data, compress_type=zipfile.ZIP_DEFLATED)

    for name, (make, rows) in models.items():
        m = make()
        scattered(m)
        files = [".float.keras", ".int8.keras"]
        m.save("tmp.keras")
        put(name + files[0], open("tmp.keras", "rb").read())
        kernel = np.array(m.weights[0])
        m.quantize("int8")
        if name == "attention":
            m.save_weights("tmp.weights.h5")
            put(name + ".weights.h5", open("tmp.weights.h5", "rb").read())
            os.remove("tmp.weights.h5")
        else:
            m.save("tmp.keras")
            put(name + files[1], open("tmp.keras", "rb").read())
        os.remove("tmp.keras")
        for n in rows:
            shape = (n,) + m.input_shape[1:]
            if name.startswith("embedding"):
                x = rng.integers(0, 11, shape).astype("int32")
            else:
                x = (rng.standard_normal(shape) * 10.0 ** rng.uniform(-9, 5, (n,) + (1,) * (len(shape) - 1))).astype("float32")
            if name == "deep":
                x[0] = kernel[:, 1]  # a sum that float32 does not hold
                x[1] = np.sign(kernel[:, 2])
            elif n == 7 and x.dtype == np.float32:
                flat = x.reshape(n, -1)
                flat[0] = 0
                flat[4] = 1e-30
                flat[5, 0] = 3e30
            y = np.array(keras.ops.cast(m(x), "float32"))
            put(f"{name}.{n}.x", x.tobytes())
            put(f"{name}.{n}.y", y.tobytes())
