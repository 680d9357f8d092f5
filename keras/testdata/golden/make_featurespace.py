"""featurespace.json: tables encoded by keras.utils.FeatureSpace; and ../../saving/testdata/featurespace.zip: its files.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
Re-run: python make_featurespace.py (see README.md).

The config has Mezzo's fields of the features; `adapt` and `columns` are the columns that the space is adapted to and called
on, with None for NaN, and values in place of lists for a single row. `batch` is the batch size of a dataset that it is
adapted to instead of the columns. `preprocessors` are layers of features of other kinds. Outputs are `y`, or, of mode dict,
by name. The zip has NAME.keras for each case.
"""

import io
import os
import random
import tempfile
import zipfile

from common import HERE, build, case, keras, np, tf, write

FS = keras.utils.FeatureSpace
cases, files = [], {}
r = random.Random(7)

N = 70
TABLE = {
    "age": [r.randint(29, 77) for _ in range(N)],
    "chol": [round(r.gauss(240, 50), 1) for _ in range(N)],
    "oldpeak": [round(r.random() * 6, 2) for _ in range(N)],
    "slope": [r.randint(1, 3) for _ in range(N)],
    "sex": [r.randint(0, 1) for _ in range(N)],
    "ca": [r.choice([0, 1, 2, 3, 3, 3]) for _ in range(N)],
    "thal": [r.choice(["fixed", "normal", "normal", "reversible", ""]) for _ in range(N)],
    "zip": [r.randint(-(2**31), 2**31 - 1) for _ in range(N)],
    "city": [r.choice(["Bern", "Zürich", "東京", "a long name of a city that is more than 32 bytes"]) + str(r.randint(0, 9)) for _ in range(N)],
    "note": [" ".join(r.choice(["chest", "pain", "none", "mild", "Severe!"]) for _ in range(r.randint(1, 4))) for _ in range(N)],
}
# Unseen strings and integers, missing values, and numbers outside of the bins.
ROWS = {
    "age": [50, 29, 90, 0, None],
    "chol": [240.5, -1.0, 1e6, None, 200.0],
    "oldpeak": [1.5, 3.0, -2.0, 100.0, None],
    "slope": [1, 2, 3, 4, 0],
    "sex": [0, 1, 1, 0, 1],
    "ca": [0, 3, 2, 17, -5],
    "thal": ["normal", "", "unknown", "fixed", "[UNK]"],
    "zip": [0, -1, 7, 2147483647, -2147483648],
    "city": ["Bern1", "", "Rom", "東京7", "Zürich0"],
    "note": ["chest pain", "severe", "never seen", "", "mild mild pain"],
}


def take(table, names):
    return {k: table[k] for k in names}


def tensors(columns, features):
    """Columns as the types that Keras's Inputs have."""
    out = {}
    for k, v in columns.items():
        f = features[k]
        if f.dtype == "float32":
            v = np.array([np.nan if x is None else x for x in v] if isinstance(v, list) else v, "float32")
        elif f.dtype != "string":
            v = np.array(v, "int32")
        out[k] = tf.constant(v)
    return out


def feature(config):
    f = dict(config)
    kind = f.pop("type", None)
    if kind is None:
        return FS.feature(f["dtype"], build(f["preprocessor"]), f["output_mode"])
    if kind.endswith("_hashed") or kind == "float_discretized":
        f.setdefault("num_bins", 32)
    return getattr(FS, kind)(**f)


