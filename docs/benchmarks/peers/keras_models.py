"""The networks of examples/bench in Keras: make(spec) returns the model, the
data of a step as inputs and targets, and the loss."""
import keras
import numpy as np
from keras import layers


def make(s):
    return MODELS[s["model"]](s)


def images(s, *shape):
    x = (np.random.rand(s["batch"], *shape) - 0.5).astype("float32")
    return x, (np.arange(s["batch"]) % 10).astype("int32")


def classes():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def mlp(s):
    sizes = s["sizes"]
    net = keras.Sequential([layers.Dense(u, activation="relu") for u in sizes[1:-1]] + [layers.Dense(sizes[-1]), layers.Activation("linear", dtype="float32")])
    return net, images(s, sizes[0]), classes()


def cnn(s):
    a, b = s["filters"]
    net = keras.Sequential([
        layers.Conv2D(a, 3, padding=s["padding"], activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(b, 3, padding=s["padding"], activation="relu"), layers.MaxPooling2D(),
        layers.Flatten(), layers.Dense(10), layers.Activation("linear", dtype="float32")])
    return net, images(s, s["size"], s["size"], 1), classes()


MODELS = {"mlp": mlp, "cnn": cnn}
