"""Models of Keras with everything that a functional graph may hold, their inputs
and what they compute: for each NAME.keras (or NAME.h5) a NAME.json.

    python graphs.py golden             graphs.zip, in this directory, which is committed
    python graphs.py applications DIR   one of each family of keras.applications
    python graphs.py random DIR N SEED  N random models, as randomgraphs.py makes them
    python graphs.py check DIR          what TestGraphsDir has saved there, loaded by Keras

Between the last two steps run, in ..,

    go test -run TestGraphsDir -graphs DIR

which loads each model, compares its outputs, and saves it again as
NAME.saved.keras. Only graphs.zip is committed.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
"""

import json
import os
import sys
import tempfile
import warnings
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import randomgraphs
import tensorflow as tf
from keras import Input, Model, Sequential, ops, tree
from keras import layers as L
from keras.src.applications.convnext import LayerScale, StochasticDepth
from keras.src.ops import nn
from keras.src.ops.numpy import Add

warnings.simplefilter("ignore")

# Keras 3.15 on TensorFlow adds a vector of shape [k 1] to the second axis if that has k
# elements and the last one but one does too, such as the bias [heads 1] of attention.
plain_add = keras.src.backend.numpy.add


def add(x1, x2):
    if all(getattr(x, "dtype", None) == "float32" for x in (x1, x2)):
        return tf.add(keras.src.backend.convert_to_tensor(x1), keras.src.backend.convert_to_tensor(x2))
    return plain_add(x1, x2)


keras.src.backend.numpy.add = add

W = 4  # features of a step
T = 5  # steps


# Small models, one for each feature.


def mask_of_embedding():
    i = Input((T,), dtype="int32")
    x = L.Embedding(7, W, mask_zero=True)(i)
    x = L.LSTM(3, return_sequences=True)(x)
    return Model(i, [L.GRU(2)(L.Dense(W)(x)), L.GlobalAveragePooling1D()(x)])


def mask_of_masking():
    x = Input((T, W))
    m = L.Masking()(x * ops.cast(x[:, :, :1] > 0.3, "float32"))
    return Model(x, L.Bidirectional(L.GRU(2))(L.Dropout(0.1)(m)))


def mask_of_merge():
    i, j = Input((T,), dtype="int32"), Input((T,), dtype="int32")
    e = L.Embedding(7, W, mask_zero=True)
    a, b = e(i), e(j)
    return Model([i, j], [L.LSTM(2)(L.Concatenate()([a, b])), L.LSTM(2)(L.Add()([a, b])), L.LSTM(2)(L.Concatenate(axis=1)([a, b]))])


def mask_argument():
    x, m = Input((T, W)), Input((T,), dtype="bool")
    y = L.SimpleRNN(3, return_sequences=True)(x, mask=m)
    return Model([x, m], [L.LSTM(2)(y), L.GlobalAveragePooling1D()(x, mask=m), L.BatchNormalization()(x, mask=m)])


def mask_of_attention():
    q, v, m, n = Input((T, W)), Input((3, W)), Input((T,), dtype="bool"), Input((3,), dtype="bool")
    full = ops.logical_and(ops.expand_dims(m, 2), ops.expand_dims(n, 1))  # a query that sees nothing sees the first step
    full = ops.concatenate([ops.ones_like(full[:, :, :1]), full[:, :, 1:]], axis=2)
    return Model([q, v, m, n], [
        L.Attention()([q, v], mask=[m, n]),
        L.Attention()([q, v], mask=[None, n], use_causal_mask=True),
        L.MultiHeadAttention(2, 2)(q, v, value_mask=n),
        L.MultiHeadAttention(2, 2)(q, v, key_mask=n),
        L.MultiHeadAttention(2, 2)(q, v, v, attention_mask=full),
    ])


def initial_state():
    x, y = Input((T, W)), Input((3, W))
    _, h, c = L.LSTM(3, return_state=True)(x)
    seq, h2, c2 = L.LSTM(3, return_sequences=True, return_state=True)(y, initial_state=[h, c])
    g = L.GRU(3)(y, initial_state=h2)
    b = L.Bidirectional(L.LSTM(3, name="both"))(y, initial_state=[h, c, h2, c2])
    return Model([x, y], [seq, g, b, L.Dense(2)(c2)])


