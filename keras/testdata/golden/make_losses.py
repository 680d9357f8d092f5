"""losses.json: losses under every reduction, with and without sample weights, and gradients with respect to the predictions.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_losses.py (see README.md).
"""

from common import case, keras, np, rand, tf, uniform, write

REDUCTIONS = ("sum_over_batch_size", "sum", "none", "mean_with_sample_weight")
cases = []


def probabilities(seed, *shape):
    """Rows that do NOT sum to one, so that the renormalisation of the categorical losses is tested."""
    return uniform(seed, *shape, low=0.02, high=0.98)


def add(name, cls, args, y_true, y_pred, weights=(None,), reductions=REDUCTIONS):
    for reduction in reductions:
        loss = getattr(keras.losses, cls)(reduction=reduction, **args)
        for label, sw in weights:
            p = tf.constant(y_pred)
            with tf.GradientTape() as tape:
                tape.watch(p)
                v = loss(y_true, p, sample_weight=sw)
            out = {"loss": v}
            if reduction == "sum_over_batch_size":
                out["grad/y_pred"] = tape.gradient(v, p)
            ins = {"y_true": y_true, "y_pred": y_pred}
            if sw is not None:
                ins["sample_weight"] = sw
            cases.append(case("%s/%s/%s" % (name, reduction, label), {"class_name": cls, **args, "reduction": reduction}, out, ins))


N, C = 6, 4
SW = np.array([1, 0, 0.5, 2, 3, 0.25], np.float32)
COLUMN = [("no_weights", None), ("weights", SW), ("weights_column", SW[:, None])]
LABELS = np.array([0, 3, 1, 2, 2, 1], np.int32)
ONEHOT = np.eye(C, dtype=np.float32)[LABELS]
SOFT = np.round(ONEHOT * 0.7 + 0.075, 3).astype(np.float32)
LOGITS, PROBS = rand(1, N, C, scale=2), probabilities(2, N, C)

for logits in (False, True):
    p, tag = (LOGITS, "logits") if logits else (PROBS, "probs")
    a = {"from_logits": True} if logits else {}
    add("scce_" + tag, "SparseCategoricalCrossentropy", a, LABELS, p, COLUMN)
    add("scce_column_labels_" + tag, "SparseCategoricalCrossentropy", a, LABELS[:, None], p, COLUMN[:1], REDUCTIONS[:1])
    add("scce_ignore_class_" + tag, "SparseCategoricalCrossentropy", {**a, "ignore_class": 2}, LABELS, p, COLUMN[:2])
    add("scce_ignore_minus1_" + tag, "SparseCategoricalCrossentropy", {**a, "ignore_class": -1},
        np.array([0, -1, 1, 2, -1, 1], np.int32), p, COLUMN[:2])
    add("cce_" + tag, "CategoricalCrossentropy", a, ONEHOT, p, COLUMN)
    add("cce_soft_" + tag, "CategoricalCrossentropy", a, SOFT, p, COLUMN[:1], REDUCTIONS[:1])
    add("cce_smoothing_" + tag, "CategoricalCrossentropy", {**a, "label_smoothing": 0.1}, ONEHOT, p, COLUMN[:2], REDUCTIONS[:3])

LABELS3 = np.array([[0, 1, 2], [3, 3, 0]], np.int32)
SW3 = np.array([[1, 0, 2], [0.5, 1, 3]], np.float32)
STEPS = [("no_weights", None), ("weights_steps", SW3), ("weights_rows", np.array([2, 0.5], np.float32)[:, None])]
add("scce_3d_logits", "SparseCategoricalCrossentropy", {"from_logits": True}, LABELS3, rand(3, 2, 3, 4), STEPS)
add("scce_3d_probs", "SparseCategoricalCrossentropy", {}, LABELS3, probabilities(4, 2, 3, 4), STEPS[:2])
add("scce_probs_extreme", "SparseCategoricalCrossentropy", {}, np.array([0, 1, 2], np.int32), np.eye(3, dtype=np.float32)[[1, 1, 2]],
    COLUMN[:1], ("none", "sum_over_batch_size"))
