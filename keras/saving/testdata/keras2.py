"""keras2.zip: whole models in the `.h5` format of Keras 2, as tf_keras writes it.

    python keras2.py        keras2.zip, in this directory: NAME.h5 and NAME.json as of graphs.py

TestKeras2 loads them, compares outputs, and saves them as `.keras`; with -keras2 DIR it leaves
these in DIR, for python graphs.py check DIR.

Made with tf_keras 2.21.0, TensorFlow 2.21.0 (CPU), Python 3.11.
"""

import json
import os
import zipfile

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tf_keras import Input, Model, Sequential
from tf_keras import layers as L


def sequential():
    m = Sequential([L.Dense(4, "relu", input_shape=(3,), kernel_regularizer="l2"), L.Dropout(0.2), L.BatchNormalization(), L.Dense(2, "softmax")])
    m.compile(keras.optimizers.Adam(0.01), "categorical_crossentropy", metrics=["accuracy"])
    m.fit(np.random.rand(8, 3), np.eye(2)[np.random.randint(0, 2, 8)], verbose=0)
    return m


def unnamed_input():  # a Sequential without an Input, built by its first call
    m = Sequential([L.Flatten(), L.Dense(3)])
    m(np.zeros((1, 2, 2), "float32"))
    return m


def shared():
    a, b = Input((3,), name="a"), Input((3,), name="b")
    d = L.Dense(3, "tanh", name="twice")
    y = L.concatenate([d(a), d(b), L.subtract([a, b])])
    return Model([a, b], [L.Dense(2, kernel_initializer=keras.initializers.RandomNormal(stddev=0.1))(y), L.Dense(1, kernel_constraint="non_neg")(d(d(a)))])


def block(name):
    p, q = Input((3,)), Input((3,))
    return Model([p, q], [L.Dense(2)(L.BatchNormalization()(p)), L.Multiply()([p, q])], name=name)


def stack(name):
    return Sequential([Input((3,)), L.Dense(3, "relu", trainable=False), L.BatchNormalization(), L.Dense(3)], name=name)


def nested():
    outer = Input((3,))
    middle = Model(outer, block("inner")([stack("first")(outer), outer])[1], name="middle")
    x = Input((3,))
    b, s = block("block"), stack("stack")
    y = middle(x)
    u, v = b([x, y])
    return Model(x, [u, s(v), L.Add()([middle(v), s(x)]), b([v, x])[0]])


def only_nested():  # a nested model is the output
    x = Input((3,))
    inner = Sequential([Input((3,)), L.Dense(2)], name="inner")
    return Model(x, inner(x))


def recurrent():
    x = Input((5, 3))
    y = L.GRU(3, return_sequences=True, reset_after=True)(x)
    z = L.GRU(2, return_sequences=True, reset_after=False, recurrent_activation="sigmoid")(x)
    s, h, c = L.LSTM(3, return_sequences=True, return_state=True)(y)
    return Model(x, [L.SimpleRNN(2)(s), L.LSTM(3)(z, initial_state=[h, c]), L.Bidirectional(L.LSTM(2, return_sequences=True), merge_mode="sum")(x),
                     L.Bidirectional(L.GRU(2))(z), L.RNN([L.LSTMCell(2), L.GRUCell(3)])(x), L.TimeDistributed(L.Dense(2))(y)])


def masks():
    i, m = Input((5,), dtype="int32"), Input((5,), dtype="bool")
    e = L.Embedding(7, 3, mask_zero=True, input_length=5)(i)
    x = L.Dropout(0.1)(e)
    return Model([i, m], [L.LSTM(2)(x), L.Bidirectional(L.GRU(2))(x), L.GRU(2, return_sequences=True)(L.Embedding(7, 2)(i), mask=m),
                          L.GlobalAveragePooling1D()(e), L.LSTM(2)(L.Masking()(L.Dense(3)(e)))])


