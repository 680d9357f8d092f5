"""training.zip: trainings that Keras has saved in between, and how they go on.

NAME.keras is the model and the state of its optimizer after some calls of
train_on_batch, NAME.json the batch, the loss of each of the next calls, and the
weights after them.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
Re-run: python training.py (in this directory)
"""

import json
import os
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import keras
import numpy as np
from keras import Input, Model, Sequential
from keras import layers as L
from keras import optimizers as O

keras.utils.set_random_seed(1)


def plain():
    return Sequential([Input((3,)), L.Dense(4, "tanh"), L.Dense(1, name="head")])


def transfer():
    """A frozen base and a head. Keras has the layers of the branches in another
    order than Mezzo."""
    x = Input((3,))
    base = Model(x, L.BatchNormalization()(L.Dense(4, "tanh")(x)), name="base")
    base.trainable = False
    y = Input((3,))
    a = L.Dense(2, "tanh")(L.Dense(3, "tanh")(base(y, training=False)))
    return Model(y, L.Dense(1, name="head")(L.Concatenate()([y, a])))


def parts():
    return O.MultiOptimizer(O.OptimizerMap(O.Adam(0.05, gradient_accumulation_steps=2), {".*bias": O.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2)}))


CASES = [  # name, policy, model, optimizer, calls before
    ("mixed_float16", "mixed_float16", plain, lambda: O.Adam(0.05), 3),
    ("overflowed", "mixed_float16", plain, lambda: O.LossScaleOptimizer(O.SGD(0.1, momentum=0.9), initial_scale=2.0**20, dynamic_growth_steps=4), 9),
    ("accumulating", "float32", plain, lambda: O.Adam(0.05, gradient_accumulation_steps=2), 3),
    ("accumulating_3", "float32", plain, lambda: O.SGD(0.1, momentum=0.9, nesterov=True, gradient_accumulation_steps=3), 5),
    ("accumulated", "float32", plain, lambda: O.AdamW(0.05, gradient_accumulation_steps=2), 4),
    ("mixed_accumulating", "mixed_float16", plain, lambda: O.Adam(0.05, gradient_accumulation_steps=2), 3),
    ("parts", "float32", plain, parts, 3),
    ("transfer", "float32", transfer, lambda: O.Adam(0.05), 2),
]

with zipfile.ZipFile("training.zip", "w", zipfile.ZIP_DEFLATED) as z:

    def add(name, data):
        z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

    for name, policy, model, optimizer, calls in CASES:
        keras.config.set_dtype_policy(policy)
        m = model()
        m.compile(optimizer(), "mse")
        x, y = np.random.randn(8, 3).astype("float32"), np.random.randn(8, 1).astype("float32")

        def call():
            m.reset_metrics()
            return float(m.train_on_batch(x, y))

        for _ in range(calls):
            call()
        path = name + ".keras"
        m.save(path)
        with open(path, "rb") as f:
            add(path, f.read())
        os.remove(path)
        losses = [call() for _ in range(5)]
        case = {"x": x.flatten().tolist(), "y": y.flatten().tolist(), "losses": losses,
                "head": m.get_layer("head").kernel.numpy().flatten().tolist()}
        if policy == "mixed_float16":
            case["scale"] = float(m.optimizer.dynamic_scale.numpy())
            case["good"] = int(m.optimizer.step_counter.numpy())
        print(name, case["losses"], case.get("scale"), case.get("good"))
        add(name + ".json", json.dumps(case))
