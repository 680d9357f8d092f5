"""float8.json: Dense and EinsumDense under the policy float8_from_float32.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_float8.py (see README.md).

In float32 all arithmetic but the rounding to 8 bits is exact enough to be compared. Biases are numbers of bfloat16, to which
Keras rounds them here. `scales` are those of inputs, kernel and the output's gradient g; their histories before are i/1024.
`history` has, for each, elements 0, 1, 1022 and 1023 of the one after: in Keras a "gradient" of the old one.
"""

from common import case, keras, np, tf, write

cases = []
rng = np.random.default_rng(8)
SCALED = ("inputs", "kernel", "outputs_grad")


def normal(*shape):
    return rng.standard_normal(shape).astype("float32")


def add(name, config, x, scales, gradient_scale):
    keras.utils.clear_session()
    args = {k: v for k, v in config.items() if k != "class_name"}
    layer = getattr(keras.layers, config["class_name"])(**args, dtype="float8_from_float32")
    layer.build((None,) + x.shape[1:])
    layer.kernel.assign(0.1 * normal(*layer.kernel.shape))
    layer.bias.assign(np.round(8 * normal(*layer.bias.shape)) / 8)
    for which, scale in zip(SCALED, scales):
        getattr(layer, which + "_scale").assign(scale)
        getattr(layer, which + "_amax_history").assign(np.arange(1024, dtype="float32") / 1024)
    histories = [getattr(layer, w + "_amax_history").value for w in SCALED]
    g = gradient_scale * normal(*layer(x).shape)

    @tf.function
    def run(x, g):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
            loss = tf.reduce_sum(y * g)
        return [y] + tape.gradient(loss, [x, layer.kernel.value, layer.bias.value] + histories)

    y, dx, dk, db, *after = run(tf.constant(x), tf.constant(g, "float32"))
    after = np.stack([h.numpy()[[0, 1, 1022, 1023]] for h in after])
    cases.append(case(name, config, dict(y=y, dx=dx, dkernel=dk, dbias=db, history=after),
                      inputs=dict(x=x, g=np.asarray(g, "float32"), scales=np.asarray(scales, "float32")),
                      weights=dict(kernel=layer.kernel, bias=layer.bias), policy="float8_from_float32"))


dense = lambda n: {"class_name": "Dense", "units": n}
add("unscaled", dense(5), normal(4, 7), [1, 1, 1], 1)
# Scales as training finds them, some gradients subnormal in E5M2.
add("scaled", dense(9), 30 * normal(6, 3, 11), [90 / 448, 0.25 / 448, 3e-6 / 57344], 1e-6)
add("cut off", dense(4), 100 * normal(5, 6), [50 / 448, 0.1 / 448, 1e-5], 1)
heads = {"class_name": "EinsumDense", "equation": "abc,cde->abde", "output_shape": [None, 2, 3], "bias_axes": "de"}
add("heads", heads, normal(2, 3, 4), [3 / 448, 0.3 / 448, 2 / 57344], 1)
joined = {"class_name": "EinsumDense", "equation": "abde,dec->abc", "output_shape": [None, 4], "bias_axes": "c"}
add("joined", joined, normal(2, 3, 2, 3), [0.01, 0.001, 0.0001], 1)
write("float8.json", cases)
