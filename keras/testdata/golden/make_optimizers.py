"""optimizers.json: two variables over 20 steps of fixed gradients, for each optimizer and base option.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_optimizers.py (see README.md).
"""

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
    opt = getattr(keras.optimizers, cls)(**args)
    variables = [keras.Variable(v, name=k) for k, v in VARS.items()]
    out = {}
    for step in range(1, STEPS + 1):
        opt.apply([keras.ops.convert_to_tensor(GRADS[v.name][step - 1]) for v in variables], variables)
        if step in AT:
            for v in variables:
                out["%s/step%d" % (v.name, step)] = v.numpy()  # a copy: v itself goes on
    out["iterations"] = opt.iterations
    for v in opt.variables:
        if v.name not in ("iteration", "learning_rate"):
            out["slot/" + v.name] = v
    if opt.use_ema:
        opt.finalize_variable_values(variables)
        for v in variables:
            out[v.name + "/finalized"] = v
    cases.append(case(name, {"class_name": cls, **args}, out))


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

write("optimizers.json", cases, variables={k: tensor(v) for k, v in VARS.items()}, gradients={k: tensor(v) for k, v in GRADS.items()})
