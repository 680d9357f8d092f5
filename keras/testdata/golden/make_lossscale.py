"""lossscale.json: the dynamic loss scale through sequences of finite and non-finite steps.

Made with Keras 3.15.1, tf-keras 2.21.0, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_lossscale.py (see README.md).

keras3/*: keras.optimizers.LossScaleOptimizer, given gradients of the scaled loss; no lower or upper bound on the scale; a skipped step does
not count in `iterations`. tf2/*: tf.keras.mixed_precision.LossScaleOptimizer (from tf-keras), given unscaled gradients; floor 1, doubles only
to a finite value, a skipped step does count. "bounds" in a case's config says whether the sequence leaves [1, 2**24].
"""

import tf_keras

from common import case, keras, np, rand, tf, write

cases = []
V0 = np.array([1, 2, 3, 4], np.float32)
V1 = np.array([[0.5, -0.5]], np.float32)
BAD = {"i": np.inf, "-": -np.inf, "n": np.nan}


def gradients(steps):
    """Unscaled gradients of var0 and var1 for every step, with the one bad element that each non-finite step has."""
    n = len(steps)
    grads = [rand(1, n, 4), rand(2, n, 1, 2)]
    for i, s in enumerate(steps):
        if s != ".":
            grads[i % 2].reshape(n, -1)[i, i % 2] = BAD[s]
    return grads


def record(name, steps, config, grads, step):
    """Run step(i), which returns the values to keep, for every i, and append the case."""
    rows = [step(i) for i in range(len(steps))]
    scales = [r["scale"] for r in rows]
    bounds = "below 1" if min(scales) < 1 else "above 2**24" if max(scales) > 2**24 else "inside"
    dtypes = {"finite": bool, "step_counter": np.int32, "iterations": np.int32}
    out = {k: np.asarray([r[k] for r in rows], dtypes.get(k, np.float32)) for k in rows[0]}
    out["finite"] = np.asarray([s == "." for s in steps])
    cases.append(case(name, {**config, "steps": steps, "bounds": bounds}, out,
                      {"unscaled_gradients/var0": grads[0], "unscaled_gradients/var1": grads[1]}, {"var0": V0, "var1": V1}))


def add(name, steps, initial_scale=32768.0, dynamic_growth_steps=2000, inner="SGD", **args):
    """steps: one character per step; "." finite, "i" +Inf, "-" -Inf, "n" NaN in one element of one gradient."""
    lso = keras.optimizers.LossScaleOptimizer(getattr(keras.optimizers, inner)(**args), initial_scale=initial_scale,
                                              dynamic_growth_steps=dynamic_growth_steps)
    variables = [keras.Variable(V0, name="var0"), keras.Variable(V1, name="var1")]
    lso.build(variables)
    grads = gradients(steps)

    def step(i):
        before = np.float32(lso.scale_loss(1.0))
        # What a training step passes: gradients of the SCALED loss.
        lso.apply([tf.constant(g[i] * before) for g in grads], variables)
        return {"scale_before": before, "scale": np.float32(lso.dynamic_scale), "step_counter": int(lso.step_counter),
                "iterations": int(lso.iterations), "var0": variables[0].numpy(), "var1": variables[1].numpy()}

    record("keras3/" + name, steps, {"class_name": "LossScaleOptimizer", "initial_scale": initial_scale,
                                     "dynamic_growth_steps": dynamic_growth_steps, "inner_optimizer": {"class_name": inner, **args}}, grads, step)


def add_tf2(name, steps, initial_scale=32768.0, dynamic_growth_steps=2000, inner="SGD", dynamic=True, **args):
    """The same for TensorFlow 2's class; its custom-loop contract: get_scaled_loss, get_unscaled_gradients, apply_gradients."""
    kw = {"dynamic": dynamic, "initial_scale": initial_scale}
    if dynamic:
        kw["dynamic_growth_steps"] = dynamic_growth_steps
    lso = tf_keras.mixed_precision.LossScaleOptimizer(getattr(tf_keras.optimizers, inner)(**args), **kw)
    variables = [tf.Variable(V0, name="var0"), tf.Variable(V1, name="var1")]
    lso.build(variables)
    grads = gradients(steps)

    def step(i):
        before = np.float32(lso.get_scaled_loss(tf.constant(1.0)))
        scaled = [tf.constant(g[i] * before) for g in grads]
        lso.apply_gradients(zip(lso.get_unscaled_gradients(scaled), variables))
        row = {"scale_before": before, "scale": np.float32(lso.loss_scale), "iterations": int(lso.iterations),
               "var0": variables[0].numpy(), "var1": variables[1].numpy()}
        if dynamic:
            row["step_counter"] = int(lso.dynamic_counter)
        return row

    record("tf2/" + name, steps, {"class_name": "LossScaleOptimizer", **kw, "inner_optimizer": {"class_name": inner, **args}}, grads, step)


add("all_finite", "." * 6, learning_rate=0.5)
add("growth", "." * 9, 2.0, 2, learning_rate=0.1)
add("growth_every_step", "." * 5, 16.0, 1, learning_rate=0.1)
add("backoff", "iin.n-", 400.0, 2000, learning_rate=0.1)
add("counter_reset", "..i..." + "...i.", 64.0, 3, learning_rate=0.1)
add("mixed", "...i....n..-......ii......", 1024.0, 4, learning_rate=0.05)
add("momentum", "..i...n....", 256.0, 3, learning_rate=0.05, momentum=0.9)
add("adam", "..i...n....", 256.0, 3, inner="Adam", learning_rate=0.05)
add("adam_clip_decay", "..i...n....", 256.0, 3, inner="Adam", learning_rate=0.05, clipnorm=1.0, weight_decay=0.01)
add("adam_global_clipnorm", "..i...n....", 256.0, 3, inner="Adam", learning_rate=0.05, global_clipnorm=1.0)
add("rmsprop", "i..i...", 8192.0, 2, inner="RMSprop", learning_rate=0.01)
add("ema", "..i...n..", 256.0, 3, learning_rate=0.05, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3)
add("accumulation", "..i....n....", 256.0, 3, learning_rate=0.05, gradient_accumulation_steps=2)
add("below_one", "iiiii...", 4.0, 2, learning_rate=0.1)
add("above_2_24", "." * 6, 2.0**23, 2, learning_rate=0.1)

add_tf2("all_finite", "." * 6, learning_rate=0.5)
add_tf2("growth", "." * 9, 2.0, 2, learning_rate=0.1)
add_tf2("mixed", "...i....n..-......ii......", 1024.0, 4, learning_rate=0.05)
add_tf2("floor", "iiiii...", 4.0, 2, learning_rate=0.1)
add_tf2("vector_34", "..iiii", 4.0, 2, learning_rate=0.1)
add_tf2("adam", "..i...n....", 256.0, 3, inner="Adam", learning_rate=0.05)
add_tf2("momentum", "..i...n....", 256.0, 3, learning_rate=0.05, momentum=0.9)
add_tf2("largest_finite", "." * 5, 2.0**125, 1, learning_rate=2.0**-10)
add_tf2("fixed", "..i.n.", 128.0, dynamic=False, learning_rate=0.1)

write("lossscale.json", cases, tf_keras=tf_keras.__version__)
