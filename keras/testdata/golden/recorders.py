"""The recorders of cases with layers, for make_layers.py, make_layers2.py, make_steps.py and make_preprocessing.py."""

from common import build, case, keras, local, np, rand, tf, uniform

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
CALL = ("use_causal_mask", "return_attention_scores", "reverse")
MHA = ("MultiHeadAttention", "GroupQueryAttention")
RATE, SCALE = 0.5, 256.0


def in_float32(cls, args, inputs, weights, kw, dtype):
    """The layer in float32 on what its 16-bit form reads: rounded inputs (but LayerNormalization's) and rounded Dense weights."""
    cast = lambda v: tf.cast(tf.cast(v, dtype), "float32")
    layer = getattr(keras.layers, cls)(dtype="float32", **args)
    xs = [tf.constant(v) if cls == "LayerNormalization" else cast(v) for v in inputs.values()]
    layer.build([tuple(x.shape) for x in xs] if len(xs) > 1 else tuple(xs[0].shape))
    layer.set_weights([cast(w) if cls == "Dense" else w for w in weights.values()])
    return layer(xs if len(xs) > 1 else xs[0], **kw)


def record(cases, name, cls, args, inputs, weights=None, training=None, policies=POLICIES, note=None):
    """Record cls(**args)(inputs); weights maps a weight's name to its initial value in get_weights order."""
    weights = weights or {}
    for policy in policies:
        keras.utils.clear_session()
        layer = getattr(keras.layers, cls)(dtype=policy, **args)
        xs = [tf.constant(v) for v in inputs.values()]
        arg = xs if len(xs) > 1 else xs[0]
        layer.build([tuple(x.shape) for x in xs] if len(xs) > 1 else tuple(xs[0].shape))
        assert [w.name for w in layer.weights] == list(weights), (name, [w.name for w in layer.weights])
        layer.set_weights(list(weights.values()))
        kw = {} if training is None else {"training": training}
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = layer(arg, **kw)
            r = rand(7, *y.shape)
            s = tf.reduce_sum(tf.cast(y, "float32") * r)
        out, ins = {"y": y}, dict(inputs)
        if policy != "float32":
            out["y_float32"] = in_float32(cls, args, inputs, weights, kw, layer.compute_dtype)
        elif not note:
            ins["r"] = r
            trainable = [v.value for v in layer.trainable_variables]
            grads = tape.gradient(s, xs + trainable)
            for key, g in zip(list(inputs) + [v.name for v in layer.trainable_variables], grads):
                out["grad/" + key] = g
        for v in layer.non_trainable_variables:
            out["new/" + v.name] = v
        config = {"class_name": cls, **args, **kw}
        if note:
            config["note"] = note
        cases.append(case(name, config, out, ins, weights, policy))


def call_masked(layer, cls, xs, masks, args, training):
    """The layer on xs with masks, arguments given as Keras wants them."""
    kw = {k: v for k, v in args.items() if k in CALL and v}
    if training is not None:
        kw["training"] = training
    if cls in MHA:
        if args.get("use_attention_mask"):
            kw["attention_mask"], xs = xs[-1], xs[:-1]
        if 0 in masks:
            kw["query_mask"] = masks[0]
            keras.src.backend.set_keras_mask(xs[0], masks[0])
        if 1 in masks:
            kw["value_mask"] = masks[1]
        if 2 in masks:
            kw["key_mask"] = masks[2]
        names = ("query", "value", "key")
        return layer(**dict(zip(names, xs)), **kw)
    if cls == "CategoryEncoding" and len(xs) > 1:
        return layer(xs[0], count_weights=xs[1])
    if cls in ("Attention", "AdditiveAttention"):
        if masks:
            kw["mask"] = [masks.get(0), masks.get(1)]
        return layer(xs, **kw)
    for i, m in masks.items():
        keras.src.backend.set_keras_mask(xs[i], m)
    return layer(xs if len(xs) > 1 else xs[0], **kw)


def record_masked(cases, name, cls, args, inputs, weights=None, training=None, policies=("float32",), seed=100, adapt=None, grads=True):
    """Record cls(**args)(inputs); weights are drawn unless given."""
    for policy in policies:
        keras.utils.clear_session()
        ctor = {k: v for k, v in args.items() if k not in CALL + ("use_attention_mask",)}
        if ctor.get("window") == "none":
            ctor["window"] = None
        if cls == "SpectralNormalization":
            inner = ctor.pop("layer")
            ctor["layer"] = getattr(keras.layers, inner["class_name"])(**inner["config"], dtype=policy)
        layer = getattr(keras.layers, cls)(dtype=policy, **ctor)
        xs = [tf.constant(v) for k, v in inputs.items() if k[0] == "x"]
        masks = {int(k[4:]): tf.constant(v) for k, v in inputs.items() if k[:4] == "mask"}
        if adapt is not None:
            layer.adapt(adapt)
        call_masked(layer, cls, xs, masks, args, None)
        ws = {}
        for i, w in enumerate(layer.weights):
            if weights and local(layer, w) in weights:
                w.assign(weights[local(layer, w)])
            elif adapt is None:
                w.assign(rand(seed + i, *w.shape, scale=0.5))
            ws[local(layer, w)] = keras.ops.convert_to_numpy(w).copy()
        floats = [x for x in xs if x.dtype == tf.float32]
        with tf.GradientTape() as tape:
            tape.watch(floats)
            y = call_masked(layer, cls, xs, masks, args, training)
            ys = list(y) if isinstance(y, (list, tuple)) else [y]
            r = rand(7, *ys[0].shape)
            s = tf.reduce_sum(tf.cast(ys[0], "float32") * r)
        ins, out = dict(inputs), {}
        for i, v in enumerate(ys):
            out["y%d" % i if len(ys) > 1 else "y"] = v
        m = getattr(ys[0], "_keras_mask", None)
        if m is not None:
            out["out_mask"] = m
        if grads and policy == "float32" and ys[0].dtype.is_floating:
            ins["r"] = r
            names = [k for k, v in inputs.items() if k[0] == "x" and np.asarray(v).dtype == np.float32]
            names += [local(layer, v) for v in layer.trainable_variables]
            for key, g in zip(names, tape.gradient(s, floats + [v.value for v in layer.trainable_variables])):
                if isinstance(g, tf.IndexedSlices):
                    g = tf.convert_to_tensor(g)
                if g is not None:
                    out["grad/" + key] = g
        if training:
            for v in layer.weights:
                out["new/" + local(layer, v)] = v
        config = {"class_name": cls, **args, "weight_names": list(ws)}
        if training is not None:
            config["training"] = training
        cases.append(case(name, config, out, ins, ws, policy))


def call_training(layer, xs):
    if type(layer).__name__ in MHA + ("GroupedQueryAttention",):
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


def record_steps(cases, name, config, *inputs, rate=RATE, policies=POLICIES):
    for policy in policies:
        keras.utils.clear_session()
        layer = build({**within(config, policy), "dtype": policy})
        xs = [tf.constant(x) for x in inputs]
        call_training(layer, xs)
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
                y = keras.tree.flatten(call_training(layer, xs))[0]
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
