"""nested.zip: models within models, as Keras saves them, and what they compute.

The first are what users write (a base with a head, siamese networks, a model
applied twice, one with several inputs or outputs, one in a Sequential); then
random graphs of nested models. For each NAME.keras there is a NAME.json with
its inputs and outputs.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
Re-run: python nested.py (in this directory)
"""

import json
import os
import random
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import keras
import numpy as np
from keras import Input, Model, Sequential
from keras import layers as L

keras.utils.set_random_seed(1)
W = 3


def encoder(name):
    x = Input((W,))
    return Model(x, L.Dense(W, "tanh")(L.Dense(4, "relu")(x)), name=name)


def transfer():
    x = Input((6, 6, 2))
    h = L.Conv2D(3, 3, padding="same", use_bias=False)(x)
    h = L.Activation("relu")(L.BatchNormalization()(h))
    base = Model(x, L.MaxPooling2D()(h), name="base")
    base.trainable = False
    image = Input((6, 6, 2))
    h = L.Rescaling(1 / 127.5, offset=-1)(image)
    h = L.GlobalAveragePooling2D()(base(h, training=False))
    return Model(image, L.Dense(2, "softmax")(L.Dropout(0.2)(h)))


def siamese():
    a, b = Input((W,)), Input((W,))
    tower = encoder("tower")
    return Model([a, b], L.Dense(1, "sigmoid")(L.Subtract()([tower(a), tower(b)])))


def triplet():
    a, p, n = Input((W,)), Input((W,)), Input((W,))
    embed = encoder("embed")
    x, y, z = embed(a), embed(p), embed(n)
    return Model([a, p, n], [L.Dot(1)([x, y]), L.Dot(1)([x, z])])


def iterated():
    x, f = Input((W,)), encoder("f")
    return Model(x, L.Dense(2)(f(f(f(x)))))


def residual():
    x, f = Input((W,)), encoder("f")
    return Model(x, L.Add()([f(x), x]))


def one_of_two_calls():
    i, j, nest = Input((W,)), Input((W,)), encoder("nest")
    return Model([i, j], [nest(i), L.Dense(2)(nest(j))])


def autoencoder():
    e, d = encoder("encoder"), encoder("decoder")
    x = Input((W,))
    z = e(x)
    return Model(x, [d(z), z])


def pyramid():
    x = Input((W,))
    a = L.Dense(W, "relu")(x)
    b = L.Dense(W, "tanh")(a)
    backbone = Model(x, [a, b, L.Dense(4)(b)], name="backbone")
    y = Input((W,))
    p, q, r = backbone(y)
    return Model(y, [L.Dense(2)(r), L.Add()([p, q]), backbone(q)[2]])


def two_inputs():
    a, b = Input((W,)), Input((W,))
    cross = Model([a, b], [L.Add()([L.Dense(W)(a), b]), L.Multiply()([a, b])], name="cross")
    x, y = Input((W,)), Input((W,))
    p, q = cross([x, y])
    r, s = cross([q, p])
    return Model([x, y], [L.Dense(2)(r), q, s])


def deep():
    x, f = Input((W,)), encoder("inner")
    outer = Model(x, L.Dense(W)(L.Add()([f(x), f(f(x))])), name="outer")
    return Sequential([Input((W,)), L.Dense(W, "relu"), outer, L.Dense(2)])


def unary(r):
    return r.choice([lambda: L.Dense(W, "tanh"), lambda: L.Dense(W), L.LayerNormalization, L.BatchNormalization, lambda: L.Dropout(0.3)])()


def stack(r, depth):
    all = [unary(r) for _ in range(r.randint(1, 2))]
    if depth > 0 and r.random() < 0.5:
        all.insert(r.randint(0, len(all)), graph(r, depth - 1, 1, 1))
    return Sequential(([Input((W,))] if r.random() < 0.7 else []) + all)


def graph(r, depth, ins=None, outs=None):
    """A random model; those within it are called any number of times."""
    ins = [Input((W,)) for _ in range(ins or r.choice([1, 1, 2]))]
    pool = []
    for _ in range(r.randint(1, 3)):
        k = r.random()
        pool.append(graph(r, depth - 1) if depth > 0 and k < 0.65 else stack(r, depth - 1) if depth > 0 and k < 0.8 else unary(r))
    ts, made = list(ins), []
    for _ in range(r.randint(2, 6)):
        if r.random() < 0.2 and len(ts) > 1:
            y = r.choice([L.Add, L.Average, L.Subtract])()(r.sample(ts, 2))
        else:
            l = r.choice(pool)
            n = len(l.inputs) if isinstance(l, Model) and not isinstance(l, Sequential) else 1
            xs = [r.choice(ts[-4:]) for _ in range(n)]
            y = l(xs if n > 1 else xs[0])
        made += y if isinstance(y, list) else [y]
        ts = ins + made
    out = [r.choice(made[-3:]) for _ in range(outs or r.choice([1, 1, 2]))]
    if len(ins) > 1:
        out[0] = L.Dense(W)(L.Concatenate()(ins + [out[0]]))
    return Model(ins if len(ins) > 1 else ins[0], out if len(out) > 1 else out[0])


cases = [transfer, siamese, triplet, iterated, residual, one_of_two_calls, autoencoder, pyramid, two_inputs, deep]
cases = [(f.__name__, f) for f in cases] + [("random_%d" % s, lambda s=s: graph(random.Random(s), 2)) for s in range(8)]

with zipfile.ZipFile("nested.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for name, f in cases:
        m = f()
        for w in m.weights:  # biases and statistics too
            w.assign(np.random.uniform(0.2 if "variance" in w.path else -1, 1, w.shape))
        data = [np.random.randn(2, *x.shape[1:]).astype("float32") for x in m.inputs]
        y = m(data if len(data) > 1 else data[0])
        case = {
            "shapes": [list(d.shape) for d in data],
            "inputs": [d.flatten().tolist() for d in data],
            "outputs": [np.array(v).flatten().tolist() for v in (y if isinstance(y, (list, tuple)) else [y])],
        }
        path = name + ".keras"
        m.save(path)
        with open(path, "rb") as f:
            z.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), f.read(), zipfile.ZIP_DEFLATED)
        os.remove(path)
        z.writestr(zipfile.ZipInfo(name + ".json", (1980, 1, 1, 0, 0, 0)), json.dumps(case), zipfile.ZIP_DEFLATED)
