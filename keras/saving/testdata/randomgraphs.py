"""Random functional models of Keras, for graphs.py random.

A model grows from some inputs: each step applies a layer, an operation or a model to
tensors that are there. Layers are called again on other tensors of the same shape, as
are models, which grow the same way. What Keras refuses is left out: Model grows by
what is left.
"""

import keras
import numpy as np
from keras import Input, Model, Sequential, ops
from keras import layers as L

ACTIVATIONS = ["relu", "tanh", "sigmoid", "elu", "selu", "softplus", "softsign", "silu", "gelu", "softmax", "linear", None, "leaky_relu",
               "hard_sigmoid", "mish", "relu6", "exponential", "log_softmax", "celu", "hard_tanh", "squareplus"]
BOUNDED = ["tanh", "sigmoid", "softsign", "hard_sigmoid"]


class Grower:
    """Tensors and layers of one model."""

    def __init__(self, rng, depth=0):
        self.rng, self.depth = rng, depth
        self.tensors, self.used, self.made = [], set(), []

    # Choices.

    def one(self, all):
        return all[self.rng.integers(len(all))]

    def chance(self, p):
        return self.rng.random() < p

    def int(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def take(self, rank=None, float_only=True, like=None):
        """A tensor, rather one that nothing takes yet."""
        found = [t for t in self.tensors if (rank is None or len(t.shape) == rank) and (like is None or t.shape == like)
                 and (not float_only or t.dtype == "float32")]
        if not found:
            raise LookupError
        fresh = [t for t in found if id(t) not in self.used]
        t = self.one(fresh if fresh and self.chance(0.7) else found)
        return t

    def activation(self):
        if self.chance(0.1):
            return self.one([lambda: L.LeakyReLU(0.2), lambda: L.ReLU(3.0), lambda: L.ELU(0.7), lambda: L.Softmax(), lambda: L.Activation("tanh")])()
        return self.one(ACTIVATIONS)

    def name(self, **more):
        if self.chance(0.15):
            more["name"] = self.one(["block", "My Layer", "stage-1", "größe", "a.b", "conv2d_99"]) + str(self.int(0, 10**6))
        return more

    def dense_options(self):
        r = {"activation": self.activation(), "use_bias": self.chance(0.8)}
        if self.chance(0.15):
            r["kernel_regularizer"] = self.one(["l2", keras.regularizers.L1(0.01), keras.regularizers.L1L2(0.01, 0.02), keras.regularizers.OrthogonalRegularizer(0.02)])
        if self.chance(0.15):
            r["kernel_constraint"] = self.one(["non_neg", keras.constraints.MaxNorm(2.0), keras.constraints.UnitNorm(0)])
        if self.chance(0.15):
            r["kernel_initializer"] = self.one(["he_normal", keras.initializers.RandomNormal(stddev=0.3), keras.initializers.VarianceScaling(0.5, "fan_out", "uniform"),
                                                keras.initializers.Constant(0.1), keras.initializers.Orthogonal(gain=0.9), "lecun_uniform"])
        return r

    def flatten(self, x):
        """Flatten, or a layer that needs no sizes: Mezzo's Flatten and adaptive pooling do."""
        return L.Flatten() if None not in x.shape[1:] else L.Identity()

    # One step.

    def keep(self, results, *taken):
        for t in taken:
            self.used.add(id(t))
        self.tensors += results

    def apply(self, layer, *inputs, shared=True, **kwargs):
        x = inputs[0] if len(inputs) == 1 else list(inputs)
        y = layer(x, **kwargs)
        self.keep([t for t in keras.tree.flatten(y) if not any(t is i for i in inputs)], *inputs)
        if shared:
            self.made.append((layer, [i.shape for i in inputs]))
        return y

    def again(self):
        """A layer or model on other tensors."""
        layer, shapes = self.one(self.made)
        self.apply(layer, *[self.take(like=s) for s in shapes], shared=False)

    def vector(self):
        x = self.take(2)
        n = x.shape[-1]
        self.apply(self.one([
            lambda: L.Dense(self.int(1, 5), **self.dense_options(), **self.name()),
            lambda: L.Dense(self.int(1, 5), **self.dense_options()),
            lambda: L.Dropout(0.3), lambda: L.BatchNormalization(momentum=0.9, center=self.chance(0.8), scale=self.chance(0.8)),
            lambda: L.LayerNormalization(), lambda: L.UnitNormalization(), lambda: L.RMSNormalization(), lambda: L.PReLU(),
            lambda: L.Reshape((n, 1)), lambda: L.Reshape((1, -1)), lambda: L.RepeatVector(self.int(1, 4)), lambda: L.GaussianNoise(0.1),
            lambda: L.AlphaDropout(0.2), lambda: L.ActivityRegularization(0.01), lambda: L.Rescaling(0.5, 0.1), lambda: L.Identity(),
            lambda: L.Activation(self.activation() or "relu"), lambda: L.SpectralNormalization(L.Dense(3)),
            lambda: L.GroupNormalization(self.one([1, -1])), lambda: L.Normalization(mean=0.2, variance=1.5), lambda: self.flatten(x),
            lambda: L.EinsumDense("ab,bc->ac", self.int(1, 4), bias_axes="c"), lambda: L.Reshape((n,)),
        ])(), x)

    def recurrent(self):
        x = self.take(3)
        units = self.int(1, 4)
        o = {"return_sequences": self.chance(0.6), "go_backwards": self.chance(0.2), "unroll": self.chance(0.1) and x.shape[1] is not None}
        cell = self.one([L.SimpleRNNCell, L.LSTMCell, L.GRUCell])
        r = self.one([
            lambda: L.LSTM(units, activation=self.one(BOUNDED), unit_forget_bias=self.chance(0.5), use_bias=self.chance(0.8), recurrent_dropout=0.1, **o),
            lambda: L.GRU(units, reset_after=self.chance(0.5), dropout=0.1, use_bias=self.chance(0.8), **o, **self.name()),
            lambda: L.SimpleRNN(units, activation=self.one(BOUNDED), use_bias=self.chance(0.8), **o),
            lambda: L.RNN(cell(units), **o),
            lambda: L.RNN([cell(units), L.GRUCell(2)], **o),
            lambda: L.Bidirectional(self.one([L.LSTM, L.GRU, L.SimpleRNN])(units, return_sequences=o["return_sequences"]), merge_mode=self.one(["concat", "sum", "ave", "mul", None])),
            lambda: L.Bidirectional(L.GRU(units, return_sequences=True), backward_layer=L.LSTM(units, return_sequences=True, go_backwards=True)),
            lambda: L.LSTM(units, return_state=True, **o), lambda: L.GRU(units, return_state=True, **o),
        ])()
        self.apply(r, x)

    def states(self):
        """A recurrent layer that starts with vectors."""
        x, h = self.take(3), self.take(2)
        n = h.shape[-1]
        if self.chance(0.5):
            y = L.GRU(n, return_sequences=self.chance(0.5))(x, initial_state=h)
        else:
            y = L.LSTM(n)(x, initial_state=[h, self.take(like=h.shape)])
        self.keep([y], x, h)

    def sequence(self):
        x = self.take(3)
        steps, n = x.shape[1:]
        same = {"padding": self.one(["same", "causal"])}
        self.apply(self.one([
            lambda: L.Conv1D(self.int(1, 4), self.int(1, 3), activation=self.activation(), **same),
            lambda: L.Conv1D(self.int(1, 4), 2, strides=2, padding="same"),
            lambda: L.Conv1D(n * 2, 2, groups=n, padding="same"), lambda: L.Conv1D(2, 2, dilation_rate=2, padding="causal"),
            lambda: L.DepthwiseConv1D(2, depth_multiplier=2, padding="same"), lambda: L.SeparableConv1D(3, 2, padding="same"),
            lambda: L.Conv1DTranspose(2, 3, strides=2), lambda: L.MaxPooling1D(2, padding="same"), lambda: L.AveragePooling1D(2, strides=1),
            lambda: L.GlobalAveragePooling1D(keepdims=self.chance(0.3)), lambda: L.GlobalMaxPooling1D(), lambda: L.Dense(self.int(1, 4), **self.dense_options()),
            lambda: L.TimeDistributed(L.Dense(self.int(1, 4), activation="tanh")), lambda: L.BatchNormalization(), lambda: L.LayerNormalization(epsilon=1e-2),
            lambda: L.LayerNormalization(axis=[1, 2]), lambda: L.Masking(0.0), lambda: L.SpatialDropout1D(0.2), lambda: self.flatten(x),
            lambda: L.Permute((2, 1)), lambda: L.ZeroPadding1D((1, 2)), lambda: L.Cropping1D((0, 1)), lambda: L.UpSampling1D(2),
            lambda: L.Reshape((steps, 1, n)), lambda: L.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d", activation="relu"),
            lambda: L.PReLU(shared_axes=[1]), lambda: L.Softmax(axis=1), lambda: L.GroupNormalization(groups=1), lambda: L.Bidirectional(L.LSTM(2)),
            lambda: L.AdaptiveAveragePooling1D(2) if steps else L.Activation("tanh"), lambda: L.Dropout(0.1, noise_shape=(None, 1, n)),
        ])(), x)

    def attention(self):
        q, v = self.take(3), self.take(3)
        same = q.shape[-1] == v.shape[-1]
        kind = self.int(0, 4)
        if kind == 0 and same:
            y = L.Attention(use_scale=self.chance(0.5), score_mode=self.one(["dot", "concat"]))([q, v], use_causal_mask=self.chance(0.3))
        elif kind == 1 and same:
            y = L.AdditiveAttention(use_scale=self.chance(0.5))([q, v])
        elif kind == 2:
            y = L.GroupQueryAttention(2, 4, 2, use_bias=self.chance(0.5))(q, v)
        else:
            a = L.MultiHeadAttention(self.int(1, 3), self.int(1, 3), value_dim=self.one([None, 2]), use_bias=self.chance(0.7), output_shape=self.one([None, 3]))
            if self.chance(0.3):
                y = a(q, v, return_attention_scores=True)[self.int(0, 1)]
            else:
                y = a(q, v, use_causal_mask=self.chance(0.3))
        self.keep([y], q, v)

    def image(self):
        x = self.take(4)
        h, w, n = x.shape[1:]
        k = self.one([1, 2, 3, (2, 3)])
        self.apply(self.one([
            lambda: L.Conv2D(self.int(1, 4), k, padding=self.one(["same", "valid"]), activation=self.activation(), use_bias=self.chance(0.8), **self.name()),
            lambda: L.Conv2D(3, k, strides=2, padding="same"), lambda: L.Conv2D(n * 2, 2, groups=n, padding="same"), lambda: L.Conv2D(2, 2, dilation_rate=2, padding="same"),
            lambda: L.DepthwiseConv2D(k, depth_multiplier=self.int(1, 2), padding="same", activation=self.activation()),
            lambda: L.SeparableConv2D(self.int(1, 3), k, padding="same", depth_multiplier=self.int(1, 2)), lambda: L.Conv2DTranspose(2, k, strides=2, padding=self.one(["same", "valid"])),
            lambda: L.MaxPooling2D(2, padding="same"), lambda: L.AveragePooling2D(2, strides=1, padding="same"), lambda: L.GlobalAveragePooling2D(keepdims=self.chance(0.3)),
            lambda: L.GlobalMaxPooling2D(), lambda: L.BatchNormalization(), lambda: L.LayerNormalization(), lambda: L.GroupNormalization(n), lambda: self.flatten(x),
            lambda: L.Reshape((h * w, n)), lambda: L.ZeroPadding2D(((1, 0), (0, 2))), lambda: L.Cropping2D(((0, 1), (0, 1))),
            lambda: L.UpSampling2D(2, interpolation=self.one(["nearest", "bilinear"])), lambda: L.Resizing(4, 5), lambda: L.CenterCrop(3, 3), lambda: L.SpatialDropout2D(0.2),
            lambda: L.Permute((2, 1, 3)), lambda: L.TimeDistributed(L.Conv1D(2, 2, padding="same")), lambda: L.TimeDistributed(L.GRU(2)), lambda: L.Dense(2, **self.dense_options()),
            lambda: L.RandomFlip(), lambda: L.RandomRotation(0.1), lambda: L.PReLU(shared_axes=[1, 2]), lambda: L.ConvLSTM1D(2, 2, padding="same"),
            lambda: L.AdaptiveMaxPooling2D(2) if h and w else L.Activation("tanh"), lambda: L.SpectralNormalization(L.Conv2D(2, 2, padding="same")),
        ])(), x)

    def merge(self):
        x = self.take()
        y = self.take(like=x.shape)
        merge = self.one([L.Add, L.Multiply, L.Maximum, L.Minimum, L.Average, L.Subtract, L.Concatenate, L.Concatenate])
        options = {"axis": self.one([-1, 1])} if merge is L.Concatenate and len(x.shape) > 2 else {}
        more = [self.take(like=x.shape)] if merge is not L.Subtract and self.chance(0.3) else []
        if self.chance(0.15) and len(x.shape) <= 3:
            merge, options, more = L.Dot, {"axes": -1, "normalize": self.chance(0.5)}, []
        self.apply(merge(**options), x, y, *more)

    def arithmetic(self):
        x = self.take()
        y = self.take(like=x.shape) if self.chance(0.5) else float(np.float32(self.rng.random() + 0.5))
        f = self.one([lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: b - a, lambda a, b: ops.maximum(a, b), lambda a, b: a / (abs(b) + 1.0),
                      lambda a, b: ops.where(a > b, a, b), lambda a, b: ops.minimum(b, a)])
        self.keep([f(x, y)], *[t for t in (x, y) if not isinstance(t, float)])

    def operation(self):
        x = self.take()
        axis = self.int(1, len(x.shape) - 1)
        y = self.one([
            lambda: ops.tanh(x), lambda: ops.sin(x), lambda: ops.square(x) * 0.1, lambda: -x, lambda: ops.mean(x, axis=axis, keepdims=True), lambda: ops.sum(x, axis=-1, keepdims=True),
            lambda: ops.max(x, axis=axis, keepdims=True), lambda: ops.clip(x, -1.0, 1.0), lambda: ops.sigmoid(x), lambda: ops.relu(x), lambda: ops.softmax(x, axis=axis),
            lambda: ops.flip(x, axis=axis), lambda: ops.roll(x, 1, axis=axis), lambda: ops.expand_dims(x, axis) if len(x.shape) < 4 else x * 2,
            lambda: x[:, 1:], lambda: x[..., :1], lambda: x[:, -1], lambda: ops.swapaxes(x, 1, len(x.shape) - 1), lambda: ops.stop_gradient(x), lambda: ops.abs(x),
            lambda: ops.stack([x, x * 2], axis=1) if len(x.shape) < 4 else x, lambda: ops.concatenate([x, x], axis=axis), lambda: ops.split(x, 2, axis=axis)[1],
            lambda: ops.log(ops.abs(x) + 1.0), lambda: ops.sqrt(ops.abs(x) + 0.1), lambda: ops.repeat(x, 2, axis=axis), lambda: ops.take(x, [0, 0], axis=axis),
            lambda: ops.pad(x, [[0, 0]] + [[0, 1]] * (len(x.shape) - 1)), lambda: ops.gelu(x), lambda: ops.leaky_relu(x, 0.1), lambda: ops.cumsum(x, axis=axis) * 0.3,
            lambda: ops.matmul(x, ops.swapaxes(x, 1, 2)) if len(x.shape) == 3 else x + 1, lambda: ops.normalize(x, axis=axis), lambda: ops.cast(x, "float32") * 2.0,
            lambda: ops.reshape(x, (-1, int(np.prod(x.shape[1:])))), lambda: ops.mean(x, axis=axis) if len(x.shape) > 2 else ops.exp(-ops.abs(x)),
        ])()
        if y is not x:
            self.keep([y], x)

    def embedding(self):
        x = self.one([t for t in self.tensors if t.dtype == "int32"] or [None])
        if x is None:
            raise LookupError
        self.apply(L.Embedding(7, self.int(1, 4), mask_zero=self.chance(0.7)), x)

    def masked(self):
        m = self.one([t for t in self.tensors if t.dtype == "bool"] or [None])
        x = self.take(3)
        if m is None or x.shape[1] != m.shape[1]:
            raise LookupError
        y = self.one([L.LSTM(2, return_sequences=True), L.GRU(3), L.GlobalAveragePooling1D(), L.SimpleRNN(2, return_sequences=True), L.Bidirectional(L.LSTM(2))])(x, mask=m)
        self.keep([y], x, m)

    def arguments(self):
        """Layers and models that are called with training=False."""
        x = self.take()
        l = self.one([L.BatchNormalization, lambda: L.Dropout(0.5)])()
        self.keep([l(x, training=False)], x)

    def frozen(self):
        if self.made:
            self.one(self.made)[0].trainable = False
        raise LookupError  # no new tensor

    def model(self):
        """A model that grows by itself, on one or more sets of tensors."""
        if self.depth >= 2:
            raise LookupError
        inputs = [self.take() for _ in range(self.int(1, 2))]
        if len(inputs) == 2 and inputs[0] is inputs[1]:
            inputs.pop()
        if len(inputs) == 1 and self.chance(0.4):
            n = len(inputs[0].shape)
            stack = [L.Dense(self.int(1, 4), "tanh"), L.BatchNormalization(), L.Dropout(0.2)]
            if n == 3:
                stack = self.one([stack, [L.Conv1D(3, 2, padding="same"), L.LSTM(3, return_sequences=True)], [L.GRU(2), L.Dense(3)], [Sequential([L.Dense(2), L.ReLU()]), self.flatten(inputs[0])]])
            if n == 4:
                stack = self.one([stack, [L.Conv2D(3, 2, padding="same"), L.BatchNormalization(), L.Activation("relu")], [L.DepthwiseConv2D(2), L.GlobalMaxPooling2D()]])
            if self.chance(0.3):
                stack = [Input(inputs[0].shape[1:])] + stack
            m = Sequential(stack, **self.name())
        else:
            g = Grower(self.rng, self.depth + 1)
            g.tensors = [Input(t.shape[1:]) for t in inputs]
            m = g.grow(self.int(1, 4), **self.name())
        if self.chance(0.15):
            m.trainable = False
        y = m(inputs[0] if len(inputs) == 1 else inputs, **({"training": False} if self.chance(0.2) else {}))
        self.keep(keras.tree.flatten(y), *inputs)
        self.made.append((m, [t.shape for t in inputs]))
        if len(inputs) == 1 and len(inputs[0].shape) == 2 and self.chance(0.3):
            stack = Sequential([L.Dense(self.int(1, 3), "tanh"), L.BatchNormalization()])
            self.keep([L.TimeDistributed(stack)(ops.stack([inputs[0], inputs[0] * 0.5], axis=1))])

    STEPS = [vector, vector, sequence, sequence, recurrent, image, image, merge, merge, merge, arithmetic, arithmetic, operation, operation, operation,
             attention, embedding, masked, states, arguments, frozen, model, model, again, again, again]

    def grow(self, steps, **more):
        """The model of the tensors, after some steps."""
        inputs = list(self.tensors)
        done = 0
        for _ in range(steps * 20):
            if done == steps:
                break
            before = len(self.tensors)
            try:
                self.one(self.STEPS)(self)
                new = self.tensors[before:]
                if any(int(np.prod([d or 5 for d in t.shape[1:]])) > 400 or 0 in t.shape or len(t.shape) > 5 for t in new):
                    raise ValueError("too large")
                done += 1
            except (LookupError, ValueError, TypeError, RuntimeError, ArithmeticError):
                self.tensors = self.tensors[:before]
        ends = [t for t in self.tensors if id(t) not in self.used and t.dtype == "float32" and not any(t is i for i in inputs)]
        if not ends:
            ends = [t for t in self.tensors if t.dtype == "float32" and not any(t is i for i in inputs)][-1:]
        if not ends:
            x = self.take()
            ends = [L.Dense(2)(x)]
        ends = ends[-4:]
        out = ends[0] if len(ends) == 1 and self.chance(0.8) else ends
        if self.depth == 0 and len(ends) > 1 and self.chance(0.2):
            out = {f"out_{i}": t for i, t in enumerate(ends)}
        structure = inputs[0] if len(inputs) == 1 else inputs
        names = [t._keras_history.operation.name for t in inputs]
        if self.depth == 0 and all(n.startswith("in_") for n in names) and self.chance(0.5):
            structure = dict(zip(names, inputs))
        return Model(structure, out, **more)


def model(rng):
    g = Grower(rng)
    shapes = [((4,), "float32"), ((3,), "float32"), ((5, 4), "float32"), ((5, 2), "float32"), ((None, 3), "float32"), ((6, 6, 3), "float32"), ((5, 4, 2), "float32"),
              ((5,), "int32"), ((5,), "bool")]
    for i in range(g.int(1, 4)):
        shape, dtype = g.one(shapes[:7] if i == 0 else shapes)
        g.tensors.append(Input(shape, dtype=dtype, **({"name": f"in_{i}"} if g.chance(0.3) else {})))
    if g.chance(0.3):
        g.tensors.append(Input(g.tensors[0].shape[1:]))
    return g.grow(g.int(3, 14))
