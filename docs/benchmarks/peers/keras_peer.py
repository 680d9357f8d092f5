"""The side of Keras 3 on TensorFlow in examples/bench. See peer.py and README.md.

    python keras_peer.py THREADS
"""
import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_models  # noqa: E402
import peer  # noqa: E402

DTYPES = {"float32": tf.float32, "mixed_bfloat16": tf.bfloat16, "mixed_float16": tf.float16}


def modes(f, *args):
    """f(*args) in a tf.function, by its own kernels and compiled by XLA."""

    def setting(jit):
        def build():
            g = tf.function(f, jit_compile=jit)
            return lambda: g(*args)

        return build

    return {"graph": setting(False), "jit": setting(True)}


def normal(d, *shape):
    return tf.cast(tf.random.normal(shape), d)


def mm(s, d):
    x = normal(d, *((s["k"], s["m"]) if s["tx"] else (s["m"], s["k"])))
    w = normal(d, *((s["n"], s["k"]) if s["tw"] else (s["k"], s["n"])))
    return modes(lambda x, w: tf.linalg.matmul(x, w, s["tx"], s["tw"]), x, w)


def bmm(s, d):
    n, m, k, b = s["n"], s["m"], s["k"], s["batch"]
    w = normal(d, *((b, n, k) if s["tw"] else (b, k, n)))
    return modes(lambda x, w: tf.linalg.matmul(x, w, transpose_b=s["tw"]), normal(d, b, m, k), w)


def linear(s, d):
    b = tf.zeros(s["n"], d)
    return modes(lambda x, w: tf.nn.bias_add(tf.linalg.matmul(x, w), b), normal(d, s["m"], s["k"]), normal(d, s["k"], s["n"]))


def conv(s, d):
    if len(s["w"]) != 4 or s["groups"] > 1 or s["pad"] > 0 or s["first"]:
        return {}
    x, w, y, stride = normal(d, *s["x"]), normal(d, *s["w"]), normal(d, *s["y"]), s["stride"]
    strides = [1, stride, stride, 1]
    if s["part"] == "forward":
        return modes(lambda x, w: tf.nn.conv2d(x, w, stride, "VALID"), x, w)
    if s["part"] == "input":
        return modes(lambda y, w: tf.raw_ops.Conv2DBackpropInput(
            input_sizes=s["x"], filter=w, out_backprop=y, strides=strides, padding="VALID"), y, w)
    return modes(lambda x, y: tf.raw_ops.Conv2DBackpropFilter(
        input=x, filter_sizes=s["w"], out_backprop=y, strides=strides, padding="VALID"), x, y)


def bias_relu(s, d):
    return modes(lambda x, b: tf.nn.relu(x + b), normal(d, s["m"], s["n"]), normal(d, s["n"]))


def softmax(s, d):
    return modes(tf.nn.softmax, normal(d, s["m"], s["n"]))


def layernorm(s, d):
    layer = keras.layers.LayerNormalization(dtype=keras.DTypePolicy(s["policy"]))
    x, dy = normal(d, s["m"], s["n"]), normal(d, s["m"], s["n"])
    layer.build(x.shape)
    if not s["gradient"]:
        return modes(layer, x)

    def f(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        return tape.gradient(y, [x, layer.gamma.value, layer.beta.value], dy)

    return modes(f, x, dy)


def attention(s, d):
    shape = s["batch"], s["steps"], s["heads"], s["size"]
    q, k, v, g = (normal(d, *shape) for _ in range(4))
    if not s["gradient"]:
        return modes(keras.ops.dot_product_attention, q, k, v)

    def f(q, k, v, g):
        with tf.GradientTape() as tape:
            tape.watch((q, k, v))
            y = keras.ops.dot_product_attention(q, k, v)
        return tape.gradient(y, (q, k, v), g)

    return modes(f, q, k, v, g)


def recurrent(s, d):
    layer = keras_models.RECURRENT[s["cell"]](s["units"], return_sequences=True, dtype=keras.DTypePolicy(s["policy"]))
    x = normal(d, s["batch"], s["steps"], s["features"])
    layer.build(x.shape)
    return modes(layer, x)


def adam(s, _):
    w, g = keras.Variable(normal(tf.float32, s["n"])), normal(tf.float32, s["n"])
    opt = keras.optimizers.Adam()
    opt.build([w])
    return modes(lambda g: opt.apply([g], [w]), g)


def cast(s, d):
    to = tf.float32 if s["widen"] else d
    return modes(lambda x: tf.cast(x, to), normal(d if s["widen"] else tf.float32, s["m"], s["n"]))


def dropout(s, d):
    return modes(lambda x: tf.nn.dropout(x, 0.2), normal(d, s["m"], s["n"]))


def embedding(s, d):
    at = tf.range(s["indices"]) * 7919 % s["rows"]
    if s["gradient"]:
        return modes(lambda g: tf.math.unsorted_segment_sum(g, at, s["rows"]), normal(tf.float32, s["indices"], s["width"]))
    table = normal(tf.float32, s["rows"], s["width"])
    return modes(lambda at: tf.cast(tf.gather(table, at), d), at)


def step(s, policy):
    def setting(jit):
        def build():
            keras.utils.set_random_seed(0)
            keras.config.set_dtype_policy(policy)
            net, (x, y), loss = keras_models.make(s)
            net.compile(optimizer="adam", loss=loss, jit_compile=jit)
            net.train_on_batch(x, y)  # makes the variables
            net.make_train_function()
            data = iter(tf.data.Dataset.from_tensors((x, y)).repeat())
            return lambda: net.train_function(data)

        return build

    return {"graph": setting(False), "jit": setting(True)}


OPS = {"mm": mm, "linear": linear, "conv": conv, "bias-relu": bias_relu, "softmax": softmax, "layernorm": layernorm,
       "cast": cast, "dropout": dropout, "embedding": embedding, "adam": adam,
       "attention": attention, "recurrent": recurrent, "bmm": bmm}


def start(s, policy):
    if s["kind"] == "step":
        return step(s, policy)
    make = OPS.get(s["kind"])
    return make(s | {"policy": policy}, DTYPES[policy]) if make else {}


if __name__ == "__main__":
    n = int(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(n)
    tf.config.threading.set_inter_op_parallelism_threads(n)
    peer.serve(f"{keras.__version__} on TensorFlow {tf.__version__}", start)
