"""metrics.json: results of the metrics after each of two updates, with and without sample weights.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_metrics.py (see README.md).
"""

from common import case, keras, np, rand, uniform, write

cases = []
SW = [np.array([1, 0, 0.5, 2, 3, 0.25], np.float32), np.array([0.1, 1, 2, 0, 0.7, 4], np.float32)]


def add(name, cls, args, updates, weights=SW):
    """updates holds the positional arguments (without weights) of the two update_state calls."""
    for label, sw in (("no_weights", None), ("weights", weights)):
        if label == "weights" and weights is None:
            continue
        m = getattr(keras.metrics, cls)(**args)
        ins, out = {}, {}
        for i, u in enumerate(updates):
            keys = ["values"] if len(u) == 1 else ["y_true", "y_pred"]
            ins.update({"%s%d" % (k, i): v for k, v in zip(keys, u)})
            if sw is not None:
                ins["sample_weight%d" % i] = sw[i]
            m.update_state(*u, sample_weight=None if sw is None else sw[i])
            out["result%d" % i] = m.result()
        for v in m.variables:
            out["state/" + v.name] = v
        m.reset_state()
        out["reset"] = m.result()
        cases.append(case(name + "/" + label, {"class_name": cls, "name": m.name, **args}, out, ins))


def labels(seed, n, c):
    return np.random.RandomState(seed).randint(0, c, n).astype(np.int32)


N, C = 6, 7
SPARSE = [(labels(i, N, C), uniform(10 + i, N, C)) for i in range(2)]
for t, p in SPARSE:
    p[np.arange(0, N, 2), t[::2]] += 0.5  # so that some rows are right
ONEHOT = [(np.eye(C, dtype=np.float32)[t], p) for t, p in SPARSE]
BITS = [((rand(20 + i, N, 3) > 0).astype(np.float32), uniform(22 + i, N, 3)) for i in range(2)]
BITS[0][1][0] = 0.5  # exactly the threshold: counted as negative
REAL = [(rand(30 + i, N, 3), rand(32 + i, N, 3)) for i in range(2)]

add("binary_accuracy", "BinaryAccuracy", {}, BITS)
add("binary_accuracy_threshold", "BinaryAccuracy", {"threshold": 0.3}, BITS)
add("binary_accuracy_column", "BinaryAccuracy", {}, [(t[:, 0], p[:, :1]) for t, p in BITS])
add("categorical_accuracy", "CategoricalAccuracy", {}, ONEHOT)
add("sparse_categorical_accuracy", "SparseCategoricalAccuracy", {}, SPARSE)
add("sparse_categorical_accuracy_column", "SparseCategoricalAccuracy", {}, [(t[:, None], p) for t, p in SPARSE])
add("sparse_categorical_accuracy_3d", "SparseCategoricalAccuracy", {},
    [(labels(40 + i, (2, 3), C), uniform(42 + i, 2, 3, C)) for i in range(2)], [w.reshape(2, 3) for w in SW])
add("sparse_categorical_accuracy_ties", "SparseCategoricalAccuracy", {},
    [(np.arange(N, dtype=np.int32) % 3, np.full((N, 3), 0.25, np.float32))] * 2)
for k in (1, 3, 5):
    add("top_k_categorical_accuracy_%d" % k, "TopKCategoricalAccuracy", {"k": k}, ONEHOT)
    add("sparse_top_k_categorical_accuracy_%d" % k, "SparseTopKCategoricalAccuracy", {"k": k}, SPARSE)
add("accuracy", "Accuracy", {}, [(labels(50 + i, (N, 1), 3), labels(52 + i, (N, 1), 3)) for i in range(2)])
for cls in ("MeanSquaredError", "MeanAbsoluteError", "RootMeanSquaredError"):
    add(keras.src.utils.naming.to_snake_case(cls), cls, {}, REAL)
    # Rank 1 means one value per update; Keras then refuses per-sample weights.
    add(keras.src.utils.naming.to_snake_case(cls) + "_rank1", cls, {}, [(t[:, 0], p[:, 0]) for t, p in REAL], None)
add("binary_crossentropy", "BinaryCrossentropy", {}, BITS)
add("categorical_crossentropy", "CategoricalCrossentropy", {}, ONEHOT)
add("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", {}, SPARSE)
add("mean", "Mean", {}, [(rand(60 + i, N),) for i in range(2)])
add("mean_2d", "Mean", {}, [(rand(62 + i, N, 2),) for i in range(2)], [w[:, None] for w in SW])
add("sum", "Sum", {}, [(rand(64 + i, N),) for i in range(2)])

write("metrics.json", cases)
