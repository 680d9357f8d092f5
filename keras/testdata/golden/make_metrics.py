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
        keras.utils.clear_session()  # so that default names have no number
        m = getattr(keras.metrics, cls)(**args)
        ins, out = {}, {}
        for i, u in enumerate(updates):
            keys = ["values"] if len(u) == 1 else ["y_true", "y_pred"]
            ins.update({"%s%d" % (k, i): v for k, v in zip(keys, u)})
            if sw is not None:
                ins["sample_weight%d" % i] = sw[i]
            m.update_state(*u, sample_weight=None if sw is None else sw[i])
            out["result%d" % i] = np.array(m.result())  # a copy: it may be the state itself
        for v in m.variables:
            if np.prod(v.shape) <= 32:
                out["state/" + v.name] = v
        m.reset_state()
        out["reset"] = m.result()
        config = {k: "none" if v is None else v for k, v in args.items()}
        cases.append(case(name + "/" + label, {"class_name": cls, "name": m.name, **config}, out, ins))


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

POSITIVE = [(uniform(70 + i, N, 3, low=0.05, high=3), uniform(72 + i, N, 3, low=0.05, high=3)) for i in range(2)]
SIGNS = [(np.where(t > 0, 1, -1).astype(np.float32), rand(74 + i, N, 3)) for i, (t, p) in enumerate(BITS)]
for cls, updates in (("MeanAbsolutePercentageError", REAL), ("MeanSquaredLogarithmicError", POSITIVE), ("LogCoshError", REAL), ("CosineSimilarity", REAL),
                     ("Hinge", SIGNS), ("SquaredHinge", SIGNS), ("CategoricalHinge", ONEHOT), ("KLDivergence", POSITIVE), ("Poisson", POSITIVE),
                     ("PearsonCorrelation", REAL), ("ConcordanceCorrelation", REAL), ("R2Score", REAL)):
    add(keras.src.utils.naming.to_snake_case(cls), cls, {}, updates)
add("hinge_binary", "Hinge", {}, [(t, p) for (t, _), (_, p) in zip(BITS, SIGNS)], None)
REAL3 = [(rand(80 + i, N, 4, 2), rand(82 + i, N, 4, 2)) for i in range(2)]
for cls in ("CosineSimilarity", "PearsonCorrelation", "ConcordanceCorrelation"):
    add(keras.src.utils.naming.to_snake_case(cls) + "_axis", cls, {"axis": 1}, REAL3)
for aggregation in (None, "variance_weighted_average"):
    add("r2_score_%s" % aggregation, "R2Score", {"class_aggregation": aggregation}, REAL)
