"""conv.json: convolution and pooling layers under three policies, and float32 gradients.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_conv.py (see README.md).

TensorFlow's CPU kernels compute neither channels_first nor gradients of groups everywhere. Cases with `data_format` channels_first are made from channels_last by
transposing inputs and outputs, those with `groups` from one convolution for each group; both are what Keras defines.
"""

from common import case, keras, np, rand, tf, write

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
cases = []


def first(a):
    """channels_last to channels_first."""
    return np.moveaxis(np.asarray(a), -1, 1)


def groups_call(layer, x, groups):
    """A grouped convolution of TensorFlow tensors, one group after the other."""
    rank, kernel = layer.rank, layer.kernel
    n = x.shape[-1] // groups
    f = layer.filters // groups
    ys = [keras.ops.conv(x[..., g * n:(g + 1) * n], kernel[..., g * f:(g + 1) * f], strides=list(layer.strides),
                         padding=layer.padding, dilation_rate=layer.dilation_rate) for g in range(groups)]
    y = tf.concat(ys, -1)
    return layer.activation(y + layer.bias if layer.use_bias else y)


def run(cls, args, x, weights, dtype, grads=False):
    """Output of the layer in channels_last, its weights, and gradients of sum(y*r)."""
    keras.utils.clear_session()
    layer = getattr(keras.layers, cls)(dtype=dtype, **{k: v for k, v in args.items() if k != "data_format"})
    layer.build(x.shape)
    for i, w in enumerate(layer.weights):
        w.assign(rand(100 + i, *w.shape, scale=0.5) if weights is None else weights[w.name])
    call = layer
    if args.get("groups", 1) > 1:
        def call(x):
            with keras.src.backend.AutocastScope(layer.compute_dtype):
                return groups_call(layer, tf.cast(x, layer.compute_dtype), args["groups"])
    xs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(xs)
        y = call(xs)
        r = rand(7, *y.shape)
        s = tf.reduce_sum(tf.cast(y, "float32") * r)
    out = {}
    if grads:
        variables = layer.trainable_variables
        for key, g in zip(["x"] + [v.name for v in variables], tape.gradient(s, [xs] + [v.value for v in variables])):
            out["grad/" + key] = g
    return y, r, {w.name: keras.ops.convert_to_numpy(w).copy() for w in layer.weights}, out


def add(name, cls, args, x, policies=("float32",), grads=True):
    """Record cls(**args)(x) with drawn weights."""
    turn = first if args.get("data_format") == "channels_first" else (lambda a: a)
    for policy in policies:
        y, r, weights, out = run(cls, args, x, None, policy, grads and policy == "float32")
        for k in list(out):
            if k == "grad/x":
                out[k] = turn(out[k])
        if y.shape.rank == x.ndim:
            y, r = turn(keras.ops.convert_to_numpy(tf.cast(y, "float32"))).astype(y.dtype.as_numpy_dtype), turn(r)
        out["y"] = y
        ins = {"x": turn(x)}
        if policy == "float32":
            if grads:
                ins["r"] = r
        else:
            d = policy[6:]
            cast = lambda v: np.asarray(tf.cast(tf.cast(v, d), "float32"))
            exact, _, _, _ = run(cls, args, cast(x), {k: cast(w) for k, w in weights.items()}, "float32")
            out["y_float32"] = turn(exact) if exact.shape.rank == x.ndim else exact
        cases.append(case(name, {"class_name": cls, **args}, out, ins, weights, policy))


X1, X2, X3 = rand(1, 2, 7, 4), rand(2, 1, 5, 4, 4), rand(3, 1, 4, 4, 3, 2)
F = {"data_format": "channels_first"}
K3 = {"filters": 3, "kernel_size": 3}

add("conv1d", "Conv1D", K3, X1, POLICIES)
add("conv1d_same", "Conv1D", {**K3, "kernel_size": 4, "padding": "same", "activation": "relu"}, X1)
add("conv1d_same_strided", "Conv1D", {**K3, "padding": "same", "strides": 2}, X1[:, :6])
add("conv1d_causal", "Conv1D", {**K3, "padding": "causal", "dilation_rate": 2}, X1, POLICIES)
add("conv1d_causal_strided", "Conv1D", {**K3, "padding": "causal", "strides": 2, "use_bias": False}, X1)
add("conv1d_groups", "Conv1D", {"filters": 4, "kernel_size": 2, "groups": 2}, X1)
add("conv1d_first", "Conv1D", {**K3, **F, "padding": "same"}, X1)
add("conv2d", "Conv2D", K3, X2, POLICIES)
add("conv2d_same", "Conv2D", {**K3, "kernel_size": [2, 3], "padding": "same"}, X2, POLICIES)
add("conv2d_same_strided", "Conv2D", {**K3, "kernel_size": [3, 2], "padding": "same", "strides": [2, 3]}, X2)
add("conv2d_dilated", "Conv2D", {**K3, "kernel_size": 2, "dilation_rate": [2, 3], "activation": "tanh"}, X2)
add("conv2d_groups", "Conv2D", {"filters": 4, "kernel_size": [3, 2], "groups": 2, "strides": 2, "padding": "same"}, X2, POLICIES)
add("conv2d_first", "Conv2D", {**K3, **F, "strides": 2}, X2)
add("conv2d_point", "Conv2D", {"filters": 5, "kernel_size": 1}, X2)
add("conv3d", "Conv3D", {"filters": 2, "kernel_size": 2}, X3, POLICIES)
add("conv3d_same_strided", "Conv3D", {"filters": 2, "kernel_size": [2, 3, 1], "strides": [1, 2, 1], "padding": "same"}, X3)
add("conv3d_first", "Conv3D", {"filters": 2, "kernel_size": [2, 1, 2], **F}, X3)

