"""rnn.json: recurrent layers, cells, wrappers, with masks, states and directions.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_rnn.py (see README.md).

As layers2.json. `x0` is the sequence, `x1`, ... are first states, where the layer gets some; `y0`, `y1`, ... are output and last
states of a layer that returns states. Layers within layers are objects in a config. `calls` is how often the layer is called
before what is recorded: for stateful layers. Gradients are those of sum(y*r) of the first output.
"""

from common import build, case, keras, local, np, rand, tf, write

cases = []


def add(name, config, x, states=(), mask=None, policies=("float32",), calls=0, seed=500, training=None):
    for policy in policies:
        keras.utils.clear_session()
        layer = build({**config, "dtype": policy})
        xs = [tf.constant(x)] + [tf.constant(s) for s in states]
        kw = {}
        if states:
            kw["initial_state"] = [tf.cast(s, layer.compute_dtype) for s in xs[1:]]
        if mask is not None:
            kw["mask"] = tf.constant(mask)
        if training:
            kw["training"] = True
        layer.build(x.shape)
        names = [local(layer, w) for w in layer.weights]
        for i, w in enumerate(layer.weights):
            w.assign(rand(seed + i, *w.shape, scale=0.4))
        weights = {n: w for n, w in zip(names, [np.array(w) for w in layer.weights])}
        for _ in range(calls):
            layer(xs[0], **kw)
        if calls:  # what follows starts where this ends
            start = [tf.identity(s) for s in layer.states]
        with tf.GradientTape() as tape:
            tape.watch(xs)
            tape.watch(kw.get("initial_state", []))
            out = layer(xs[0], **kw)
            ys = keras.tree.flatten(out)
            r = rand(seed + 50, *ys[0].shape)
            loss = tf.reduce_sum(tf.cast(ys[0], tf.float32) * r)
        outputs = {"y" if len(ys) == 1 else "y%d" % i: y for i, y in enumerate(ys)}
        inputs = {"x" if not states else "x0": x}
        inputs.update({"x%d" % (i + 1): s for i, s in enumerate(states)})
        if mask is not None:
            inputs["mask0"] = mask
            got = layer.compute_mask(xs[0], tf.constant(mask))
            got = got[0] if isinstance(got, (list, tuple)) else got
            if got is not None:
                outputs["out_mask"] = got
        full = {**config, "weight_names": names}
        if training:
            full["training"] = True
            for n, w in zip(names, layer.weights):
                outputs["new/" + n] = w
        if calls:
            full["calls"] = calls
        if policy == "float32":
            inputs["r"] = r
            trainable = [w for w in layer.trainable_weights]
            grads = tape.gradient(loss, [xs[0]] + [w.value for w in trainable])
            outputs["grad/x" if not states else "grad/x0"] = grads[0]
            for w, g in zip(trainable, grads[1:]):
                if g is not None:
                    outputs["grad/" + local(layer, w)] = g
        cases.append(case(name, full, outputs, inputs, weights, policy))


ALL = ("float32", "mixed_float16", "mixed_bfloat16")
X = rand(1, 3, 5, 4)
H, C = rand(2, 3, 3, scale=0.5), rand(3, 3, 3, scale=0.5)
MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 1]], bool)