def images():
    x = Input((6, 6, 3))
    y = L.Conv2D(4, 3, padding="same", use_bias=False)(x)
    y = L.ReLU(6.0)(L.BatchNormalization(momentum=0.9)(y))
    z = L.DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="relu")(y)
    z = L.SeparableConv2D(3, 2, depth_multiplier=2, activation="swish")(z)
    t = L.Conv2DTranspose(2, 3, strides=2)(L.ZeroPadding2D(((1, 0), (0, 1)))(y))
    u = L.LeakyReLU(alpha=0.2)(L.UpSampling2D(2)(L.MaxPooling2D()(y)))
    v = L.PReLU(shared_axes=[1, 2])(L.LayerNormalization(axis=[2, 3])(u))
    return Model(x, [L.GlobalAveragePooling2D()(z), t, L.Conv2D(2, 2, strides=2, data_format="channels_last")(v), L.ELU(0.5)(L.Flatten()(z)),
                     L.SeparableConv1D(2, 2)(L.Reshape((12, 12))(y)), L.Softmax()(L.Cropping2D(1)(y))])


def attention():
    q, v = Input((4, 6)), Input((3, 6))
    return Model([q, v], [L.MultiHeadAttention(2, 3)(q, v), L.Attention(use_scale=True)([q, v]), L.AdditiveAttention()([q, v]),
                          L.MultiHeadAttention(2, 2, value_dim=3)(q, v, v, use_causal_mask=True), L.Dot(axes=2)([q, v])])


def mixed_float16():
    keras.mixed_precision.set_global_policy("mixed_float16")
    x = Input((3,))
    m = Model(x, L.Dense(2, dtype="float32")(L.Dense(4, "relu")(x)))
    keras.mixed_precision.set_global_policy("float32")
    return m


def refused_lambda():
    x = Input((3,))
    return Model(x, L.Lambda(lambda t: t * 2)(x))


def refused_operation():
    x = Input((3,))
    return Model(x, L.Dense(2)(x * 2.0))


def refused_hard_sigmoid():
    return Sequential([Input((3,)), L.Dense(2, "hard_sigmoid")])


def refused_mask_and_states():
    i, h = Input((5,), dtype="int32"), Input((2,))
    return Model([i, h], L.GRU(2)(L.Embedding(7, 3, mask_zero=True)(i), initial_state=h))


def shared_by_models():  # which Keras 2 itself loads as two layers
    x, y = Input((3,)), Input((3,))
    d = L.Dense(3, name="both")
    return Model(x, d(Model(y, d(y), name="inner")(x)))


CASES = [sequential, unnamed_input, shared, nested, only_nested, recurrent, masks, images, attention, mixed_float16, shared_by_models,
         refused_lambda, refused_operation, refused_hard_sigmoid, refused_mask_and_states]


def texts(values):
    return [{"shape": list(v.shape), "dtype": str(v.dtype), "values": [float(str(x)) if v.dtype == "float32" else int(x) for x in v.ravel()]} for v in values]


rng = np.random.default_rng(1)
with zipfile.ZipFile("keras2.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:

    def add(name, data):
        z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED, 9)

    for make in CASES:
        keras.utils.set_random_seed(1)
        keras.backend.clear_session()
        m = make()
        for w in m.weights:
            if w.dtype.is_floating:
                v = w.numpy() + rng.normal(0, 0.2, w.shape)
                w.assign(np.abs(v) + 0.1 if "variance" in w.name else v)
        values = []
        for t in m.inputs:
            shape = [2] + list(t.shape[1:])
            if t.dtype == tf.bool:
                v = rng.integers(0, 2, shape).astype(bool)
                v[:, 0] = True
            elif t.dtype == tf.int32:
                v = rng.integers(0, 7, shape).astype("int32")
            else:
                v = rng.random(shape).astype("float32")
            values.append(v)
        outputs = m(values if len(values) > 1 else values[0], training=False)
        outputs = [np.asarray(y, "float32") for y in (outputs if isinstance(outputs, list) else [outputs])]
        m.save("m.h5", save_format="h5", include_optimizer=make is sequential)
        with open("m.h5", "rb") as f:
            add(make.__name__ + ".h5", f.read())
        add(make.__name__ + ".json", json.dumps({"inputs": texts(values), "outputs": texts(outputs)}))
    os.remove("m.h5")