def add(name, features, rows, crosses=(), batch=None, **config):
    keras.utils.clear_session()
    made = {k: feature(f) for k, f in features.items()}
    space = FS(features=made, crosses=[FS.cross(**c) if len(c) > 1 else tuple(c["feature_names"]) for c in crosses], **config)
    data = take(TABLE, features)
    if batch:
        space.adapt(tf.data.Dataset.from_tensor_slices(tensors(data, made)).batch(batch))
    else:
        space.adapt(tensors(data, made))
    y = space(tensors(rows, made))
    path = os.path.join(tempfile.mkdtemp(), "a.keras")
    space.save(path)
    again = keras.models.load_model(path)(tensors(rows, made))
    for a, b in zip(tf.nest.flatten(y), tf.nest.flatten(again)):
        np.testing.assert_array_equal(a, b)
    files[name + ".keras"] = open(path, "rb").read()
    config = {"class_name": "FeatureSpace", "features": {k: {n: v for n, v in f.items() if n != "preprocessor"} for k, f in features.items()},
              "crosses": [{"crossing_dim": 0, **c} for c in crosses], "adapt": data, "columns": rows, **config}
    custom = {k: f["preprocessor"] for k, f in features.items() if "preprocessor" in f}
    if custom:
        config["preprocessors"] = custom
    if batch:
        config["batch"] = batch
    cases.append(case(name, config, y if isinstance(y, dict) else {"y": y}))


EVERY = {
    "oldpeak": {"type": "float"},
    "age": {"type": "float_normalized"},
    "chol": {"type": "float_discretized", "num_bins": 6},
    "slope": {"type": "integer_categorical", "num_oov_indices": 1},
    "sex": {"type": "integer_categorical", "num_oov_indices": 2},
    "ca": {"type": "integer_categorical", "max_tokens": 3},
    "thal": {"type": "string_categorical"},
    "zip": {"type": "integer_hashed", "num_bins": 9},
    "city": {"type": "string_hashed", "num_bins": 7},
}
PAIRS = [
    {"feature_names": ["thal", "slope"]},
    {"feature_names": ["sex", "chol"], "crossing_dim": 11},
    {"feature_names": ["zip", "city"], "crossing_dim": 5},
]
add("concat", EVERY, take(ROWS, EVERY), PAIRS)
add("row", EVERY, {k: v[0] for k, v in take(ROWS, EVERY).items()}, PAIRS)
INTS = {k: {**f, "output_mode": "int"} if f["type"][:5] != "float" or k == "chol" else f for k, f in EVERY.items()}
add("dict", {**INTS, "ca": EVERY["ca"]}, take(ROWS, EVERY),
    [{"feature_names": ["thal", "slope"], "crossing_dim": 32, "output_mode": "int"}, {"feature_names": ["sex", "chol"], "crossing_dim": 11}],
    output_mode="dict")
add("dict_row", {**INTS, "ca": EVERY["ca"]}, {k: v[3] for k, v in take({**ROWS, "chol": ROWS["chol"][::-1]}, EVERY).items()}, output_mode="dict")
add("defaults", {"city": {"type": "string_hashed"}, "zip": {"type": "integer_hashed"}, "chol": {"type": "float_discretized"},
                 "age": {"type": "float_rescaled", "scale": 0.125, "offset": -1.5}, "thal": {"type": "string_categorical", "num_oov_indices": 3, "max_tokens": 5}},
    take(ROWS, ["city", "zip", "chol", "age", "thal"]), [{"feature_names": ["chol", "zip"]}])
add("batches", {"chol": {"type": "float_discretized", "num_bins": 5}, "age": {"type": "float_normalized"}, "thal": {"type": "string_categorical"}},
    take(ROWS, ["chol", "age", "thal"]), batch=50)
add("custom", {
    "note": {"dtype": "string", "output_mode": "float", "preprocessor": {"class_name": "TextVectorization", "output_mode": "tf_idf"}},
    "thal": {"dtype": "string", "output_mode": "one_hot", "preprocessor": {"class_name": "StringLookup", "num_oov_indices": 2}},
    "age": {"dtype": "float32", "output_mode": "float", "preprocessor": {"class_name": "Normalization", "mean": [50.0], "variance": [64.0]}},
    "slope": {"dtype": "int32", "output_mode": "int", "preprocessor": {"class_name": "IntegerLookup", "mask_token": 0}},
}, take(ROWS, ["note", "thal", "age", "slope"]), output_mode="dict")

write("featurespace.json", cases)
out = io.BytesIO()
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
    for name, data in files.items():
        z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
open(os.path.join(HERE, "../../saving/testdata/featurespace.zip"), "wb").write(out.getvalue())
print("featurespace.zip", len(out.getvalue()))
