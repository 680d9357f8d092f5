"""Shared by the make_*.py scripts: environment, tensor encoding and the JSON writer.

See README.md for the format and for how to re-run.
"""

import json
import os

# Fixed before TensorFlow loads. oneDNN stays on: without it TensorFlow's CPU MatMul TRUNCATES a bfloat16 result instead of
# rounding it to nearest even. No GPU, so that a re-run elsewhere agrees to the last few ulps.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))


def number(v):
    """A float as the shortest decimal that parses back to the same float32; non-finite values as strings."""
    f = np.float32(v)
    if np.isnan(f):
        return "NaN"
    if np.isinf(f):
        return "Infinity" if f > 0 else "-Infinity"
    if f == 0:
        return -0.0 if np.signbit(f) else 0
    d = float(str(f))
    return int(d) if d == int(d) and abs(d) < 1e7 else d


def tensor(a):
    """Encode an array, tensor or variable as {"dtype","shape","data"}; float16 and bfloat16 hold their float32 values."""
    if not isinstance(a, np.ndarray):
        a = keras.ops.convert_to_numpy(a) if not np.isscalar(a) else np.asarray(a)
    a = np.asarray(a)
    dtype = str(a.dtype)
    if dtype == "float64":
        dtype = "float32"
    if dtype.startswith(("int", "uint")):
        data = [int(v) for v in a.ravel()]
    elif dtype == "bool":
        data = [bool(v) for v in a.ravel()]
    else:
        data = [number(v) for v in a.astype(np.float32).ravel()]
    return {"dtype": dtype, "shape": list(a.shape), "data": data}


def case(name, config, outputs, inputs=None, weights=None, policy="float32"):
    """One case; every value of inputs, weights and outputs is encoded with tensor()."""
    enc = lambda d: {k: tensor(v) for k, v in (d or {}).items()}
    return {"name": name, "config": config, "policy": policy,
            "inputs": enc(inputs), "weights": enc(weights), "outputs": enc(outputs)}


def write(filename, cases, **top):
    """Write a golden file, one case per line, with extra file-level keys before the cases."""
    names = [c["name"] + "/" + c["policy"] for c in cases]
    dup = {n for n in names if names.count(n) > 1}
    assert not dup, "duplicate cases: %s" % sorted(dup)
    dump = lambda v: json.dumps(v, separators=(",", ":"), allow_nan=False)
    head = {"keras": keras.__version__, "tensorflow": tf.__version__, **top}
    lines = ['{"%s":%s' % (k, dump(v)) if i == 0 else '"%s":%s' % (k, dump(v)) for i, (k, v) in enumerate(head.items())]
    path = os.path.join(HERE, filename)
    with open(path, "w") as f:
        f.write(",\n".join(lines) + ',\n"cases":[\n' + ",\n".join(dump(c) for c in cases) + "\n]}\n")
    print("%-20s %4d cases %8d bytes" % (filename, len(cases), os.path.getsize(path)))


def build(config):
    """A layer from {"class_name", ...arguments}, layers within it too."""
    args = dict(config)
    cls = args.pop("class_name")
    for k, v in args.items():
        if isinstance(v, dict) and "class_name" in v:
            args[k] = build({"class_name": v["class_name"], **v["config"]})
        if isinstance(v, list) and v and isinstance(v[0], dict):
            args[k] = [build({"class_name": c["class_name"], **c["config"]}) for c in v]
    if cls == "LayerScale":
        layer = keras.src.applications.convnext.LayerScale(**args)
        layer.build(None)
        layer.gamma._name = "gamma"  # Keras gives it no name
        layer.gamma._path = layer.name + "/gamma"
        return layer
    if cls == "RNN":
        return keras.layers.RNN(args.pop("cell"), **args)
    if cls == "Bidirectional" and args.get("merge_mode") == "none":
        args["merge_mode"] = None
    return getattr(keras.layers, cls)(**args)


def local(layer, w):
    """A weight's path within a layer."""
    return w.path[len(layer.name) + 1:] if w.path.startswith(layer.name + "/") else w.path


def rand(seed, *shape, scale=1.0, digits=3):
    """Normal float32 values rounded to a few decimals, from numpy's frozen legacy generator."""
    v = np.random.RandomState(seed).standard_normal(shape) * scale
    return np.round(v, digits).astype(np.float32)


def uniform(seed, *shape, low=0.0, high=1.0, digits=3):
    """Uniform float32 values rounded to a few decimals."""
    v = np.random.RandomState(seed).uniform(low, high, shape)
    return np.round(v, digits).astype(np.float32)
