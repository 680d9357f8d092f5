"""models.json: whole training runs on fixed data: losses per step and final weights.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_models.py (see README.md).

Every model is built from a plain description (config.layers, in call order, with their inputs by name) so that another framework can
rebuild it. Step i trains on rows [i*batch, (i+1)*batch) of the inputs. Weights are named <layer>/<weight>.
"""

from common import case, keras, np, rand, uniform, write

BATCH, STEPS = 32, 10
cases = []
HEAD = {"activation": "softmax", "dtype": "float32"}


def weights_of(model):
    return {"%s/%s" % (l.name, w.name): np.asarray(w.value) for l in model.layers for w in l.weights}


def initial(model, seed):
    """Fixed initial weights: scaled normal kernels, small biases, non-trivial norm weights."""
    for i, layer in enumerate(model.layers):
        new = []
        for j, w in enumerate(layer.weights):
            s, shape = seed * 1000 + i * 10 + j, tuple(w.shape)
            if w.name == "kernel":
                new.append(rand(s, *shape, scale=(2 / shape[0]) ** 0.5, digits=4))
            elif w.name == "gamma" or w.name == "moving_variance":
                new.append(uniform(s, *shape, low=0.8, high=1.2))
            else:
                new.append(rand(s, *shape, scale=0.1, digits=4))
        layer.set_weights(new)


def obj(module, spec):
    """{"class_name": ..., args} -> object; strings and None pass."""
    if not isinstance(spec, dict):
        return spec
    args = {k: v for k, v in spec.items() if k != "class_name"}
    return getattr(module, spec["class_name"])(**args)


def build(layers, outputs, policy):
    """Build the functional model that a config's layers describe; the policy is global while the layers are made."""
    keras.utils.clear_session()
    keras.config.set_dtype_policy(policy)
    values, inputs = {}, []
    for spec in layers:
        args = {k: v for k, v in spec.items() if k not in ("class_name", "inputs")}
        if spec["class_name"] == "Input":
            values[spec["name"]] = keras.Input(tuple(args["shape"]), name=spec["name"], dtype="float32")
            inputs.append(values[spec["name"]])
            continue
        for k, v in args.items():
            if k.endswith("_regularizer"):
                args[k] = obj(keras.regularizers, v)
            elif k.endswith("_constraint"):
                args[k] = obj(keras.constraints, v)
        layer = getattr(keras.layers, spec["class_name"])(**args)
        xs = [values[n] for n in spec["inputs"]]
        values[spec["name"]] = layer(xs if len(xs) > 1 else xs[0])
    outs = [values[n] for n in outputs]
    model = keras.Model(inputs if len(inputs) > 1 else inputs[0], outs if len(outs) > 1 else outs[0])
    keras.config.set_dtype_policy("float32")
    return model


def one(v):
    return v if len(v) > 1 else v[0]


class Record(keras.callbacks.Callback):
    """Keeps the logs after each batch: within an epoch of fit the loss is the running mean over the epoch so far."""

    def __init__(self):
        super().__init__()
        self.logs = {}

    def on_train_batch_end(self, batch, logs=None):
        for k, v in logs.items():
            self.logs.setdefault(k, []).append(float(v))


