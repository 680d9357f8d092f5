"""activations.json: every Keras activation on a fixed grid.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_activations.py (see README.md).
"""

from common import case, keras, np, rand, tf, write

GRID = [-10, -8, -6, -5, -4, -3, -2.5, -2, -1.5, -1, -0.75, -0.5, -0.25, -0.1, 0,
        0.1, 0.25, 0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]
X = np.array(GRID, np.float32).reshape(3, 10)
R = rand(1, 3, 10)

# name -> list of (arguments, points where the function has no derivative and TensorFlow's choice is a convention)
CASES = {
    "linear": [({}, [])],
    "relu": [({}, [0]), ({"negative_slope": 0.25, "max_value": 6.0, "threshold": 1.0}, [1, 6]),
             ({"max_value": 3.0}, [0, 3]), ({"max_value": 6.0}, [0, 6]), ({"negative_slope": 0.25, "max_value": 6.0}, [0, 6]),
             ({"negative_slope": 0.25, "max_value": 3.0}, [0, 3]), ({"threshold": 1.0, "max_value": 3.0}, [1, 3]),
             ({"threshold": -1.0, "max_value": 3.0, "negative_slope": 0.25}, [-1, 0, 3]), ({"threshold": -1.0}, [-1])],
    "relu6": [({}, [0, 6])],
    "leaky_relu": [({}, [0]), ({"negative_slope": 0.3}, [0])],
    "elu": [({}, []), ({"alpha": 0.5}, [0])],
    "selu": [({}, [0])],
    "celu": [({}, []), ({"alpha": 2.0}, [])],
    "gelu": [({}, []), ({"approximate": True}, [])],
    "silu": [({}, [])],
    "sigmoid": [({}, [])],
    "hard_sigmoid": [({}, [-3, 3])],
    "hard_silu": [({}, [-3, 3])],
    "tanh": [({}, [])],
    "tanh_shrink": [({}, [])],
    "hard_tanh": [({}, [-1, 1])],
    "softmax": [({}, []), ({"axis": 0}, [])],
    "log_softmax": [({}, []), ({"axis": 0}, [])],
    "sparsemax": [({}, [])],
    "softplus": [({}, [])],
    "softsign": [({}, [0])],
    "squareplus": [({}, []), ({"b": 1.0}, [])],
    "sparse_plus": [({}, [])],
    "sparse_sigmoid": [({}, [-1, 1])],
    "mish": [({}, [])],
    "exponential": [({}, [])],
    "log_sigmoid": [({}, [])],
    "hard_shrink": [({}, [-0.5, 0.5]), ({"threshold": 1.0}, [-1, 1])],
    "soft_shrink": [({}, [-0.5, 0.5]), ({"threshold": 1.0}, [-1, 1])],
    "glu": [({}, []), ],
    "threshold": [({"threshold": 0.5, "default_value": -1.0}, [0.5])],
}

cases = []
for name, variants in CASES.items():
    fn = getattr(keras.activations, name)
    for args, kinks in variants:
        label = "/".join([name] + ["%s=%s" % kv for kv in args.items()])
        config = {"class_name": name, **args, "kinks": kinks}
        for policy in ("float32", "float16", "bfloat16"):
            x = tf.constant(X)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = fn(tf.cast(x, policy), **args)
                r = R[:, : y.shape[-1]]
                s = tf.reduce_sum(tf.cast(y, "float32") * r)
            if policy == "float32":
                cases.append(case(label, config, {"y": y, "grad/x": tape.gradient(s, x)}, {"x": X, "r": r}, policy=policy))
            else:
                # y_float32 is the same function in float32 on the rounded input: TensorFlow composes some activations from several 16-bit
                # operations, an implementation that rounds once should be within half an ulp of y_float32 instead.
                y32 = fn(tf.cast(tf.cast(x, policy), "float32"), **args)
                cases.append(case(label, config, {"y": y, "y_float32": y32}, {"x": X}, policy=policy))

# The string forms a layer's activation argument takes; their defaults differ from the layer classes of the same name.
for name in CASES:
    if name not in ("threshold", "glu"):
        got = keras.activations.get(name)(tf.constant(X))
        want = getattr(keras.activations, name)(tf.constant(X))
        assert np.array_equal(got, want), name

write("activations.json", cases)