add("scce_logits_extreme", "SparseCategoricalCrossentropy", {"from_logits": True}, np.array([0, 1, 2], np.int32),
    np.array([[100, -100, 0], [1000, 0, -1000], [-88, -89, 60000]], np.float32), COLUMN[:1], ("none", "sum_over_batch_size"))

BITS = (rand(5, N, 3) > 0).astype(np.float32)
BL, BP = rand(6, N, 3, scale=2), probabilities(7, N, 3)
for logits in (False, True):
    p, tag = (BL, "logits") if logits else (BP, "probs")
    a = {"from_logits": True} if logits else {}
    add("bce_" + tag, "BinaryCrossentropy", a, BITS, p, COLUMN)
    add("bce_smoothing_" + tag, "BinaryCrossentropy", {**a, "label_smoothing": 0.2}, BITS, p, COLUMN[:2], REDUCTIONS[:3])
    add("bce_one_column_" + tag, "BinaryCrossentropy", a, BITS[:, :1], p[:, :1], COLUMN[:2], REDUCTIONS[:1])
    add("bce_rank1_labels_" + tag, "BinaryCrossentropy", a, BITS[:, 0], p[:, :1], COLUMN[:2], REDUCTIONS[:1])
    add("bce_int_labels_" + tag, "BinaryCrossentropy", a, BITS.astype(np.int32), p, COLUMN[:1], REDUCTIONS[:1])
add("bce_probs_extreme", "BinaryCrossentropy", {}, np.array([[1, 0], [1, 0]], np.float32), np.array([[1, 1], [1, 0]], np.float32),
    COLUMN[:1], ("none", "sum_over_batch_size"))
add("bce_logits_extreme", "BinaryCrossentropy", {"from_logits": True}, np.array([[1, 0], [1, 0]], np.float32),
    np.array([[-1000, 1000], [1000, -80]], np.float32), COLUMN[:1], ("none", "sum_over_batch_size"))

T, P = rand(8, N, 3, scale=2), rand(9, N, 3, scale=2)
SW_ELEMENT = uniform(10, N, 3, low=0, high=2)
for name, cls, args in (("mse", "MeanSquaredError", {}), ("mae", "MeanAbsoluteError", {}), ("huber", "Huber", {}),
                        ("huber_delta", "Huber", {"delta": 0.5})):
    add(name, cls, args, T, P, COLUMN)
    add(name + "_3d", cls, args, rand(11, 2, 3, 2), rand(12, 2, 3, 2), STEPS, REDUCTIONS[:3])
    add(name + "_rank1", cls, args, T[:, 0], P[:, 0], COLUMN[:2], REDUCTIONS[:3])
    add(name + "_column", cls, args, T[:, 0], P[:, :1], COLUMN[:2], REDUCTIONS[:1])


# The rest of the losses: all reductions without and with weights in the plain case, the mean alone for variants.
REST = (("mape", "MeanAbsolutePercentageError"), ("msle", "MeanSquaredLogarithmicError"), ("cosine", "CosineSimilarity"),
        ("log_cosh", "LogCosh"), ("hinge", "Hinge"), ("squared_hinge", "SquaredHinge"), ("categorical_hinge", "CategoricalHinge"),
        ("kl_divergence", "KLDivergence"), ("poisson", "Poisson"))
POSITIVE = [uniform(20 + i, N, 3, low=0.05, high=3) for i in range(2)]
SIGNS = np.where(BITS > 0, 1, -1).astype(np.float32)
for name, cls in REST:
    t, p = {"mape": (T, P), "cosine": (T, P), "log_cosh": (T * 3, P), "hinge": (SIGNS, P), "squared_hinge": (SIGNS, P),
            "categorical_hinge": (np.eye(3, dtype=np.float32)[LABELS % 3], P), "kl_divergence": (probabilities(22, N, 3), BP)}.get(name, POSITIVE)
    add(name, cls, {}, t, p, COLUMN[:2])
    add(name + "_3d", cls, {}, t.reshape(2, 3, 3), p.reshape(2, 3, 3), STEPS[1:2], REDUCTIONS[:1])
