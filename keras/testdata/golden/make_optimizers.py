"""optimizers.json: two variables over 20 steps of fixed gradients, for each optimizer and base option.

"slot/NAME" holds the optimizer's state after the last step under Keras's variable names, but for three things: Nadam's
"variable" is u_product; Adafactor's row and column factors, all called after their variable, are VAR_r and VAR_c; and its
velocity of a matrix, which follows from these two, is left out.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_optimizers.py (see README.md).
"""

import inspect
import textwrap

from common import case, keras, np, rand, tensor, write

STEPS, AT = 20, (1, 2, 5, 10, 20)
VARS = {"var0": rand(1, 3, 4), "var1": rand(2, 4)}
# The size of the gradient changes from step to step so that clipping acts on some steps and not on others.
SCALE = np.array([1, 0.1, 3, 0.01, 0.5] * 4, np.float32)
GRADS = {"var0": np.round(rand(3, STEPS, 3, 4) * SCALE[:, None, None], 4).astype(np.float32),
         "var1": np.round(rand(4, STEPS, 4) * SCALE[:, None], 4).astype(np.float32)}
GRADS["var1"][:, 3] = 0  # a weight that never gets a gradient

cases = []


def add(name, cls, **args):
    keras.utils.clear_session()
    keras_args = {k: None if k == "rms_rate" and v == 0 else v for k, v in args.items()}  # 0 stands for Keras's None
    run(name, getattr(keras.optimizers, cls)(**keras_args), {"class_name": cls, **args})


def add_multi(name, default, **parts):
    keras.utils.clear_session()
    opt = keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(default, parts))
    config = opt.get_config()
    del config["loss_scale_factor"]
    run(name, opt, {"class_name": "MultiOptimizer", **config})


def run(name, opt, config):
    cls = config["class_name"]
    variables = [keras.Variable(v, name=k) for k, v in VARS.items()]
    out = {}
    for step in range(1, STEPS + 1):
        opt.apply([keras.ops.convert_to_tensor(GRADS[v.name][step - 1]) for v in variables], variables)
        if step in AT:
            for v in variables:
                out["%s/step%d" % (v.name, step)] = v.numpy()  # a copy: v itself goes on
    # Keras's MultiOptimizer counts calls, its parts what was applied.
    out["iterations"] = opt.optimizers[0].iterations if cls == "MultiOptimizer" else opt.iterations
    for v in opt.variables:
        if v.name not in ("iteration", "learning_rate", *VARS):
            out["slot/" + {"variable": "u_product"}.get(v.name, v.name)] = v
    if cls == "Adafactor":
        for i, v in enumerate(variables):
            if len(v.shape) > 1:
                out["slot/%s_r" % v.name], out["slot/%s_c" % v.name] = opt._r[i], opt._c[i]
                del out["slot/%s_velocity" % v.name]
    if opt.use_ema:
        opt.finalize_variable_values(variables)
        for v in variables:
            out[v.name + "/finalized"] = v
    cases.append(case(name, config, out))


add("sgd", "SGD", learning_rate=0.01)
add("sgd_momentum", "SGD", learning_rate=0.01, momentum=0.9)
add("sgd_nesterov", "SGD", learning_rate=0.01, momentum=0.9, nesterov=True)
add("sgd_weight_decay", "SGD", learning_rate=0.1, weight_decay=0.01)
add("sgd_clipnorm", "SGD", learning_rate=0.1, clipnorm=1.0)
add("rmsprop", "RMSprop", learning_rate=0.001)
add("rmsprop_momentum", "RMSprop", learning_rate=0.001, momentum=0.9)
add("rmsprop_centered", "RMSprop", learning_rate=0.001, centered=True)
add("rmsprop_centered_momentum", "RMSprop", learning_rate=0.001, rho=0.8, momentum=0.5, centered=True, epsilon=1e-5)
add("adam", "Adam", learning_rate=0.001)
add("adam_args", "Adam", learning_rate=0.05, beta_1=0.8, beta_2=0.95, epsilon=1e-3)
add("adam_amsgrad", "Adam", learning_rate=0.001, amsgrad=True)
add("adamw", "AdamW", learning_rate=0.001)
add("adamw_decay", "AdamW", learning_rate=0.05, weight_decay=0.1)
add("adam_clipnorm", "Adam", learning_rate=0.01, clipnorm=0.5)
add("adam_clipvalue", "Adam", learning_rate=0.01, clipvalue=0.3)
add("adam_global_clipnorm", "Adam", learning_rate=0.01, global_clipnorm=1.0)
add("adam_weight_decay", "Adam", learning_rate=0.01, weight_decay=0.01)
add("adam_ema", "Adam", learning_rate=0.01, use_ema=True, ema_momentum=0.9)
add("adam_ema_overwrite", "Adam", learning_rate=0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3)
add("adam_accumulation", "Adam", learning_rate=0.01, gradient_accumulation_steps=4)
add("adam_accumulation_global_clipnorm", "Adam", learning_rate=0.01, gradient_accumulation_steps=4, global_clipnorm=0.5)
add("sgd_loss_scale_factor", "SGD", learning_rate=0.01, loss_scale_factor=8.0)

