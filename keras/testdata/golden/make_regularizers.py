"""regularizers.json and constraints.json: penalties (with gradients) and projections of fixed matrices.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_regularizers.py (see README.md).
"""

from common import case, keras, np, rand, tf, write

MATRICES = {"random": rand(1, 4, 3, scale=2), "with_zeros": np.array([[0, 1, -2], [0, 0, 3], [0, -1, 3]], np.float32),
            "small": rand(2, 4, 3, scale=0.01, digits=5), "vector": rand(3, 5, scale=2), "rank4": rand(4, 2, 2, 3, 2)}

cases = []
for cls, args in (("L1", {}), ("L1", {"l1": 0.1}), ("L2", {}), ("L2", {"l2": 0.1}), ("L1L2", {}), ("L1L2", {"l1": 0.1, "l2": 0.02}),
                  ("OrthogonalRegularizer", {}), ("OrthogonalRegularizer", {"factor": 0.1, "mode": "columns"})):
    for key, w in MATRICES.items():
        if cls == "OrthogonalRegularizer" and w.ndim != 2:
            continue
        v = tf.constant(w)
        with tf.GradientTape() as tape:
            tape.watch(v)
            y = getattr(keras.regularizers, cls)(**args)(v)
        # L1L2() adds nothing and so has no gradient at all.
        g = tape.gradient(y, v, unconnected_gradients="zero") if not isinstance(y, float) else np.zeros_like(w)
        label = "/".join([cls] + ["%s=%s" % kv for kv in args.items()] + [key])
        cases.append(case(label, {"class_name": cls, **args}, {"penalty": np.float32(y), "grad/w": g}, {"w": w}))
for name in ("l1", "l2", "l1l2"):
    w = MATRICES["random"]
    cases.append(case("string/" + name, {"class_name": name}, {"penalty": np.float32(keras.regularizers.get(name)(tf.constant(w)))}, {"w": w}))
write("regularizers.json", cases)

cases = []
for cls, args in (("MaxNorm", {}), ("MaxNorm", {"max_value": 1.0}), ("MaxNorm", {"max_value": 1.0, "axis": 1}), ("UnitNorm", {}), ("UnitNorm", {"axis": 1}),
                  ("MinMaxNorm", {}), ("MinMaxNorm", {"min_value": 0.5, "max_value": 2.0, "rate": 0.5}),
                  ("MinMaxNorm", {"min_value": 1.0, "max_value": 1.5, "axis": 1}), ("NonNeg", {}), ("MaxNorm", {"axis": [0, 1, 2]})):
    for key, w in MATRICES.items():
        axes = args.get("axis", 0)
        if (isinstance(axes, list) and w.ndim != 4) or (axes == 1 and w.ndim == 1):
            continue
        label = "/".join([cls] + ["%s=%s" % kv for kv in args.items()] + [key])
        cases.append(case(label, {"class_name": cls, **args}, {"w": getattr(keras.constraints, cls)(**args)(tf.constant(w))}, {"w": w}))
write("constraints.json", cases)