def add(name, layers, x, y, config, policy="float32", seed=1, weight=None, class_weight=None):
    """Train STEPS batches with train_on_batch; then record a prediction on the first batch."""
    layers = [dict(l) for l in layers]
    model = build(layers, config["outputs"], policy)
    initial(model, seed)
    first = weights_of(model)
    mixed = policy == "mixed_float16"
    loss = one([obj(keras.losses, l) for l in config["loss"]])
    opt = obj(keras.optimizers, config["optimizer"])
    if mixed:
        opt = keras.optimizers.LossScaleOptimizer(opt, **config.get("loss_scale", {}))
    model.compile(opt, loss, loss_weights=config.get("loss_weights"), metrics=config.get("metrics"), jit_compile=False)
    losses, extra, scales, iterations = [], {}, [], []
    for i in range(STEPS):
        s = slice(i * BATCH, (i + 1) * BATCH)
        logs = model.train_on_batch(one([v[s] for v in x.values()]), one([v[s] for v in y.values()]),
                                    sample_weight=None if weight is None else weight[s], class_weight=class_weight, return_dict=True)
        losses.append(float(logs.pop("loss")))
        for k, v in logs.items():
            extra.setdefault(k, []).append(float(v))
        if mixed:
            scales.append(float(opt.dynamic_scale.numpy()))
        iterations.append(int(model.optimizer.iterations.numpy()))
    out = {"loss": np.float32(losses), "iterations": np.int32(iterations)}
    out.update({"log/" + k: np.float32(v) for k, v in extra.items()})
    if mixed:
        out["loss_scale"] = np.float32(scales)
    out.update({"final/" + k: v for k, v in weights_of(model).items()})
    xb = [v[:BATCH] for v in x.values()]
    p = model.predict_on_batch(one(xb))
    for n, v in zip(config["outputs"], p if isinstance(p, list) else [p]):
        out["predict/" + n] = np.asarray(v)
    ev = model.test_on_batch(one(xb), one([v[:BATCH] for v in y.values()]), return_dict=True)
    out.update({"test/" + k: np.float32(v) for k, v in ev.items()})
    ins = {**{"x/" + k: v for k, v in x.items()}, **{"y/" + k: v for k, v in y.items()}}
    if weight is not None:
        ins["sample_weight"] = weight
    cfg = {"layers": layers, **config, "batch_size": BATCH, "steps": STEPS}
    if class_weight:
        cfg["class_weight"] = {str(k): v for k, v in class_weight.items()}
    cases.append(case(name, cfg, out, ins, first, policy))


def dense(name, src, units, **kw):
    return {"class_name": "Dense", "name": name, "inputs": [src], "units": units, **kw}


IN = {"class_name": "Input", "name": "x", "shape": [8]}
N = BATCH * STEPS
X = rand(1, N, 8, digits=2)
# Labels that can be learned: the arg max of a fixed linear map.
Y = np.argmax(X @ rand(2, 8, 4), axis=1).astype(np.int32)
SCCE = {"class_name": "SparseCategoricalCrossentropy"}
RMS = {"class_name": "RMSprop", "learning_rate": 0.001}
POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")
MLP = [IN, dense("hidden0", "x", 16, activation="relu"), dense("hidden1", "hidden0", 16, activation="relu"),
       dense("head", "hidden1", 4, **HEAD)]
BASE = {"outputs": ["head"], "loss": [SCCE], "optimizer": RMS, "metrics": ["accuracy"]}

for policy in POLICIES:
    add("mlp", MLP, {"x": X}, {"head": Y}, BASE, policy)
# A start so high that the first float16 steps overflow and are skipped.
add("mlp_overflow", MLP, {"x": X}, {"head": Y}, {**BASE, "loss_scale": {"initial_scale": 2.0**20, "dynamic_growth_steps": 4}}, "mixed_float16")
add("mlp_logits_adam", MLP[:3] + [dense("head", "hidden1", 4, dtype="float32")], {"x": X}, {"head": Y},
    {**BASE, "loss": [{**SCCE, "from_logits": True}], "optimizer": {"class_name": "Adam", "learning_rate": 0.01}})

NORM = [IN, dense("hidden0", "x", 16, use_bias=False), {"class_name": "BatchNormalization", "name": "norm", "inputs": ["hidden0"]},
        {"class_name": "Activation", "name": "act", "inputs": ["norm"], "activation": "relu"},
        {"class_name": "Dropout", "name": "drop", "inputs": ["act"], "rate": 0.0}, dense("head", "drop", 4, **HEAD)]
for policy in POLICIES:
    add("norm_dropout", NORM, {"x": X}, {"head": Y}, {**BASE, "optimizer": {"class_name": "SGD", "learning_rate": 0.05, "momentum": 0.9}}, policy, 2)

XA, XB = rand(3, N, 5, digits=2), rand(4, N, 3, digits=2)
YB = (XA[:, :1] + XB[:, :1] > 0).astype(np.float32)
YR = np.round(XA[:, 1:3] - 0.5 * XB[:, 1:3], 3).astype(np.float32)
TWO = [{"class_name": "Input", "name": "a", "shape": [5]}, {"class_name": "Input", "name": "b", "shape": [3]},
       dense("left", "a", 8, activation="relu"), dense("right", "b", 8, activation="tanh"),
       {"class_name": "Concatenate", "name": "join", "inputs": ["left", "right"]},
       dense("shared", "join", 12, activation="relu"),
       dense("class", "shared", 1, activation="sigmoid", dtype="float32"), dense("value", "shared", 2, dtype="float32")]