for cls in ("SimpleRNN", "LSTM", "GRU"):
    low = cls.lower()
    states = (H, C) if cls == "LSTM" else (H,)
    base = {"class_name": cls, "units": 3}
    add(low, base, X, policies=ALL)
    add(low + "_sequences", {**base, "return_sequences": True}, X, policies=ALL)
    add(low + "_backwards", {**base, "return_sequences": True, "go_backwards": True}, X)
    add(low + "_states", {**base, "return_state": True, "return_sequences": True}, X, states)
    add(low + "_backwards_states", {**base, "return_state": True, "go_backwards": True}, X, states)
    add(low + "_mask", {**base, "return_sequences": True}, X, mask=MASK, policies=ALL)
    add(low + "_mask_last", {**base, "return_state": True}, X, mask=MASK)
    add(low + "_mask_states", {**base, "return_state": True, "return_sequences": True}, X, states, mask=MASK)
    add(low + "_mask_backwards", {**base, "return_sequences": True, "go_backwards": True, "return_state": True}, X, states, mask=MASK)
    add(low + "_mask_zeros", {**base, "return_sequences": True, "zero_output_for_mask": True}, X, mask=MASK)
    add(low + "_mask_zeros_last", {**base, "zero_output_for_mask": True}, X, mask=MASK)
    add(low + "_unroll", {**base, "return_sequences": True, "unroll": True}, X, mask=MASK)
    add(low + "_no_bias", {**base, "use_bias": False}, X)
    add(low + "_stateful", {**base, "stateful": True, "return_sequences": True}, X, calls=2)
    add(low + "_stateful_mask", {**base, "stateful": True, "return_sequences": True}, X, calls=1, mask=MASK)
    add(low + "_activations", {**base, "activation": "softsign", "return_sequences": True,
                               **({} if cls == "SimpleRNN" else {"recurrent_activation": "hard_sigmoid"})}, X, policies=ALL)
    cell = {"class_name": cls + "Cell", "config": {"units": 3}}
    add(low + "_cell", {"class_name": "RNN", "cell": cell, "return_sequences": True}, X, mask=MASK)
    for mode in ("concat", "sum", "mul", "ave", "none"):
        add("bidirectional_%s_%s" % (low, mode), {"class_name": "Bidirectional", "merge_mode": mode,
            "layer": {"class_name": cls, "config": {"units": 3, "return_sequences": mode != "sum"}}}, X,
            mask=MASK if mode in ("concat", "sum") else None)
    add("bidirectional_%s_states" % low, {"class_name": "Bidirectional",
        "layer": {"class_name": cls, "config": {"units": 3, "return_state": True}}}, X, states + states)

add("simplernn_relu", {"class_name": "SimpleRNN", "units": 3, "activation": "relu", "return_sequences": True}, X)
for mask in (None, MASK):
    suffix = "" if mask is None else "_mask"
    add("gru_before" + suffix, {"class_name": "GRU", "units": 3, "reset_after": False, "return_sequences": True}, X, mask=mask, policies=ALL)
add("gru_before_no_bias", {"class_name": "GRU", "units": 3, "reset_after": False, "use_bias": False, "go_backwards": True}, X, (H,) and ())
add("stacked", {"class_name": "RNN", "return_sequences": True, "return_state": True, "cell": {"class_name": "StackedRNNCells", "config": {
    "cells": [{"class_name": "LSTMCell", "config": {"units": 3}}, {"class_name": "GRUCell", "config": {"units": 2}},
              {"class_name": "LSTMCell", "config": {"units": 4}}]}}}, X)
add("bidirectional_backward", {"class_name": "Bidirectional", "layer": {"class_name": "LSTM", "config": {"units": 3, "return_sequences": True}},
    "backward_layer": {"class_name": "GRU", "config": {"units": 2, "return_sequences": True, "go_backwards": True}}}, X, mask=MASK)
add("time_dense", {"class_name": "TimeDistributed", "layer": {"class_name": "Dense", "config": {"units": 3, "activation": "tanh"}}}, X, mask=MASK)
add("time_lstm", {"class_name": "TimeDistributed", "layer": {"class_name": "LSTM", "config": {"units": 2}}}, rand(4, 2, 3, 4, 2))
for mask in (None, MASK):
    add("time_batch_norm" + ("" if mask is None else "_mask"), {"class_name": "TimeDistributed", "layer": {"class_name": "BatchNormalization",
        "config": {"momentum": 0.75}}}, X, mask=mask, policies=ALL, training=True)
add("time_conv", {"class_name": "TimeDistributed", "layer": {"class_name": "Conv2D", "config": {"filters": 2, "kernel_size": 2}}}, rand(5, 2, 3, 4, 4, 2))
I2, I3 = rand(6, 2, 3, 4, 5, 2), rand(7, 2, 2, 3, 3, 3, 2)
add("conv_lstm1d", {"class_name": "ConvLSTM1D", "filters": 2, "kernel_size": 2, "return_sequences": True}, rand(8, 2, 3, 5, 2), policies=ALL)
add("conv_lstm2d", {"class_name": "ConvLSTM2D", "filters": 2, "kernel_size": [3, 2], "return_state": True}, I2, policies=ALL)
add("conv_lstm2d_same", {"class_name": "ConvLSTM2D", "filters": 2, "kernel_size": 3, "padding": "same", "strides": 2, "go_backwards": True,
    "return_sequences": True}, I2, mask=np.array([[1, 0, 1], [0, 1, 1]], bool))
add("conv_lstm2d_dilation", {"class_name": "ConvLSTM2D", "filters": 1, "kernel_size": 2, "dilation_rate": 2, "use_bias": False}, I2)
add("conv_lstm3d", {"class_name": "ConvLSTM3D", "filters": 2, "kernel_size": 2}, I3)
write("rnn.json", cases)
