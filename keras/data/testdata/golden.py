"""Writes the files of this directory, with TensorFlow 2.21 and Keras 3.15:

    python golden.py

The tests of package keras/data read them.
"""

import json
import os

import keras
import numpy as np
import tensorflow as tf


def feature(kind, values):
    return tf.train.Feature(**{kind: {"bytes_list": tf.train.BytesList, "float_list": tf.train.FloatList,
                                      "int64_list": tf.train.Int64List}[kind](value=values)})


def example(i):
    return tf.train.Example(features=tf.train.Features(feature={
        "image": feature("bytes_list", [bytes(range(i))]),
        "box": feature("float_list", [i + 0.5, -1e-30, np.inf]),
        "label": feature("int64_list", [i, -i, 2**62]),
        "names": feature("bytes_list", [b"a", b"", "ä".encode()]),
        "empty": feature("int64_list", []),
        "nothing": tf.train.Feature(),
    })).SerializeToString(deterministic=True)


for compression in ["", "GZIP", "ZLIB"]:
    name = "examples" + {"": "", "GZIP": ".gz", "ZLIB": ".zlib"}[compression] + ".tfrecord"
    with tf.io.TFRecordWriter(name, compression) as w:
        for i in range(3):
            w.write(example(i))

np.savez_compressed("arrays.npz", **{
    t: np.asfortranarray(np.arange(6).reshape(2, 3).astype(t)) if t == "float64" else np.arange(6).reshape(2, 3).astype(t)
    for t in ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64", ">f4", ">i2"]})
np.save("matrix.npy", np.arange(6, dtype="float32").reshape(3, 2))

sequences = [[1], [2, 3], [4, 5, 6], [], [7, 8, 9, 10]]
pads = []
for maxlen in [None, 2, 3, 6]:
    for padding in ["pre", "post"]:
        for truncating in ["pre", "post"]:
            pads.append({"maxlen": maxlen, "padding": padding, "truncating": truncating,
                         "want": keras.utils.pad_sequences(sequences, maxlen=maxlen, padding=padding, truncating=truncating, value=-1).tolist()})

windows = []
for n, targets, length, stride, rate, start, end in [
    (10, None, 3, 1, 1, None, None), (10, None, 3, 2, 1, None, None), (10, None, 3, 1, 2, None, None),
    (12, 12, 4, 3, 2, None, None), (12, 12, 4, 3, 2, 2, 10), (10, 8, 3, 1, 1, None, None), (10, 3, 3, 1, 1, None, None),
    (10, None, 3, 1, 1, 4, None), (10, None, 3, 1, 1, None, 6), (5, None, 5, 1, 1, None, None), (9, 9, 2, 3, 1, 1, 8),
]:
    x = np.arange(n, dtype="float32") * 10
    y = None if targets is None else np.arange(targets, dtype="int32")
    d = keras.utils.timeseries_dataset_from_array(x, y, length, sequence_stride=stride, sampling_rate=rate, batch_size=None,
                                                  start_index=start, end_index=end)
    rows = list(d.as_numpy_iterator())
    windows.append({"n": n, "targets": targets, "length": length, "stride": stride, "rate": rate, "start": start, "end": end,
                    "x": [(r if y is None else r[0]).tolist() for r in rows],
                    "y": None if y is None else [int(r[1]) for r in rows]})

splits = []
for n, left, right in [(10, 0.7, None), (10, None, 0.25), (10, 3, None), (7, 0.5, None), (7, 2, 3), (9, 0.2, 0.3), (10, None, 4)]:
    a, b = keras.utils.split_dataset(np.arange(n), left_size=left, right_size=right)
    splits.append({"n": n, "left": left, "right": right,
                   "a": [int(x) for x in a.as_numpy_iterator()], "b": [int(x) for x in b.as_numpy_iterator()]})

categorical = [{"y": y, "n": n, "want": keras.utils.to_categorical(y, n).tolist()}
               for y, n in [([0, 2, 1], None), ([0, 2, 1], 4), ([3], None), ([[1], [0]], 2)]]

interleaved = [int(x) for x in tf.data.Dataset.range(1, 6).interleave(
    lambda x: tf.data.Dataset.from_tensors(x).repeat(x + 1), cycle_length=3, block_length=2).as_numpy_iterator()]

with open("golden.json", "w") as f:
    json.dump({"sequences": sequences, "pads": pads, "windows": windows, "splits": splits, "categorical": categorical,
               "interleaved": interleaved}, f)
