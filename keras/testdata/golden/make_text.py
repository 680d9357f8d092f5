"""text.json: hashes of strings, lookups, and vectorized text.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
Re-run: python make_text.py (see README.md).

Strings are in the config, since tensors of these files hold numbers: `strings` are what the layer is called on, with their
`shape`, `strings1` those of a second input; `adapt` what it is adapted to, `adapt_shape`; `vocabulary_after` is get_vocabulary().
Strings that are not UTF-8 are left out: JSON has none. `x` among the inputs are numbers that the layer is called on.
"""

import random

from common import case, keras, np, tf, write

cases = []
r = random.Random(1)
LETTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJ.,!?0123456789äßçЖ語😀"
ALL = ["".join(r.choice(LETTERS) for _ in range(n)) for n in list(range(0, 70)) + [100, 127, 128, 129, 191, 192, 193, 500]]
BIG = 2**53 - 111  # what JSON holds, and no power of 2
cases.append(case("farm64", {"class_name": "hash", "strings": ALL}, {"y": tf.strings.to_hash_bucket_fast(ALL, BIG)}))
cases.append(case("sip64", {"class_name": "hash", "strings": ALL, "salt": [7, 2**40 + 5]},
                  {"y": tf.strings.to_hash_bucket_strong(ALL, BIG, key=[7, 2**40 + 5])}))


def strings(v):
    return tf.constant(v, dtype=tf.string)


def add(name, cls, args, texts=None, shape=None, adapt=None, adapt_shape=None, texts1=None, x=None, adapt_x=None):
    keras.utils.clear_session()
    layer = getattr(keras.layers, cls)(**args)
    config = {"class_name": cls, **args}
    ins = {}
    if adapt is not None:
        layer.adapt(tf.reshape(strings(adapt), adapt_shape or [len(adapt)]))
        config["adapt"], config["adapt_shape"] = adapt, adapt_shape or [len(adapt)]
    if adapt_x is not None:
        layer.adapt(adapt_x)
        ins["adapt"] = adapt_x
    if hasattr(layer, "get_vocabulary"):
        v = layer.get_vocabulary()
        config["vocabulary_after"] = [int(t) if cls == "IntegerLookup" else str(t) for t in v]
    if texts is not None:
        shape = shape or [len(texts)]
        config["strings"], config["shape"] = texts, shape
        arg = tf.reshape(strings(texts), shape)
        if texts1 is not None:
            config["strings1"] = texts1
            arg = (arg, tf.reshape(strings(texts1), shape))
    else:
        arg = tf.constant(x)
        ins["x"] = x
    y = layer(arg)
    if isinstance(y, tf.Tensor) and y.dtype == tf.string:
        config["strings_out"] = [s.decode() for s in y.numpy().ravel().tolist()]
        cases.append(case(name, config, {}, ins))
        return
    cases.append(case(name, config, {"y": y}, ins))


WORDS = ["a", "c", "d", "d", "d", "z", "b", "z"]
V = ["a", "b", "c", "d"]
for mode in ("int", "one_hot", "multi_hot", "count"):
    add("hashing_" + mode, "Hashing", {"num_bins": 5, "output_mode": mode}, WORDS, [2, 4])
    add("string_lookup_" + mode, "StringLookup", {"vocabulary": V, "output_mode": mode}, WORDS, [2, 4])
    add("string_lookup_mask_" + mode, "StringLookup", {"vocabulary": ["a", "b", "c"], "mask_token": "d", "output_mode": mode}, WORDS, [2, 4])
    add("integer_lookup_" + mode, "IntegerLookup", {"vocabulary": [12, 36, 1138, 42], "output_mode": mode},
        x=np.array([[12, 1138, 42, 42], [42, 7, 36, -7]], np.int64))
    add("text_" + mode, "TextVectorization", {"output_mode": mode, "vocabulary": ["earth", "wind", "and", "fire"]} if mode != "one_hot" else
        {"output_mode": mode, "vocabulary": ["earth", "wind", "and", "fire"], "split": None},
        ["Earth, wind", "fire & earth and EARTH!", ""], [3] if mode != "one_hot" else [3, 1])
add("hashing_mask", "Hashing", {"num_bins": 5, "mask_value": "d"}, WORDS)
add("hashing_salt", "Hashing", {"num_bins": 7, "salt": 133}, WORDS)
add("hashing_salts", "Hashing", {"num_bins": 7, "salt": [133, 137], "mask_value": ""}, WORDS + [""])
add("hashing_one_hot_squeezed", "Hashing", {"num_bins": 3, "output_mode": "one_hot"}, WORDS, [8, 1])
NUMBERS = np.array([[0, 1, -1, 10], [2**40, -2**62, 37, 5]], np.int64)
add("hashing_integers", "Hashing", {"num_bins": 1000}, x=NUMBERS)
add("hashing_integers_mask", "Hashing", {"num_bins": 9, "mask_value": 37, "salt": 5}, x=NUMBERS)
add("crossing", "HashedCrossing", {"num_bins": 5}, ["A", "B", "A", "B", "A"], texts1=["x", "x", "", "y", "yy"])
add("crossing_one_hot", "HashedCrossing", {"num_bins": 5, "output_mode": "one_hot"}, ["A", "B", "A"], [3, 1], texts1=["x", "x", "z"])

