"""steps.json: three steps of training of every layer with weights, under three policies.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_steps.py (see README.md).

SGD with learning_rate RATE on the mean of (y-t)^2, in float32, of the (first) result y; under mixed_float16 within a LossScaleOptimizer that starts at
SCALE. `grad/NAME` are the gradients of the first step, unscaled, by inputs of floats and by trainable weights; `loss` those of the three
steps; `final/NAME` all weights after them. Weights go by their paths within the layer, `weight_names` in a config is their order.
"""

from common import build, case, keras, local, np, rand, tf, uniform, write

RATE, SCALE = 0.5, 256.0
HEADS = ("MultiHeadAttention", "GroupQueryAttention")
cases = []


def call(layer, xs):
    if type(layer).__name__ in HEADS + ("GroupedQueryAttention",):
        return layer(*xs, training=True)
    arg = xs if len(xs) > 1 else xs[0]
    try:
        return layer(arg, training=True)
    except TypeError:  # no such argument
        return layer(arg)


def within(v, policy):
    """A config with the policy in all layers within it, which have the global one in Keras."""
    if isinstance(v, list):
        return [within(x, policy) for x in v]
    if not isinstance(v, dict):
        return v
    if "config" in v:
        return {**v, "config": {**within(v["config"], policy), "dtype": policy}}
    return {k: within(x, policy) for k, x in v.items()}


def add(name, config, *inputs, rate=RATE, policies=("float32", "mixed_float16", "mixed_bfloat16")):
    for policy in policies:
        keras.utils.clear_session()
        layer = build({**within(config, policy), "dtype": policy})
        xs = [tf.constant(x) for x in inputs]
        call(layer, xs)
        weights = {}
        for i, w in enumerate(layer.weights):
            draw = uniform(900 + i, *w.shape, low=0.5, high=1.5) if w.name in ("gamma", "scale", "moving_variance") else rand(900 + i, *w.shape, scale=0.4)
            if w.name not in ("real_kernel", "imag_kernel"):
                w.assign(draw)
            weights[local(layer, w)] = keras.ops.convert_to_numpy(w).copy()
        opt = keras.optimizers.SGD(rate)
        if policy == "mixed_float16":
            opt = keras.optimizers.LossScaleOptimizer(opt, initial_scale=SCALE)
        variables, losses, out = layer.trainable_variables, [], {}
        floats = [x for x in xs if x.dtype == tf.float32]
        for step in range(3):
            with tf.GradientTape() as tape:
                tape.watch(floats)
                y = keras.tree.flatten(call(layer, xs))[0]
                t = rand(77, *y.shape)
                loss = tf.reduce_mean(tf.square(tf.cast(y, "float32") - t))
                scaled = opt.scale_loss(loss) if policy == "mixed_float16" else loss
            grads = tape.gradient(scaled, floats + [v.value for v in variables])
            grads = [g if g is None else tf.convert_to_tensor(g) for g in grads]
            if step == 0:
                factor = SCALE if policy == "mixed_float16" else 1.0
                names = ["x%d" % i for i, x in enumerate(xs) if x.dtype == tf.float32] + [local(layer, v) for v in variables]
                for n, g in zip(names, grads):
                    if g is not None:
                        out["grad/" + n] = tf.cast(g, "float32") / factor
            opt.apply(grads[len(floats):], variables)
            losses.append(np.float32(loss))
        assert int(opt.iterations) == 3, (name, policy)
        out["loss"] = np.array(losses, np.float32)
        for w in layer.weights:
            if "seed_generator" not in w.path:
                out["final/" + local(layer, w)] = w
        full = {**config, "weight_names": list(weights), "learning_rate": rate, "initial_scale": SCALE}
        cases.append(case(name, full, out, {**{"x%d" % i: x for i, x in enumerate(inputs)}, "t": t}, weights, policy))


def of(cls, **args):
    return {"class_name": cls, **args}


def inner(cls, **args):
    return {"class_name": cls, "config": args}


X2, X3 = rand(1, 4, 5), rand(2, 3, 4, 5)
I1, I2, I3 = rand(3, 2, 7, 4), rand(4, 2, 5, 4, 4), rand(5, 2, 4, 3, 3, 2)
IDS = np.array([[1, 2, 0, 1], [4, 0, 0, 2]], np.int32)
K = {"filters": 4, "kernel_size": 2}

add("dense", of("Dense", units=3, activation="tanh"), X2)
add("einsum_dense", of("EinsumDense", equation="abc,cd->abd", output_shape=[None, 3], bias_axes="d"), X3)
add("embedding", of("Embedding", input_dim=6, output_dim=3), IDS)
add("reversible_embedding", of("ReversibleEmbedding", input_dim=6, output_dim=3), IDS)
add("prelu", of("PReLU", shared_axes=[1]), X3)
for n, x in ((1, I1), (2, I2), (3, I3)):
    add("conv%dd" % n, of("Conv%dD" % n, **K, padding="same", activation="tanh"), x)
    add("conv%dd_transpose" % n, of("Conv%dDTranspose" % n, **K, strides=2), x)
    if n < 3:
        add("depthwise_conv%dd" % n, of("DepthwiseConv%dD" % n, kernel_size=2, depth_multiplier=2), x)
        add("separable_conv%dd" % n, of("SeparableConv%dD" % n, **K), x)
    add("conv_lstm%dd" % n, of("ConvLSTM%dD" % n, filters=2, kernel_size=2, return_sequences=True), rand(10 + n, 2, 3, *([4, 3, 3][:n]), 2))
add("batch_normalization", of("BatchNormalization", momentum=0.75), I2)
add("layer_normalization", of("LayerNormalization"), X3)
add("group_normalization", of("GroupNormalization", groups=2), I2)
add("rms_normalization", of("RMSNormalization"), X3)
add("spectral_normalization", of("SpectralNormalization", layer=inner("Dense", units=3)), X2)
for cls in ("SimpleRNN", "LSTM", "GRU"):
    add(cls.lower(), of(cls, units=3, return_sequences=True), X3)
    add("rnn_" + cls.lower(), of("RNN", cell=inner(cls + "Cell", units=3)), X3)
    add("bidirectional_" + cls.lower(), of("Bidirectional", layer=inner(cls, units=3)), X3)
add("rnn_stacked", of("RNN", cell=inner("StackedRNNCells", cells=[inner("LSTMCell", units=3), inner("GRUCell", units=2)])), X3)
add("gru_before", of("GRU", units=3, reset_after=False), X3)
add("time_distributed", of("TimeDistributed", layer=inner("Dense", units=3)), X3)
add("attention", of("Attention", use_scale=True), X3, rand(6, 3, 6, 5))
add("attention_concat", of("Attention", use_scale=True, score_mode="concat"), X3, rand(6, 3, 6, 5))
add("additive_attention", of("AdditiveAttention"), X3, rand(6, 3, 6, 5))
add("multi_head_attention", of("MultiHeadAttention", num_heads=2, key_dim=3), X3, rand(7, 3, 6, 4))
add("group_query_attention", of("GroupQueryAttention", head_dim=3, num_query_heads=4, num_key_value_heads=2), X3, rand(8, 3, 6, 5))
add("stft_spectrogram", of("STFTSpectrogram", frame_length=5, frame_step=2, mode="magnitude"), rand(9, 2, 14, 1), rate=0.1,
    policies=("float32",))  # TensorFlow has no convolution that mixes these types
write("steps.json", cases)