add("log_cosh_range", "LogCosh", {}, np.zeros((1, 6), np.float32), np.array([[0.01, -0.1, 1, -5, 60, -1e4]], np.float32), COLUMN[:1], ("none", "sum_over_batch_size"))
add("msle_clipped", "MeanSquaredLogarithmicError", {}, T, P, COLUMN[:1], REDUCTIONS[:1])
add("hinge_binary", "Hinge", {}, BITS, P, COLUMN[:1], REDUCTIONS[:1])
add("squared_hinge_binary", "SquaredHinge", {}, BITS.astype(np.int32), P, COLUMN[:1], REDUCTIONS[:1])
add("cosine_axis", "CosineSimilarity", {"axis": 1}, rand(11, 2, 3, 2), rand(12, 2, 3, 2), COLUMN[:1], ("none", "sum_over_batch_size"))
add("kl_divergence_clipped", "KLDivergence", {}, ONEHOT, np.abs(LOGITS) + 0.001, COLUMN[:1], REDUCTIONS[:1])

for logits in (False, True):
    tag, a = ("logits", {"from_logits": True}) if logits else ("probs", {})
    p, c = (BL, LOGITS) if logits else (BP, PROBS)
    add("binary_focal_" + tag, "BinaryFocalCrossentropy", a, BITS, p, COLUMN[:2])
    add("binary_focal_balanced_" + tag, "BinaryFocalCrossentropy", {**a, "apply_class_balancing": True, "alpha": 0.4, "gamma": 1.5}, BITS, p, COLUMN[:1], REDUCTIONS[:1])
    add("binary_focal_smoothing_" + tag, "BinaryFocalCrossentropy", {**a, "label_smoothing": 0.2, "gamma": 1.0}, BITS, p, COLUMN[:1], REDUCTIONS[:1])
    add("categorical_focal_" + tag, "CategoricalFocalCrossentropy", a, ONEHOT, c, COLUMN[:2])
    add("categorical_focal_smoothing_" + tag, "CategoricalFocalCrossentropy", {**a, "label_smoothing": 0.1, "alpha": 0.5, "gamma": 3.0}, SOFT, c, COLUMN[:1], REDUCTIONS[:1])

add("dice", "Dice", {}, BITS, BP, [("no_weights", None)])
add("dice_axis", "Dice", {"axis": [1]}, BITS, BP, COLUMN[:2], REDUCTIONS[:3])
# Keras 3.15 weighs with alpha what was missed and with beta what was predicted wrongly; 3.16 exchanged them. Equal weights are
# the same in both.
add("tversky", "Tversky", {}, BITS, BP, [("no_weights", None)])
add("tversky_axis", "Tversky", {"alpha": 0.7, "beta": 0.7, "axis": [1]}, BITS, BP, COLUMN[:2], REDUCTIONS[:3])
UNIT = rand(24, N, 4)
UNIT = np.round(UNIT / np.linalg.norm(UNIT, axis=1, keepdims=True), 6).astype(np.float32)
add("circle", "Circle", {}, np.array([1, 1, 2, 2, 1, 2], np.int32), UNIT, COLUMN[:2])
add("circle_alone", "Circle", {"gamma": 2.0, "margin": 0.25}, np.array([1, 1, 2, 3, 1, 3], np.int32), UNIT, COLUMN[:2], ("none", "sum_over_batch_size"))
add("circle_diagonal", "Circle", {"gamma": 2.0, "remove_diagonal": False}, np.array([1, 1, 2, 2, 1, 3], np.int32), UNIT, COLUMN[:1], ("none", "sum_over_batch_size"))
for q in (0.5, 0.8):
    add("generalized_%g" % q, "CategoricalGeneralizedCrossEntropy", {"q": q}, LABELS, PROBS, COLUMN[:2], REDUCTIONS[:3])
