"""Transfer learning in Keras: a base from a file gets a head and is trained, first frozen
and then with a lower learning rate and some or all of its layers.

    python transfer.py golden      transfer.zip, in this directory
    python transfer.py check DIR   what TestTransfer has saved in DIR, loaded by Keras

base.keras is the base; NAME.json has the head's first weights, the data, the losses of
both phases and the outputs after each. Between the steps run, in ..,

    go test -run TestTransfer -transfer DIR

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
"""

import json
import os
import sys
import zipfile

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import keras
import numpy as np
from keras import Input, Model
from keras import layers as L
from keras import optimizers as O

STEPS = 6
CASES = {  # optimizers of the phases, and how many of the base's layers stay frozen in the second
    "sgd": (lambda: O.SGD(0.05, momentum=0.9), lambda: O.SGD(0.005, momentum=0.9), 0),
    "adam": (lambda: O.Adam(0.01), lambda: O.Adam(0.0005), 4),
}


def base(rng):
    x = Input((8, 8, 3), name="picture")
    y = L.Conv2D(4, 3, strides=2, padding="same", use_bias=False, name="conv")(x)
    y = L.BatchNormalization(name="conv_bn", momentum=0.9)(y)
    y = L.ReLU(6.0, name="conv_relu")(y)
    z = L.DepthwiseConv2D(3, padding="same", use_bias=False, name="depthwise")(y)  # Adam would move a bias before
    # a normalization, whose gradient is 0 but for rounding, by its whole rate
    z = L.BatchNormalization(name="depthwise_bn", momentum=0.9)(z)
    z = L.Activation("relu", name="depthwise_relu")(z)
    y = L.Add(name="add")([y, z])
    m = Model(x, L.GlobalAveragePooling2D(name="features")(y), name="base")
    for w in m.weights:  # as of a trained model
        v = w.numpy() + rng.normal(0, 0.1, w.shape)
        w.assign(np.abs(v) if "variance" in w.path else v)
    return m


def numbers(x):
    """For JSON, in as few digits as tell float32 numbers apart."""
    return [float(str(v)) for v in np.asarray(x, "float32").ravel()]


def golden():
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(1)
    base(rng).save("base.keras")
    with zipfile.ZipFile("transfer.zip", "w", zipfile.ZIP_DEFLATED) as z:

        def add(name, data):
            z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

        with open("base.keras", "rb") as f:
            add("base.keras", f.read())
        for name, (first, second, frozen) in CASES.items():
            b = keras.models.load_model("base.keras")
            b.trainable = False
            x = Input((8, 8, 3))
            y = L.Dropout(0.0)(b(x))
            m = Model(x, L.Dense(3, name="head")(y))
            images = rng.random((16, 8, 8, 3)).astype("float32")
            labels = rng.integers(0, 3, 16).astype("int32")
            images[np.arange(16), :, :, labels] *= 0.3
            head = [w.numpy() for w in m.get_layer("head").weights]
            case = {"Images": numbers(images), "Labels": labels.tolist(), "Kernel": numbers(head[0]), "Frozen": frozen, "Losses": [], "Outputs": []}
            for optimizer in [first(), second()]:
                m.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
                for _ in range(STEPS):
                    m.reset_metrics()
                    case["Losses"].append(float(m.train_on_batch(images, labels)))
                case["Outputs"].append(numbers(m(images, training=False)))
                b.trainable = True
                for l in b.layers[:frozen]:
                    l.trainable = False
            print(name, case["Losses"], [l.name for l in b.layers])
            add(name + ".json", json.dumps(case))
    os.remove("base.keras")


def check(folder):
    failed = 0
    z = zipfile.ZipFile(os.path.join(os.path.dirname(os.path.abspath(__file__)), "transfer.zip"))
    for name, (_, _, frozen) in CASES.items():
        case = json.loads(z.read(name + ".json"))
        m = keras.models.load_model(os.path.join(folder, name + ".keras"))
        got = np.asarray(m(np.array(case["Images"], "float32").reshape(16, 8, 8, 3), training=False))
        want = np.array(case["Outputs"][1]).reshape(16, 3)
        error = np.abs(got - want).max() / np.abs(want).max()
        trainable = [l.trainable for l in m.get_layer("base").layers][1:]  # without the Input
        ok = error <= 1e-4 and trainable == [i >= frozen - 1 for i in range(len(trainable))]
        failed += not ok
        print("ok" if ok else "FAIL", name, f"differs by {error:.2g} of the largest output; trainable: {trainable}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["golden"]:
            golden()
        case ["check", folder]:
            check(folder)
        case _:
            sys.exit(__doc__)