add("string_lookup_oov", "StringLookup", {"vocabulary": V, "num_oov_indices": 3}, ["a", "m", "z", "", "q", "ü"])
add("string_lookup_oov_salt", "StringLookup", {"vocabulary": V, "num_oov_indices": 3, "salt": [3, 4], "mask_token": ""}, ["a", "m", "z", "", "q"])
add("string_lookup_special", "StringLookup", {"vocabulary": ["", "[UNK]", "x", "y"], "mask_token": ""}, ["x", "", "y", "?"])
add("string_lookup_no_oov", "StringLookup", {"vocabulary": V, "num_oov_indices": 0}, ["a", "d"])
add("string_lookup_tf_idf", "StringLookup", {"vocabulary": V, "idf_weights": [0.25, 0.75, 0.6, 0.4], "output_mode": "tf_idf"}, WORDS, [2, 4])
add("string_lookup_tf_idf_special", "StringLookup",
    {"vocabulary": ["[UNK]"] + V, "idf_weights": [0.9, 0.25, 0.75, 0.6, 0.4], "output_mode": "tf_idf", "pad_to_max_tokens": True, "max_tokens": 7},
    WORDS, [2, 4])
add("string_lookup_pad", "StringLookup", {"vocabulary": V, "output_mode": "count", "pad_to_max_tokens": True, "max_tokens": 7}, WORDS, [2, 4])
add("string_lookup_invert", "StringLookup", {"vocabulary": V, "invert": True, "mask_token": ""}, x=np.array([[0, 1, 2], [5, 6, -1]], np.int64))
DOCS = ["a", "c", "d", "d", "d", "z", "b", "z", "a", "a", "", "[UNK]"]
add("string_lookup_adapt", "StringLookup", {}, WORDS, adapt=DOCS)
add("string_lookup_adapt_max", "StringLookup", {"max_tokens": 4, "mask_token": ""}, WORDS, adapt=DOCS)
add("string_lookup_adapt_tf_idf", "StringLookup", {"output_mode": "tf_idf"}, WORDS, [2, 4], adapt=DOCS, adapt_shape=[3, 4])
add("string_lookup_adapt_tf_idf_max", "StringLookup", {"output_mode": "tf_idf", "max_tokens": 9, "pad_to_max_tokens": True, "mask_token": ""},
    WORDS, [2, 4], adapt=DOCS, adapt_shape=[3, 4])

IV = [12, 36, 1138, 42]
IX = np.array([[12, 1138, 42, 42], [42, 7, 36, -7]], np.int64)
add("integer_lookup_oov", "IntegerLookup", {"vocabulary": IV, "num_oov_indices": 2}, x=np.array([37, 1000, -3, 36], np.int64))
add("integer_lookup_mask", "IntegerLookup", {"vocabulary": IV, "num_oov_indices": 2, "mask_token": 0}, x=np.array([[0, 1], [12, 2**60]], np.int64))
add("integer_lookup_mask_count", "IntegerLookup", {"vocabulary": IV, "mask_token": 7, "output_mode": "count"}, x=IX)
add("integer_lookup_tf_idf", "IntegerLookup", {"vocabulary": IV, "idf_weights": [0.25, 0.75, 0.6, 0.4], "output_mode": "tf_idf"}, x=IX)
add("integer_lookup_invert", "IntegerLookup", {"vocabulary": IV, "invert": True}, x=np.array([[0, 1, 4], [5, 3, -1]], np.int64))
add("integer_lookup_invert_mask", "IntegerLookup", {"vocabulary": IV, "invert": True, "mask_token": 99, "num_oov_indices": 2, "oov_token": -5},
    x=np.array([[0, 1, 2], [3, 6, 7]], np.int64))
add("integer_lookup_adapt", "IntegerLookup", {"max_tokens": 4}, x=IX, adapt_x=np.array([7, 7, -1, 42, 42, 3, 12, -9], np.int64))
add("integer_lookup_adapt_tf_idf", "IntegerLookup", {"output_mode": "tf_idf"}, x=IX, adapt_x=np.array([[7, 7, 42], [42, 3, 12]], np.int64))

DOC = ["Foo bar, bar!", "bar  baz\tbaz", "baz bada-boom 42", "Été ÉTÉ été", " ", "e\u3000f g\u00a0h"]
add("text_adapt", "TextVectorization", {}, DOC + ["qux bar"], adapt=DOC)
add("text_adapt_length", "TextVectorization", {"output_sequence_length": 4, "max_tokens": 5}, DOC, [6, 1], adapt=DOC)
add("text_adapt_short", "TextVectorization", {"output_sequence_length": 2}, DOC, adapt=DOC)
add("text_lower", "TextVectorization", {"standardize": "lower"}, DOC, adapt=DOC)
add("text_strip", "TextVectorization", {"standardize": "strip_punctuation"}, DOC, adapt=DOC)
add("text_as_is", "TextVectorization", {"standardize": None}, DOC, adapt=DOC)
add("text_character", "TextVectorization", {"split": "character"}, DOC, adapt=DOC)
add("text_bigrams", "TextVectorization", {"ngrams": 2}, DOC, adapt=DOC)
add("text_trigrams", "TextVectorization", {"ngrams": 3, "output_mode": "count"}, DOC, adapt=DOC)
add("text_tf_idf", "TextVectorization", {"output_mode": "tf_idf"}, DOC, adapt=DOC)
add("text_tf_idf_max", "TextVectorization", {"output_mode": "tf_idf", "max_tokens": 20, "pad_to_max_tokens": True}, DOC, adapt=DOC)
add("text_multi_hot_max", "TextVectorization", {"output_mode": "multi_hot", "max_tokens": 4}, DOC, adapt=DOC)
add("text_no_split", "TextVectorization", {"split": None, "output_sequence_length": 3}, ["a", "b", "B", "", "c", "d", "a", "e"], [2, 4], adapt=["a", "b", "b", "c"],
    adapt_shape=[2, 2])

write("text.json", cases)
