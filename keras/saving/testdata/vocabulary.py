"""vocabulary.keras.gz and vocabulary.json: a model with layers that have learned vocabularies, and what it makes of words and texts.
frequencies.keras.gz and frequencies.json: one whose layers have, learned or were given, inverse document frequencies.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
Re-run: python vocabulary.py (in this directory)
"""

import gzip
import json
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)
WORDS = [["red", "green", "red"], ["blue", "red", "grey"], ["violet", "green", "blue"]]
TEXTS = [["The cat sat."], ["A dog sat on the cat, and on the mat!"], ["mice"]]
NUMBERS = [[7, 9], [7, 3], [5, 7]]

learned, integers = layers.StringLookup(num_oov_indices=2), layers.IntegerLookup(mask_token=0)
learned.adapt(tf.constant(WORDS[:2]))
integers.adapt(np.array(NUMBERS[:2]))
given = layers.StringLookup(vocabulary=["red", "blue"], output_mode="multi_hot")
text = layers.TextVectorization(output_sequence_length=5)
text.adapt(tf.constant(TEXTS[:2]))

w, v, t, n = keras.Input((3,), dtype="string"), keras.Input((3,), dtype="string"), keras.Input((1,), dtype="string"), keras.Input((2,), dtype="int64")
parts = [layers.Flatten()(layers.Embedding(20, 2)(x)) for x in (learned(w), text(t), integers(n))] + [given(v)]
model = keras.Model([w, v, t, n], layers.Dense(3)(layers.Concatenate()(parts)))
y = model([tf.constant(WORDS), tf.constant(WORDS), tf.constant(TEXTS), tf.constant(NUMBERS, "int64")])


def save(model, name):
    model.save(name)
    with open(name, "rb") as f, gzip.GzipFile(name + ".gz", "wb", mtime=0) as z:
        z.write(f.read())
    os.remove(name)


save(model, "vocabulary.keras")
with open("vocabulary.json", "w") as f:
    json.dump({"words": sum(WORDS, []), "texts": sum(TEXTS, []), "numbers": sum(NUMBERS, []), "output": np.array(y).ravel().tolist(),
               "learned": learned.get_vocabulary(), "text": text.get_vocabulary(), "integers": [int(v) for v in integers.get_vocabulary()]}, f)

learned, integers = layers.StringLookup(output_mode="tf_idf", num_oov_indices=2), layers.IntegerLookup(output_mode="tf_idf", max_tokens=6, pad_to_max_tokens=True)
learned.adapt(tf.constant(WORDS[:2]))
integers.adapt(np.array(NUMBERS[:2]))
given = layers.StringLookup(vocabulary=["red", "blue"], output_mode="tf_idf", idf_weights=[0.5, 1.5])
text = layers.TextVectorization(output_mode="tf_idf")
text.adapt(tf.constant(TEXTS[:2]))
w, v, t, n = keras.Input((3,), dtype="string"), keras.Input((3,), dtype="string"), keras.Input((), dtype="string"), keras.Input((2,), dtype="int64")
model = keras.Model([w, v, t, n], layers.Dense(2)(layers.Concatenate()([learned(w), given(v), text(t), integers(n)])))
y = model([tf.constant(WORDS), tf.constant(WORDS), tf.constant(sum(TEXTS, [])), tf.constant(NUMBERS, "int64")])
save(model, "frequencies.keras")
with open("frequencies.json", "w") as f:
    json.dump({"words": sum(WORDS, []), "texts": sum(TEXTS, []), "numbers": sum(NUMBERS, []), "output": np.array(y).ravel().tolist()}, f)
