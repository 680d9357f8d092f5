"""Writes with Keras 3 the models that the tests load. Run it in this directory."""

import gzip
import json
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)


def functional():
    """Two inputs, layers that Keras counts in another order than they are
    called in, and a model within the model."""
    x, y = keras.Input((4,)), keras.Input((4,))
    a = layers.Dense(4, activation="relu", name="first")(x)
    b = layers.Dense(5, kernel_regularizer="l2", name="second")(a)
    c = layers.Dense(5, kernel_initializer=keras.initializers.RandomNormal(stddev=0.5), name="third")(y)
    d = layers.Add()([c, b])
    e = layers.BatchNormalization()(d)
    nested = keras.Sequential([layers.Dense(3), layers.Dropout(0.5), layers.LayerNormalization()], name="nested")
    m = keras.Model([x, y], nested(e))
    m.compile(keras.optimizers.Adam(0.01), "mse")
    data = [np.random.rand(8, 4).astype("float32") for _ in range(2)]
    m.fit(data, np.random.rand(8, 3), epochs=3, verbose=0)
    return m, data


def attention():
    s = keras.Input((5, 4))
    t = layers.MultiHeadAttention(2, 3, dropout=0.1)(s, s)
    t = layers.SpectralNormalization(layers.Dense(3))(t)
    t = layers.LayerNormalization()(t)
    t = layers.Flatten()(t)
    m = keras.Model(s, t)
    return m, [np.random.rand(2, 5, 4).astype("float32")]


def sequential():
    m = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            layers.Embedding(7, 4),
            layers.Flatten(),
            layers.Dense(4, activation="relu", kernel_constraint=keras.constraints.MaxNorm(2)),
            layers.Dense(2, activation="softmax"),
        ]
    )
    return m, [np.array([[0, 1, 2], [6, 5, 4]], "int32")]


def recurrent():
    x = keras.Input((5, 3))
    t = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
    t = layers.RNN([layers.GRUCell(3), layers.LSTMCell(2), layers.GRUCell(2)], return_sequences=True)(t)
    t = layers.TimeDistributed(layers.Dense(3, activation="tanh"))(t)
    t = layers.SimpleRNN(3, return_sequences=True, go_backwards=True)(t)
    a, b = layers.Bidirectional(layers.GRU(2, reset_after=False), merge_mode=None)(t)
    return keras.Model(x, layers.Concatenate()([a, b, layers.LSTM(3, dropout=0.2)(t)])), [np.random.rand(2, 5, 3).astype("float32")]


def arguments():
    """Activations with arguments, which are layers, and shapes of noise with
    None."""
    x = keras.Input((5, 4))
    t = layers.Dense(4, activation=layers.LeakyReLU(0.4))(x)
    t = layers.Dropout(0.2, noise_shape=(None, 1, 4))(t)
    t = layers.SimpleRNN(3, activation=layers.ELU(0.7), return_sequences=True)(t)
    t = layers.AlphaDropout(0.1, noise_shape=[None, None, 1])(t)
    t = layers.Activation(layers.ReLU(6.0, 0.1, 0.25))(t)
    return keras.Model(x, layers.Dense(3, activation=layers.Softmax(axis=1))(t)), [np.random.randn(2, 5, 4).astype("float32")]


def save(name, m, data):
    m.save(name + ".keras")
    with open(name + ".keras", "rb") as f:
        b = f.read()
    os.remove(name + ".keras")
    with open(name + ".keras.gz", "wb") as f:
        f.write(gzip.compress(b, mtime=0))
    y = m.predict(data if len(data) > 1 else data[0], verbose=0)
    case = {
        "shapes": [list(d.shape) for d in data],
        "inputs": [d.flatten().tolist() for d in data],
        "output": y.flatten().tolist(),
    }
    with open(name + ".json", "w") as f:
        json.dump(case, f)


save("functional", *functional())
save("attention", *attention())
save("sequential", *sequential())
save("recurrent", *recurrent())
save("arguments", *arguments())