TWO_CFG = {"outputs": ["class", "value"], "loss": [{"class_name": "BinaryCrossentropy"}, {"class_name": "MeanSquaredError"}],
           "loss_weights": [0.7, 0.3], "optimizer": {"class_name": "Adam", "learning_rate": 0.005}}
for policy in POLICIES:
    add("two_inputs_two_outputs", TWO, {"a": XA, "b": XB}, {"class": YB, "value": YR}, TWO_CFG, policy, 3)

REG = [IN, dense("hidden0", "x", 16, activation="relu", kernel_regularizer={"class_name": "L2", "l2": 0.01},
                 kernel_constraint={"class_name": "MaxNorm", "max_value": 1.0}),
       dense("hidden1", "hidden0", 16, activation="relu", bias_regularizer={"class_name": "L1", "l1": 0.01},
             kernel_constraint={"class_name": "MaxNorm", "max_value": 1.0}),
       dense("head", "hidden1", 4, **HEAD)]
for policy in POLICIES:
    add("regularizer_constraint", REG, {"x": X}, {"head": Y}, {**BASE, "optimizer": {"class_name": "SGD", "learning_rate": 0.1}}, policy, 4)

add("class_weight", MLP, {"x": X}, {"head": Y}, BASE, seed=5, class_weight={0: 0.5, 1: 2.0, 2: 0.0})
add("sample_weight", MLP, {"x": X}, {"head": Y}, BASE, seed=5, weight=uniform(6, N, low=0, high=2))


def vector_121():
    """ExponentialDecay with Adam over three epochs of fit (keras trainer test)."""
    keras.utils.clear_session()
    model = keras.Sequential([keras.layers.Dense(2, kernel_initializer="ones", bias_initializer="ones")])
    schedule = keras.optimizers.schedules.ExponentialDecay(0.05, 1, 0.9)
    opt = keras.optimizers.Adam(schedule)
    model.compile(opt, "mse", jit_compile=False)
    x = np.arange(32, dtype=np.float32).reshape(16, 2)
    rec = Record()
    h = model.fit(x, x, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=[rec])
    cases.append(case("vector_121_schedule_fit",
                      {"layers": [{"class_name": "Dense", "units": 2, "kernel_initializer": "ones", "bias_initializer": "ones"}],
                       "optimizer": {"class_name": "Adam", "learning_rate": {"class_name": "ExponentialDecay", "initial_learning_rate": 0.05,
                                                                             "decay_steps": 1, "decay_rate": 0.9}},
                       "loss": "mse", "batch_size": 4, "epochs": 3, "shuffle": False},
                      {"epoch_loss": np.float32(h.history["loss"]), "running_loss": np.float32(rec.logs["loss"]),
                       "iterations": np.int32(opt.iterations), "final/kernel": model.layers[0].kernel, "final/bias": model.layers[0].bias},
                      {"x": x, "y": x}))


def vector_122():
    """One model through train_on_batch, test_on_batch and predict_on_batch with and without weights (keras trainer test)."""
    keras.utils.clear_session()
    model = keras.Sequential([keras.layers.Dense(3, kernel_initializer="ones", use_bias=False)])
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    x, y = np.ones((100, 4), np.float32), np.zeros((100, 3), np.float32)
    sw = (np.arange(100) / 50).astype(np.float32)
    out = {
        "1_train": model.train_on_batch(x, y), "2_train": model.train_on_batch(x, y), "3_test": model.test_on_batch(x, y),
        "4_predict": model.predict_on_batch(x)[0], "5_train_sample_weight": model.train_on_batch(x, y, sample_weight=sw),
        "6_test_sample_weight": model.test_on_batch(x, y, sample_weight=sw), "7_predict": model.predict_on_batch(x)[0],
        "8_train_class_weight": model.train_on_batch(x, y, class_weight={1: 0.3, 0: 0.2}), "final/kernel": model.layers[0].kernel}
    cases.append(case("vector_122_on_batch",
                      {"layers": [{"class_name": "Dense", "units": 3, "kernel_initializer": "ones", "use_bias": False}],
                       "optimizer": {"class_name": "SGD", "learning_rate": 0.01}, "loss": "mse", "class_weight": {"1": 0.3, "0": 0.2},
                       "sample_weight": "arange(100)/50", "x": "ones(100,4)", "y": "zeros(100,3)"},
                      {k: np.asarray(v, np.float32) for k, v in out.items()}))


vector_121()
vector_122()
write("models.json", cases)
