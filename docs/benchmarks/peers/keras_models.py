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


def unet(s):
    def block(x, filters):
        for _ in range(2):
            x = layers.Conv2D(filters, 3, activation="relu")(x)
            x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
        return x

    inputs = keras.Input((s["size"], s["size"], 3))
    x, filters, skips = inputs, s["filters"], []
    for _ in range(s["depth"]):
        x = block(x, filters)
        skips.append(x)
        x, filters = layers.MaxPooling2D()(x), 2 * filters
    x = block(x, filters)
    for skip in reversed(skips):
        filters //= 2
        x = layers.Conv2DTranspose(filters, 2, 2)(x)
        m = skip.shape[1] - x.shape[1]
        crop = (m // 2, m - m // 2)
        x = block(layers.Concatenate()([layers.Cropping2D((crop, crop))(skip), x]), filters)
    out = layers.Activation("linear", dtype="float32")(layers.Conv2D(s["classes"], 1)(x))
    net = keras.Model(inputs, out)
    x, _ = images(s, s["size"], s["size"], 3)
    return net, (x, np.random.randint(s["classes"], size=(s["batch"],) + out.shape[1:3])), classes()


class Position(layers.Layer):
    def build(self, shape):
        self.table = self.add_weight(shape=(shape[1], shape[2]), initializer="uniform")

    def call(self, x):
        return x + keras.ops.cast(self.table, x.dtype)


def bert(s):
    """With start and end logits from the last two layers."""
    h, t = s["hidden"], s["tokens"]
    tokens, kinds = keras.Input((t,), dtype="int32"), keras.Input((t,), dtype="int32")

    def norm(x):
        return layers.LayerNormalization(epsilon=1e-12)(x)

    drop = s["dropout"]
    x = Position()(layers.Embedding(s["vocabulary"], h)(tokens))
    x = layers.Dropout(drop)(norm(layers.Add()([x, layers.Embedding(s["types"], h)(kinds)])))
    mask = keras.ops.not_equal(tokens, 0)[:, None, :]
    hidden = []
    for _ in range(s["layers"]):
        seen = layers.MultiHeadAttention(s["heads"], h // s["heads"], dropout=drop)(x, x, attention_mask=mask)
        x = norm(layers.Add()([x, layers.Dropout(drop)(seen)]))
        inner = layers.Dense(h)(layers.Dense(s["intermediate"], activation="gelu")(x))
        x = norm(layers.Add()([x, layers.Dropout(drop)(inner)]))
        hidden.append(x)
    both = layers.Dropout(drop)(layers.Concatenate()([hidden[-1], hidden[-2]]))
    ends = layers.Activation("linear", dtype="float32")(layers.Dense(2)(both))
    net = keras.Model([tokens, kinds], [ends[:, :, 0], ends[:, :, 1]])
    b = s["batch"]
    x = (np.random.randint(1, s["vocabulary"], (b, t)).astype("int32"), np.random.randint(s["types"], size=(b, t)).astype("int32"))
    y = (np.random.randint(t, size=b).astype("int32"), np.random.randint(t, size=b).astype("int32"))
    return net, (x, y), [classes(), classes()]


class MinimalGate(layers.Layer):
    """A cell of one gate."""

    def __init__(self, units):
        super().__init__()
        self.units = self.state_size = units

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 2 * self.units))
        self.u = self.add_weight(shape=(self.units, 2 * self.units))

    def call(self, x, states):
        z = keras.ops.matmul(x, self.w) + keras.ops.matmul(states[0], self.u)
        f, g = keras.ops.split(z, 2, -1)
        g = keras.ops.tanh(g)
        h = g + keras.ops.sigmoid(f) * (states[0] - g)
        return h, [h]


RECURRENT = {"lstm": layers.LSTM, "gru": layers.GRU, "rnn": layers.SimpleRNN,
             "custom": lambda units: layers.RNN(MinimalGate(units))}


def recurrent(s):
    net = keras.Sequential([RECURRENT[s["cell"]](s["units"]), layers.Dense(10), layers.Activation("linear", dtype="float32")])
    return net, images(s, s["size"], s["size"]), classes()


MODELS = {"mlp": mlp, "cnn": cnn, "recurrent": recurrent, "unet": unet, "bert": bert}