def states_of_stacked_cells():
    x = Input((T, W))
    y, a, b = L.RNN([L.LSTMCell(3), L.GRUCell(2)], return_state=True)(x)
    return Model(x, [y, a, b])


def arithmetic():
    x, y = Input((T, W)), Input((W,))
    z = (1 - x) * 0.5 + y[:, None]
    z = z / (2.0 + ops.abs(x)) - abs(z) ** 2
    z = -z @ ops.transpose(x, (0, 2, 1)) + np.arange(T, dtype="float32")
    return Model([x, y], [L.Dense(2)(z), x // 0.25, x % 0.3, y ** 3])


def broadcast():  # shapes in which the layer Subtract broadcasts otherwise
    x, y = Input((2,)), Input((2, 2))
    return Model([x, y], [L.Dense(2)(x - y), ops.add(x, y), x * y])


def slices():
    x = Input((T, W))
    return Model(x, [x[:, 1:3], x[..., -1], x[:, ::2, None], L.Dense(2)(x[:, 0]), x[:, -2:, 1:], x[:, 1, 2]])


def shapes():
    x, y = Input((T, W)), Input((T, W))
    z = ops.concatenate([x, y], axis=-1)
    a, b, c = ops.split(x, [2, 3], axis=1)
    return Model([x, y], [
        ops.reshape(z, (-1, T * 2 * W)), ops.stack([x, y], axis=1), a + 1, ops.squeeze(b, 1), ops.swapaxes(c, 1, 2),
        ops.pad(x, [[0, 0], [1, 2], [0, 0]]), ops.tile(x, [1, 2, 1]), ops.repeat(x, 2, axis=1), ops.flip(x, axis=1),
        ops.take(x, [0, 2], axis=1), ops.moveaxis(x, 1, 2), ops.unstack(x, axis=2)[1], ops.broadcast_to(x[:, :, :1], (2, T, 3)),
        ops.roll(x, 2, axis=1), ops.ravel(x[:, 0]), ops.expand_dims(x, -1), ops.split(x, 2, axis=2)[0],
    ])


def reductions():
    x = Input((T, W))
    return Model(x, [
        ops.mean(x, axis=[1, 2], keepdims=True), ops.sum(x, axis=1), ops.max(x, axis=-1), ops.min(x, axis=1), ops.prod(x, axis=1),
        ops.logsumexp(x, axis=1), ops.var(x, axis=-1), ops.std(x, axis=-1, keepdims=True), ops.cast(ops.argmax(x, axis=-1), "float32"),
        ops.norm(x, axis=-1), ops.normalize(x, axis=1), ops.average(x, axis=1), ops.cumsum(x, axis=1), ops.cumsum(x, axis=2),
        ops.cast(ops.any(x > 0.9, axis=1), "float32"), ops.cast(ops.all(x > 0.1, axis=1), "float32"), ops.amax(x, axis=1),
        ops.cast(ops.count_nonzero(x > 0.5, axis=1), "float32"),
    ])


def elementwise():
    x, y = Input((T, W)), Input((T, W))
    z = ops.where(ops.logical_or(x > 0.5, ops.logical_not(y < 0.5)), x, 0.0)
    z = ops.clip(z, 0.1, 0.8) + ops.maximum(x, 0.3) + ops.minimum(x, y) + ops.square(y) + ops.sqrt(x) + ops.rsqrt(x + 1)
    z = z + ops.exp(x) + ops.log(y + 1) + ops.log1p(x) + ops.expm1(y) + ops.sign(x - 0.5) + ops.floor(3 * x) + ops.ceil(3 * y) + ops.round(7 * x)
    z = z + ops.sin(x) + ops.cos(y) + ops.tanh(x) + ops.erf(y) + ops.reciprocal(x + 1) + ops.power(x, 2.5) + ops.zeros_like(x) + ops.ones_like(y)
    return Model([x, y], [z, ops.einsum("abc,adc->abd", x, y), ops.matmul(x, np.ones((W, 2), "float32")), ops.one_hot(ops.cast(3 * x, "int32"), 3),
                          ops.stop_gradient(x), ops.full_like(x, 2.0), ops.dot(x, np.ones((W, 2), "float32")), ops.isfinite(x) * 1.0,
                          ops.cast(ops.equal(ops.round(x), ops.round(y)), "float32"), ops.log_softmax(x), ops.sinh(x), ops.logaddexp(x, y)])


def activations():
    i = Input((T, W))
    x = 4 * i - 2
    names = ["relu", "relu6", "sigmoid", "silu", "softplus", "softsign", "elu", "selu", "leaky_relu", "hard_sigmoid", "hard_silu",
             "log_sigmoid", "softmax", "log_softmax", "celu", "glu", "hard_tanh", "tanh_shrink", "soft_shrink", "hard_shrink",
             "squareplus", "sparse_plus", "sparse_sigmoid"]
    more = [ops.gelu(x), ops.gelu(x, approximate=False), ops.leaky_relu(x, 0.3), ops.elu(x, 0.5), ops.softmax(x, axis=1), ops.threshold(x, 0.1, 0.2)]
    return Model(i, [getattr(ops, n)(x) for n in names] + more)


def images():
    x = Input((6, 6, 3))
    return Model(x, [ops.max_pool(x, 2), ops.average_pool(x, 3, strides=1, padding="same"), ops.image.resize(x, (4, 5)),
                     ops.image.resize(x, (9, 9), interpolation="nearest"), L.UpSampling2D(2, interpolation="bicubic")(x),
                     L.UpSampling2D((2, 3), interpolation="lanczos3")(x), L.UpSampling2D(2, interpolation="lanczos5")(x),
                     L.Dropout(0.2, noise_shape=(None, 1, 1, 3))(x)])


def structures():
    a, b, c = Input((W,), name="a"), Input((W,), name="b"), Input((2,), name="c")
    x, y = L.Dense(3)(a) + b[:, :3], L.Dense(2)(b) * c
    return Model({"left": [a, b], "right": c}, {"sum": x, "more": [y, {"diff": x[:, :2] - y}]})


def dict_in_model():
    p, q = Input((W,), name="p"), Input((W,), name="q")
    inner = Model({"p": p, "q": q}, {"y": L.Dense(3)(p), "z": L.Dense(2)(q)}, name="inner")
    a, b = Input((W,)), Input((W,))
    first, second = inner({"p": a, "q": b}), inner({"q": a, "p": b})
    return Model([a, b], [first["y"] + second["y"], L.Dense(2)(first["z"])])


def time_distributed():
    h = Input((W,))
    inner = Model(h, L.Dense(3, "tanh")(h) + 1.0, name="inner")
    x = Input((T, W))
    y = L.TimeDistributed(inner)(x)
    z = L.TimeDistributed(Sequential([L.Dense(3), L.BatchNormalization(), L.Dropout(0.1)], name="stack"))(y)
    return Model(x, [y, z, L.TimeDistributed(L.TimeDistributed(L.Dense(2)))(x[:, :, :, None])])


def layers_as_activations():
    x = Input((W,))
    return Model(x, [
        L.Dense(3, activation=L.LeakyReLU(0.1))(x), L.Dense(3, activation=L.Softmax())(x), L.Dense(3, activation=L.ReLU(6.0))(x),
        L.Dense(3, activation=L.ELU(0.5))(x), L.Dense(3, activation=L.Activation("tanh"))(x), L.Activation(L.LeakyReLU(0.3))(x),
        L.Dense(3, activation=keras.activations.gelu)(x),
        L.Dense(2, activation=L.Identity())(x),
    ])


def operations_as_activations():  # without Sparsemax: in Keras 3.15 its results are 0, or no shares
    x = Input((W,))
    a = [nn.Gelu(approximate=True), nn.Gelu(approximate=False), nn.Celu(0.5), nn.LogSoftmax(axis=1), nn.Squareplus(b=2), nn.HardShrink(0.3),
         nn.SoftShrink(0.2), nn.LeakyRelu(-0.1), nn.Elu(0.3), nn.Silu(), nn.Threshold(0.1, 0.2)]
    return Model(x, [L.Dense(4, activation=f)(x) for f in a] + [L.Activation(nn.Glu(axis=1))(x), L.Activation(nn.Gelu(approximate=True))(x),
                                                                   L.GRU(2, activation=nn.SoftShrink(0.2))(x[:, None])])


def mask_and_states():  # a call with initial states uses only a mask that is an argument
    i, h, m = Input((T,), dtype="int32"), Input((2,)), Input((T,), dtype="bool")
    e = L.Embedding(7, W, mask_zero=True)(i)
    return Model([i, h, m], [L.GRU(2, return_sequences=True)(e, initial_state=h), L.LSTM(2)(e, initial_state=[h, h]), L.LSTM(2)(e, initial_state=[h, h], mask=m),
                             L.Bidirectional(L.GRU(2))(e, initial_state=[h, h]), L.Bidirectional(L.GRU(2, return_sequences=True))(e, initial_state=[h, h], mask=m),
                             L.LSTM(2)(L.GRU(2, return_sequences=True)(e, initial_state=h))])


def masked_merges():  # where all masks are false, Maximum and Minimum are the first input
    i, j, x = Input((T,), dtype="int32"), Input((T,), dtype="int32"), Input((T, W))
    a, b = L.Embedding(7, W, mask_zero=True)(i), L.Embedding(7, W, mask_zero=True)(j)
    return Model([i, j, x], [y for l in [L.Maximum, L.Minimum, L.Multiply] for y in [l()([a, b]), l()([a, a]), l()([b, x]), l()([a, b, a])]]
                 + [L.Dot(axes=-1)([a, b])])


def steps_without_a_size():
    x = Input((None, 3))
    d = L.SpatialDropout1D(0.5)
    d.trainable = False
    return Model(x, [L.ZeroPadding1D((1, 2))(x), L.Cropping1D((0, 1))(d(x)), L.Reshape((-1, 1, 3))(x), L.Reshape((None, 3))(x), ops.pad(x, [[0, 0], [1, 1], [0, 0]]),
                     L.GRU(2)(L.ZeroPadding1D(2)(x))])


def pipeline():
    x = Input((W,))
    y = L.Pipeline([L.Dense(3), L.Dropout(0.1), L.Pipeline([L.LayerNormalization(), L.Dense(2)])])(x)
    return Model(x, L.Dense(2)(y))


def pipeline_in_sequential():
    return Sequential([Input((6, 6, 3)), L.Pipeline([L.Rescaling(2.0), L.CenterCrop(4, 4)]), L.Flatten(), L.Dense(2)])


def convnext():
    x = Input((6, 6, 3))
    y = LayerScale(0.5, 3)(L.DepthwiseConv2D(3, padding="same")(x))
    return Model(x, L.GlobalAveragePooling2D()(x + StochasticDepth(0.2)(y)))


def shared_operation():  # one object of an operation, called twice
    x, y = Input((W,)), Input((W,))
    add = Add()
    return Model([x, y], L.Dense(2)(add.symbolic_call(add.symbolic_call(x, y), 1.0)))


def operations_in_models():
    h = Input((W,))
    f = Model(h, L.Dense(W)(h * 2) + h, name="f")
    x = Input((W,))
    return Model(x, [f(f(x)) - x, Sequential([L.Dense(2)], name="s")(x * 0.5)])


def frozen_rate():
    x = Input((W,))
    m = Model(x, L.Dense(2)(x + 1))
    m.compile(keras.optimizers.SGD(learning_rate=0.0), "mse")
    return m


GOLDEN = [mask_of_embedding, mask_of_masking, mask_of_merge, mask_argument, mask_of_attention, initial_state, states_of_stacked_cells,
          arithmetic, broadcast, slices, shapes, reductions, elementwise, activations, images, structures, dict_in_model,
          time_distributed, layers_as_activations, pipeline, pipeline_in_sequential, convnext, shared_operation, operations_in_models,
          frozen_rate, operations_as_activations, mask_and_states, masked_merges, steps_without_a_size]


# Files.


def draw(m, rng):
    """Random weights, moving statistics that are near those of small data, and a batch of 2."""
    for w in m.weights:
        if w.dtype.startswith("float"):
            v = w.numpy() + rng.normal(0, 0.2, w.shape)
            w.assign(np.abs(v) + 0.1 if "variance" in w.path else v)


def inputs(m, rng, n=2):
    out = []
    for t in m.inputs:
        shape = [n] + [T if d is None else d for d in t.shape[1:]]
        if t.dtype == "bool":
            v = rng.integers(0, 2, shape).astype(bool)
            v[..., 0] = True
        elif t.dtype.startswith("int"):
            v = rng.integers(0, 7, shape).astype(t.dtype)
        else:
            v = rng.random(shape).astype("float32")
        out.append(v)
    return out


def call(m, values):
    """The outputs of m, in order."""
    x = tree.pack_sequence_as(m._inputs_struct, values) if isinstance(m, keras.src.models.functional.Functional) and not isinstance(m, Sequential) else values[0]
    return [np.asarray(keras.ops.convert_to_numpy(y), "float32") for y in tree.flatten(m(x, training=False))]


def texts(values):
    """Arrays for JSON, in as few digits as tell float32 numbers apart."""
    return [{"shape": list(v.shape), "dtype": str(v.dtype), "values": [float(str(x)) if v.dtype == "float32" else int(x) for x in v.ravel()]} for v in values]


def save(m, folder, name, rng, n=2, suffix=".keras", given=None, **more):
    values = inputs(m, rng, n) if given is None else given
    m.save(os.path.join(folder, name + suffix))
    outputs = call(m, values)
    with open(os.path.join(folder, name + ".json"), "w") as f:
        json.dump({"inputs": texts(values), "outputs": texts(outputs), **more}, f)


def golden():
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as d:
        for make in GOLDEN:
            keras.utils.set_random_seed(1)
            keras.backend.clear_session()
            m = make()
            draw(m, rng)
            save(m, d, make.__name__, rng)
        with zipfile.ZipFile("graphs.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
            for name in sorted(os.listdir(d)):
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                with open(os.path.join(d, name), "rb") as f:
                    z.writestr(info, f.read())


# keras.applications: one of each family, with small inputs.

APPLICATIONS = {
    "mobilenet": ("MobileNet", 64), "mobilenet_v2": ("MobileNetV2", 64), "mobilenet_v3_small": ("MobileNetV3Small", 64),
    "mobilenet_v3_large": ("MobileNetV3Large", 64), "resnet50": ("ResNet50", 64), "resnet50_v2": ("ResNet50V2", 64),
    "vgg16": ("VGG16", 64), "inception_v3": ("InceptionV3", 96), "inception_resnet_v2": ("InceptionResNetV2", 96),
    "xception": ("Xception", 96), "densenet121": ("DenseNet121", 64), "efficientnet_b0": ("EfficientNetB0", 64),
    "efficientnet_v2_b0": ("EfficientNetV2B0", 64), "nasnet_mobile": ("NASNetMobile", 64), "convnext_tiny": ("ConvNeXtTiny", 64),
}


def application(name, policy="float32"):
    """The model with weights=None and 10 logits; VGG with layers of 64 in place of 4096."""
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    keras.config.set_dtype_policy(policy)
    try:
        cls, size = APPLICATIONS[name]
        more = {"include_preprocessing": True} if "v3_" in name or "_v2_b" in name or "convnext" in name else {}
        if name == "vgg16":
            base = keras.applications.VGG16(weights=None, include_top=False, input_shape=(size, size, 3))
            y = L.Flatten(name="flatten")(base.output)
            for k in ["fc1", "fc2"]:
                y = L.Dense(64, "relu", name=k)(y)
            return Model(base.input, L.Dense(10, name="predictions")(y), name="vgg16")
        return getattr(keras.applications, cls)(weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None, **more)
    finally:
        keras.config.set_dtype_policy("float32")


def calibrate(m, rng):
    """Random weights as of a trained model: scales and shifts of normalization are not 1 and 0,
    and moving statistics are near those of a batch, layer by layer, so that activations keep their size."""
    for w in m.weights:
        v = w.numpy()
        if "gamma" in w.path and "layer_scale" not in w.path:
            w.assign(rng.uniform(0.7, 1.3, v.shape))
        elif v.ndim == 1 and w.trainable:
            w.assign(v + rng.normal(0, 0.05, v.shape))
    for l in m.layers:
        if type(l).__name__ == "LayerScale":
            l.gamma.assign(rng.uniform(0.1, 0.5, l.gamma.shape))
    x = pictures(rng, 16, m.input_shape[1:])
    infer = L.BatchNormalization.call

    def measure(self, x, training=None, mask=None):
        axes = [i for i in range(len(x.shape)) if i != len(x.shape) - 1]
        # The mean stays 0: a random network that subtracts it amplifies every difference of its inputs, rounding too,
        # by a factor in each layer, which one that was trained does not.
        self.moving_variance.assign(ops.mean(ops.square(x), axes))
        return infer(self, x, training=False, mask=mask)

    L.BatchNormalization.call = measure
    try:
        m(x, training=False)
    finally:
        L.BatchNormalization.call = infer
    return x


def pictures(rng, n, shape):
    """Pictures of coarse patches in different colors and contrasts. Noise alone makes the same
    features of every picture, and normalization would divide by the little that differs."""
    coarse = rng.normal(0, 1, (n, 4, 4, 3)) * rng.uniform(0.3, 1, (n, 1, 1, 1)) + rng.normal(0, 0.7, (n, 1, 1, 3))
    x = np.asarray(ops.image.resize(coarse.astype("float32"), shape[:2])) + rng.normal(0, 0.15, (n,) + shape)
    return np.clip(x * 60 + 127, 0, 255).astype("float32")


def rms(a, b):
    return float(np.sqrt(np.mean(np.square(a.astype("float64") - b))) / max(np.abs(b).max(), 1e-30))


def applications(folder, names):
    for name in names or APPLICATIONS:
        rng = np.random.default_rng(1)
        m = application(name)
        x = calibrate(m, rng)[:2]
        half = application(name, "mixed_float16")
        half.set_weights(m.get_weights())
        double = application(name, "float64")
        double.set_weights(m.get_weights())
        y = call(m, [x])
        errors = [rms(a, b) for a, b in zip(call(half, [x]), y)]
        exact = np.asarray(double(x.astype("float64"), training=False))
        single = float(np.abs(y[0] - exact).max() / np.abs(exact).max())
        save(m, folder, name, rng, given=[x], Half=errors, Single=[single])
        print(name, m.count_params(), "error in float32 %.2g, in float16 %.2g" % (single, errors[0]), y[0][0, :4], flush=True)


def random(folder, n, seed):
    """Models that Keras can run and load again, and of which every number is finite."""
    os.makedirs(folder, exist_ok=True)
    made, refused = 0, []
    for i in range(10 * n):
        if made == n:
            break
        keras.backend.clear_session()
        rng = np.random.default_rng([seed, i])
        keras.utils.set_random_seed(int(rng.integers(2**31)))
        m = randomgraphs.model(rng)
        draw(m, rng)
        values = inputs(m, rng)
        name = f"random_{seed}_{i:04d}"
        try:
            outputs = call(m, values)
            if any(not np.isfinite(y).all() or np.abs(y).max(initial=0) > 1e4 for y in outputs):
                continue
            save(m, folder, name, rng, given=values)
            again = call(keras.models.load_model(os.path.join(folder, name + ".keras")), values)
            assert all(np.array_equal(a, b) for a, b in zip(again, outputs)), "it computes something else"
            made += 1
        except Exception as e:
            for suffix in [".keras", ".json"]:
                if os.path.exists(os.path.join(folder, name + suffix)):
                    os.remove(os.path.join(folder, name + suffix))
            refused.append(f"{name}: {str(e)[:120]!r}")
    for line in refused:
        print("Keras does not run or load", line)
    print(made, "models")


def check(folder):
    """Load what Go has saved, in Keras, and compare outputs with those that were measured."""
    names = sorted(n.removesuffix(".saved.keras") for n in os.listdir(folder) if n.endswith(".saved.keras"))
    failed = 0
    for name in names:
        with open(os.path.join(folder, name + ".json")) as f:
            case = json.load(f)
        values = [np.array(v["values"], v["dtype"]).reshape(v["shape"]) for v in case["inputs"]]
        try:
            m = keras.models.load_model(os.path.join(folder, name + ".saved.keras"))
            worst = 0.0
            outputs = call(m, values)
            assert len(outputs) == len(case["outputs"])
            for got, want in zip(outputs, case["outputs"]):
                want = np.array(want["values"]).reshape(want["shape"])
                assert got.shape == want.shape, (got.shape, want.shape)
                worst = max(worst, np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))
            assert worst <= 1e-5, f"outputs differ by {worst:.2g} of the largest number"
        except Exception as e:
            failed += 1
            while e.__cause__ or e.__context__:
                e = e.__cause__ or e.__context__
            text = str(e)
            text = text[text.rfind("Exception encountered:"):] if "Exception encountered:" in text else text
            print("FAIL", name, text[-400:].replace("\n", " "))
    print(f"{len(names) - failed} of {len(names)} models load in Keras and compute the same")
    sys.exit(failed > 0 or not names)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["golden"]:
            golden()
        case ["random", folder, n, seed]:
            random(folder, int(n), int(seed))
        case ["check", folder]:
            check(folder)
        case ["applications", folder, *names]:
            applications(folder, names)
        case _:
            sys.exit(__doc__)