# Repeated labels, one label, none at all. An inner blank, and labels that do not fit into the steps, without gradients: TensorFlow's
# leaves the inner blank out, and has four digits at a loss of 707.
SPELL = np.array([[1, 2, 2, 3], [3, 0, 0, 0], [0, 0, 0, 0], [1, 2, 3, 1], [2, 0, 1, 1], [1, 1, 1, 1]], np.int32)
add("ctc", "CTC", {}, SPELL[:4], rand(25, 4, 6, C, scale=2), [("no_weights", None), ("weights", SW[:4])])
add("ctc_one_label", "CTC", {}, SPELL[:3, :1], rand(26, 3, 4, C), COLUMN[:1], REDUCTIONS[:1])
add("ctc_extreme", "CTC", {}, SPELL[:2], rand(27, 2, 6, C, scale=40), COLUMN[:1], ("none", "sum_over_batch_size"))
add("ctc_odd", "CTC", {}, SPELL[3:], rand(28, 3, 5, C), COLUMN[:1], ("none",))

# Predictions exactly at the limits of clips and at the ends of hinges, where the gradient is TensorFlow's convention.
AT = np.array([[1e-7, 1, 0.5], [0.25, 1e-7, 1]], np.float32)
HALF = np.array([[0.5, 0.25, 0.25], [0, 0.5, 0.5]], np.float32)
add("kl_divergence_limits", "KLDivergence", {}, HALF, AT, COLUMN[:1], REDUCTIONS[:1])
add("msle_limits", "MeanSquaredLogarithmicError", {}, HALF, AT, COLUMN[:1], REDUCTIONS[:1])
add("bce_limits", "BinaryCrossentropy", {}, np.array([[1, 0, 1], [1, 0, 1]], np.float32), np.array([[1e-7, 1, 0.5], [1 - 1e-7, 1e-7, 0]], np.float32),
    COLUMN[:1], REDUCTIONS[:1])
add("binary_focal_limits", "BinaryFocalCrossentropy", {}, np.array([[1, 0, 1]], np.float32), np.array([[1e-7, 1e-7, 1 - 1e-7]], np.float32), COLUMN[:1], REDUCTIONS[:1])
add("scce_limits", "SparseCategoricalCrossentropy", {}, np.array([0, 2], np.int32), np.array([[1e-7, 1 - 1e-7, 0.5], [0.25, 1e-7, 1 - 1e-7]], np.float32),
    COLUMN[:1], REDUCTIONS[:1])
add("hinge_limits", "Hinge", {}, np.array([[1, -1, 1]], np.float32), np.array([[1, -1, 2]], np.float32), COLUMN[:1], REDUCTIONS[:1])
add("squared_hinge_limits", "SquaredHinge", {}, np.array([[1, -1, 1]], np.float32), np.array([[1, -1, 0.5]], np.float32), COLUMN[:1], REDUCTIONS[:1])
add("categorical_hinge_limits", "CategoricalHinge", {}, np.array([[1, 0, 0], [0, 1, 0]], np.float32), np.array([[1.5, 0.5, 0.25], [0.5, 0.75, 0.5]], np.float32),
    COLUMN[:1], REDUCTIONS[:1])
add("mae_limits", "MeanAbsoluteError", {}, np.array([[1, 0, 0]], np.float32), np.array([[1, 0.5, 0]], np.float32), COLUMN[:1], REDUCTIONS[:1])
add("mape_limits", "MeanAbsolutePercentageError", {}, np.array([[1, 2, 4]], np.float32), np.array([[1, 0.5, 8]], np.float32), COLUMN[:1], REDUCTIONS[:1])
add("huber_limits", "Huber", {}, np.array([[1, 0, 0]], np.float32), np.array([[2, -1, 0]], np.float32), COLUMN[:1], REDUCTIONS[:1])
add("circle_limits", "Circle", {"gamma": 2.0}, np.array([1, 1, 2, 2], np.int32), np.array([[1, 0], [1, 0], [0, 1], [1, 0]], np.float32), COLUMN[:1], REDUCTIONS[:1])

write("losses.json", cases)
