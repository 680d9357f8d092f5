"""Writes two versions of a Keras model with two inputs and two outputs, and what Keras predicts:

    python model.py DIR
    go run ./examples/serve m=DIR/m
    python clients.py 127.0.0.1:8501 DIR

Not run by tests. Needs keras.
"""
import os
import sys

import keras
import numpy as np

out = sys.argv[1]
rng = np.random.default_rng(0)
words = rng.integers(0, 100, (5, 7)).astype("int32")
numbers = rng.standard_normal((5, 3)).astype("float32")
expected = {"words": words, "numbers": numbers}
for version in (1, 2):
    keras.utils.set_random_seed(version)
    a = keras.Input((7,), dtype="int32", name="words")
    b = keras.Input((3,), name="numbers")
    x = keras.layers.LSTM(8)(keras.layers.Embedding(100, 8)(a))
    x = keras.layers.Concatenate()([x, b])
    y = keras.layers.Dense(4, activation="softmax", name="classes")(x)
    z = keras.layers.Dense(1, name="score")(x)
    m = keras.Model([a, b], [y, z])
    os.makedirs(f"{out}/m/{version}", exist_ok=True)
    m.save(f"{out}/m/{version}/model.keras")
    expected[f"classes{version}"], expected[f"score{version}"] = m.predict([words, numbers], verbose=0)
np.savez(f"{out}/expected.npz", **expected)