# One column: Keras 3.15 counts elements, 3.16 rows.
add("r2_score_regressors", "R2Score", {"num_regressors": 2}, [(t[:, :1], p[:, :1]) for t, p in REAL])
add("r2_score_many_regressors", "R2Score", {"num_regressors": 20}, [(t[:, :1], p[:, :1]) for t, p in REAL])
LOGITS = [(t, rand(84 + i, N, C, scale=2)) for i, (t, _) in enumerate(SPARSE)]
add("binary_crossentropy_logits", "BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, [(t, rand(86 + i, N, 3)) for i, (t, _) in enumerate(BITS)])
add("categorical_crossentropy_logits", "CategoricalCrossentropy", {"from_logits": True, "label_smoothing": 0.1},
    [(np.eye(C, dtype=np.float32)[t], p) for t, p in LOGITS])
add("sparse_categorical_crossentropy_logits", "SparseCategoricalCrossentropy", {"from_logits": True}, LOGITS)
# Without weights Keras counts ignored samples as samples.
cases_before = len(cases)
add("sparse_categorical_crossentropy_ignore", "SparseCategoricalCrossentropy", {"ignore_class": int(SPARSE[0][0][0])}, SPARSE)
del cases[cases_before]

# Predictions on thresholds, at 0 and 1, and beyond them.
EDGE = [(t, p.copy()) for t, p in BITS]
EDGE[0][1][1:4] = [[0, 1, 0.25], [0.75, 0, 1], [1.5, -0.5, 0.3]]
for cls in ("TruePositives", "TrueNegatives", "FalsePositives", "FalseNegatives", "Precision", "Recall"):
    name = keras.src.utils.naming.to_snake_case(cls)
    add(name, cls, {}, EDGE)
    add(name + "_thresholds", cls, {"thresholds": [0.75, 0.3, 0.5]}, EDGE)
    add(name + "_even_thresholds", cls, {"thresholds": [0, 0.25, 0.5, 0.75, 1]}, EDGE, [np.array([[1, 2, 0.5]] * N, np.float32) * w[:, None] for w in SW])
    if cls in ("Precision", "Recall"):
        add(name + "_top_k", cls, {"top_k": 2}, ONEHOT)
        add(name + "_top_k_class", cls, {"top_k": 3, "class_id": 1, "thresholds": [0.2]}, ONEHOT)
        add(name + "_class", cls, {"class_id": 2}, EDGE)
        add(name + "_column", cls, {}, [(t[:, 0], p[:, :1]) for t, p in EDGE])
for cls, arg in (("SensitivityAtSpecificity", "specificity"), ("SpecificityAtSensitivity", "sensitivity"), ("PrecisionAtRecall", "recall"), ("RecallAtPrecision", "precision")):
    name = keras.src.utils.naming.to_snake_case(cls)
    add(name, cls, {arg: 0.6}, EDGE)
    add(name + "_thresholds", cls, {arg: 0.5, "num_thresholds": 11}, EDGE, None)
    add(name + "_one", cls, {arg: 0.4, "num_thresholds": 1, "class_id": 1}, EDGE)
    add(name + "_never", cls, {arg: 1.0, "num_thresholds": 5}, EDGE, None)
for curve in ("ROC", "PR", "PRGAIN"):
    for method in ("interpolation", "minoring", "majoring"):
        name = "auc_%s_%s" % (curve, method)
        add(name, "AUC", {"curve": curve, "summation_method": method}, EDGE)
        add(name + "_few", "AUC", {"curve": curve, "summation_method": method, "num_thresholds": 5, "multi_label": True}, EDGE)
add("auc_thresholds", "AUC", {"thresholds": [0.7, 0.2, 0.45]}, EDGE)
add("auc_thresholds_multi", "AUC", {"thresholds": [0.7, 0.2, 0.45], "multi_label": True, "num_labels": 3, "label_weights": [0.5, 2, 1]}, EDGE, None)
add("auc_even_thresholds", "AUC", {"thresholds": [0.25, 0.5, 0.75]}, EDGE)
add("auc_label_weights", "AUC", {"label_weights": [0.5, 2, 1], "num_thresholds": 21}, EDGE)
add("auc_two", "AUC", {"num_thresholds": 2}, EDGE, None)
add("auc_logits", "AUC", {"from_logits": True}, [(t, p) for (t, _), (_, p) in zip(BITS, SIGNS)])
for average in (None, "micro", "macro", "weighted"):
    a = {} if average is None else {"average": average}
    add("f1_score_%s" % average, "F1Score", a, ONEHOT)
    add("fbeta_score_%s" % average, "FBetaScore", {**a, "beta": 2.0, "threshold": 0.4}, BITS)
add("f1_score_bits", "F1Score", {"threshold": 0.5}, BITS)

CLASSES = [(labels(90 + i, N, 4), labels(92 + i, N, 4)) for i in range(2)]
WIDE = {"dtype": "float32"}  # Keras's default is an integer type, to which it truncates weights
add("iou", "IoU", {"num_classes": 4, "target_class_ids": [0, 2], **WIDE}, CLASSES)
add("iou_ignore", "IoU", {"num_classes": 4, "target_class_ids": [1, 2, 3], "ignore_class": 1, **WIDE}, CLASSES)
add("mean_iou", "MeanIoU", {"num_classes": 5, **WIDE}, CLASSES)
add("mean_iou_outside", "MeanIoU", {"num_classes": 3, **WIDE}, CLASSES)
add("mean_iou_probabilities", "MeanIoU", {"num_classes": C, "sparse_y_pred": False, **WIDE}, SPARSE)
add("one_hot_iou", "OneHotIoU", {"num_classes": C, "target_class_ids": [0, 3], **WIDE}, ONEHOT)
add("one_hot_mean_iou", "OneHotMeanIoU", {"num_classes": C, **WIDE}, ONEHOT)
add("one_hot_mean_iou_sparse", "OneHotMeanIoU", {"num_classes": C, "sparse_y_pred": True, **WIDE}, [(o, t) for (o, _), (t, _) in zip(ONEHOT, reversed(SPARSE))])
BINARY = [w.repeat(3).reshape(N, 3) for w in SW]
add("binary_iou", "BinaryIoU", {**WIDE}, BITS, BINARY)
add("binary_iou_threshold", "BinaryIoU", {"threshold": 0.3, "target_class_ids": [1], **WIDE}, BITS, None)

write("metrics.json", cases)