add("depthwise1d", "DepthwiseConv1D", {"kernel_size": 3, "depth_multiplier": 2}, X1, POLICIES)
add("depthwise1d_same", "DepthwiseConv1D", {"kernel_size": 2, "padding": "same", "strides": 2}, X1)
add("depthwise2d", "DepthwiseConv2D", {"kernel_size": 3}, X2, POLICIES)
add("depthwise2d_fields", "DepthwiseConv2D",
    {"kernel_size": [2, 3], "depth_multiplier": 2, "padding": "same", "strides": 2, "activation": "relu"}, X2)
add("depthwise2d_dilated", "DepthwiseConv2D", {"kernel_size": 2, "dilation_rate": 2, "use_bias": False}, X2)
add("depthwise2d_first", "DepthwiseConv2D", {"kernel_size": 2, "padding": "same", **F}, X2)
add("separable1d", "SeparableConv1D", K3, X1, POLICIES)
add("separable1d_same", "SeparableConv1D", {**K3, "kernel_size": 2, "padding": "same", "depth_multiplier": 2}, X1)
add("separable2d", "SeparableConv2D", {**K3, "depth_multiplier": 2}, X2, POLICIES)
add("separable2d_fields", "SeparableConv2D", {**K3, "padding": "same", "strides": 2, "activation": "tanh"}, X2)
add("separable2d_first", "SeparableConv2D", {"filters": 2, "kernel_size": [1, 2], **F}, X2)

add("transpose1d", "Conv1DTranspose", K3, X1, POLICIES)
for k, s in ((2, 3), (3, 2), (4, 2), (5, 3), (1, 2)):
    for padding in ("valid", "same"):
        add("transpose1d_%s_%d_%d" % (padding, k, s), "Conv1DTranspose",
            {"filters": 2, "kernel_size": k, "strides": s, "padding": padding}, X1[:1, :4, :2])
for k, s, p in ((3, 3, 1), (2, 3, 2), (4, 3, 1)):
    for padding in ("valid", "same"):
        add("transpose1d_%s_%d_%d_%d" % (padding, k, s, p), "Conv1DTranspose",
            {"filters": 2, "kernel_size": k, "strides": s, "padding": padding, "output_padding": p}, X1[:1, :4, :2])
add("transpose1d_dilated", "Conv1DTranspose", {"filters": 2, "kernel_size": 3, "dilation_rate": 2}, X1[:1])
add("transpose2d", "Conv2DTranspose", {"filters": 3, "kernel_size": 2, "strides": 2}, X2[:, :3, :2], POLICIES)
add("transpose2d_same", "Conv2DTranspose", {"filters": 2, "kernel_size": [3, 4], "strides": [2, 3], "padding": "same"}, X2[:, :3, :2])
add("transpose2d_first", "Conv2DTranspose",
    {"filters": 2, "kernel_size": 3, "padding": "same", "strides": 2, "output_padding": [0, 1], **F}, X2[:, :3, :2])
add("transpose3d", "Conv3DTranspose", {"filters": 2, "kernel_size": [2, 3, 1], "strides": [1, 2, 1]}, X3[:, :2, :2], POLICIES)
add("transpose3d_same", "Conv3DTranspose", {"filters": 2, "kernel_size": 2, "strides": 2, "padding": "same"}, X3[:, :2, :2, :2])

for kind in ("Max", "Average"):
    low = kind.lower()
    for n, x in ((1, X1), (2, X2), (3, X3)):
        cls = "%sPooling%dD" % (kind, n)
        # TensorFlow has no float16 kernels for 3 axes.
        policies = POLICIES if n < 3 else POLICIES[::2]
        add("%s%d" % (low, n), cls, {"pool_size": 2}, x, policies)
        add("%s%d_same" % (low, n), cls, {"pool_size": 3, "strides": 2, "padding": "same"}, x)
        add("%s%d_first" % (low, n), cls, {"pool_size": [3, 2, 1][:n], "strides": 1, "padding": "same", **F}, x)
        add("global_%s%d" % (low, n), "Global%sPooling%dD" % (kind, n), {}, x, POLICIES)
        add("global_%s%d_keep" % (low, n), "Global%sPooling%dD" % (kind, n), {"keepdims": True, **F}, x)
        add("adaptive_%s%d" % (low, n), "Adaptive%sPooling%dD" % (kind, n), {"output_size": [3, 2, 2][:n]}, x, policies)
        add("adaptive_%s%d_first" % (low, n), "Adaptive%sPooling%dD" % (kind, n), {"output_size": 2, **F}, x, grads=False)
write("conv.json", cases)