add("adamax", "Adamax", learning_rate=0.001)
add("adamax_args", "Adamax", learning_rate=0.05, beta_1=0.8, beta_2=0.95, epsilon=1e-3, weight_decay=0.01)
add("nadam", "Nadam", learning_rate=0.001)
add("nadam_args", "Nadam", learning_rate=0.05, beta_1=0.8, beta_2=0.95, epsilon=1e-3, clipnorm=1.0)
add("adagrad", "Adagrad", learning_rate=0.001)
add("adagrad_args", "Adagrad", learning_rate=0.1, initial_accumulator_value=0.3, epsilon=1e-3, global_clipnorm=1.0)
add("adagrad_from_zero", "Adagrad", learning_rate=0.1, initial_accumulator_value=0.0)
add("adadelta", "Adadelta", learning_rate=0.001)
add("adadelta_args", "Adadelta", learning_rate=1.0, rho=0.8, epsilon=1e-3, weight_decay=0.01)
add("adafactor", "Adafactor", learning_rate=0.001)
add("adafactor_args", "Adafactor", learning_rate=0.5, beta_2_decay=-0.65, epsilon_1=1e-15, epsilon_2=1e-4, clip_threshold=0.9,
    relative_step=False, weight_decay=0.01)
add("ftrl", "Ftrl", learning_rate=0.001)
add("ftrl_args", "Ftrl", learning_rate=0.05, learning_rate_power=-0.2, initial_accumulator_value=0.4, l1_regularization_strength=0.05,
    l2_regularization_strength=0.15, l2_shrinkage_regularization_strength=0.01, beta=0.3)
add("ftrl_weight_decay", "Ftrl", learning_rate=0.1, l1_regularization_strength=1.0, weight_decay=0.01)
add("lion", "Lion", learning_rate=0.001)
add("lion_args", "Lion", learning_rate=0.01, beta_1=0.8, beta_2=0.95, weight_decay=0.1)
add("lamb", "Lamb", learning_rate=0.001)
add("lamb_args", "Lamb", learning_rate=0.05, beta_1=0.8, beta_2=0.95, epsilon=1e-3, weight_decay=0.1)
add("lamb_accumulation", "Lamb", learning_rate=0.01, gradient_accumulation_steps=4)
add("muon", "Muon", learning_rate=0.001)
add("muon_args", "Muon", learning_rate=0.02, momentum=0.8, nesterov=False, ns_steps=3, adam_beta_1=0.8, adam_beta_2=0.95,
    adam_lr_ratio=0.5, adam_weight_decay=0.1, weight_decay=0.01, epsilon=1e-3)
add("muon_no_rms_rate", "Muon", learning_rate=0.02, rms_rate=0.0, muon_a=3.0, muon_b=-3.2, muon_c=1.2)
add("muon_exclude", "Muon", learning_rate=0.02, exclude_layers=["^va"])
add("muon_ema", "Muon", learning_rate=0.01, use_ema=True, ema_momentum=0.9)

# ScheduleFreeAdamW keeps the value of a variable before it updates it. That is the old value with JAX and NumPy, as in the paper,
# but a reference to the new one with TensorFlow and PyTorch: here it is a copy of the old value.
ScheduleFree = keras.optimizers.ScheduleFreeAdamW
source, scope = textwrap.dedent(inspect.getsource(ScheduleFree.update_step)), {}
assert "momentum.value" in source
exec(source.replace("momentum.value", "ops.copy(momentum.value)"), {"ops": keras.ops}, scope)
ScheduleFree.update_step = scope["update_step"]
add("schedule_free_adamw", "ScheduleFreeAdamW")
add("schedule_free_adamw_args", "ScheduleFreeAdamW", learning_rate=0.05, beta_1=0.8, beta_2=0.95, epsilon=1e-3, warmup_steps=6,
    weight_decay=0.01, clipnorm=1.0)
add("schedule_free_adamw_accumulation", "ScheduleFreeAdamW", learning_rate=0.01, gradient_accumulation_steps=4)

o = keras.optimizers
add_multi("multi", o.SGD(learning_rate=0.01, momentum=0.9), var1=o.Adam(learning_rate=0.05, beta_2=0.95))
add_multi("multi_patterns", o.SGD(learning_rate=0.5), **{".*0": o.RMSprop(learning_rate=0.001), "[a-u].*": o.Adam()})
add_multi("multi_accumulation", o.Adam(learning_rate=0.01, gradient_accumulation_steps=4),
          var0=o.AdamW(learning_rate=0.02, gradient_accumulation_steps=4, clipnorm=0.5))

write("optimizers.json", cases, variables={k: tensor(v) for k, v in VARS.items()}, gradients={k: tensor(v) for k, v in GRADS.items()})
