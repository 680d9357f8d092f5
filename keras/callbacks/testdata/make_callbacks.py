"""Writes callbacks.json: what Keras's callbacks do on scripted logs.

Run with the versions that keras/testdata/golden/README.md names:
    python make_callbacks.py
"""
import io
import json
import os
import tempfile
import warnings
from contextlib import redirect_stdout

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np
from keras import callbacks as kc

warnings.simplefilter("ignore")
rng = np.random.RandomState(7)


class Optimizer:
    def __init__(self, rate):
        self.value = np.float32(rate)

    @property
    def learning_rate(self):
        return self.value

    @learning_rate.setter
    def learning_rate(self, x):
        self.value = np.float32(x)


class Model:
    """What the callbacks use of a model; weights are the epoch's number."""

    def __init__(self):
        self.stop_training = False
        self.epoch = 0
        self.restored = None
        self.saved = []
        self.metrics = []
        self.optimizer = Optimizer(0.1)

    def get_weights(self):
        return [np.array(self.epoch)]

    def set_weights(self, w):
        self.restored = int(w[0])

    def save(self, path, overwrite=True):
        self.saved.append(path)

    save_weights = save


def text(x):
    return {"x": repr(x)} if isinstance(x, float) and not np.isfinite(x) else x


def f32(x):
    return float(np.float32(x))


def sequence(n, step):
    return [f32(x) for x in np.round(rng.randint(0, 12, n) * step, 6)]


cases = []


def early(config, values, name="random"):
    m = Model()
    c = kc.EarlyStopping(monitor="val_loss", verbose=1, **config)
    c.set_model(m)
    out = io.StringIO()
    with redirect_stdout(out):
        c.on_train_begin()
        stopped = -1
        for i, v in enumerate(values):
            m.epoch = i
            c.on_epoch_end(i, {"val_loss": v})
            if m.stop_training:
                stopped = i
                break
        c.on_train_end()
    cases.append(dict(kind="early", name=name, config=config, values=values, stopped=stopped,
                      stopped_epoch=c.stopped_epoch, best_epoch=c.best_epoch,
                      restored=-1 if m.restored is None else m.restored, text=out.getvalue()))


def plateau(config, values, name="random"):
    m = Model()
    c = kc.ReduceLROnPlateau(monitor="val_loss", verbose=1, **config)
    c.set_model(m)
    rates = []
    out = io.StringIO()
    with redirect_stdout(out):
        c.on_train_begin()
        for i, v in enumerate(values):
            c.on_epoch_end(i, {"val_loss": v})
            rates.append(float(m.optimizer.value))
    cases.append(dict(kind="plateau", name=name, config=config, values=values, rates=rates, text=out.getvalue()))


def save(config, logs, steps=0):
    m = Model()
    c = kc.ModelCheckpoint(monitor="val_loss", verbose=1, **config)
    c.set_model(m)
    out = io.StringIO()
    with redirect_stdout(out):
        c.on_train_begin()
        for i, l in enumerate(logs):
            c.on_epoch_begin(i)
            for b in range(steps):
                c.on_train_batch_end(b, {})
            c.on_epoch_end(i, dict(l))
    cases.append(dict(kind="save", name="", config=config, logs=logs, steps=steps, saved=m.saved, text=out.getvalue()))


def table(logs, first=None, **config):
    path = os.path.join(tempfile.mkdtemp(), "log.csv")
    for part in [first, logs]:
        if part is None:
            continue
        c = kc.CSVLogger(path, **config)
        c.on_train_begin()
        for i, l in enumerate(part):
            c.on_epoch_end(i, l)
        c.on_train_end()
    with open(path, newline="") as f:
        cases.append(dict(kind="csv", name="", config=config, first=first or [],
                          logs=[{k: text(v) for k, v in l.items()} for l in logs], text=f.read()))


# Vectors 123-126 of Keras's own tests.
for p in range(4):
    early(dict(patience=p, mode="min"), [10., 9., 8., 9., 8.9, 8.8, 8.7, 8.6, 8.5], "123")
early(dict(patience=2, restore_best_weights=True, mode="min"), [.2, .15, .1, .11, .12], "124")
early(dict(patience=5, baseline=.5, restore_best_weights=True, mode="min"), [.9, .8, .7, .71, .72, .73], "125")
plateau(dict(patience=1, factor=.1, min_delta=100, mode="min"), [1., 1.], "126")
plateau(dict(patience=1, factor=.1, min_delta=100, min_lr=.005, mode="min"), [1., 1.], "126 min_lr")
plateau(dict(patience=1, factor=.1, min_delta=100, cooldown=2, mode="min"), [1., 1., 1., 1.], "126 cooldown")

for _ in range(60):
    config = dict(patience=int(rng.randint(0, 4)), mode=["min", "max"][rng.randint(2)])
    if rng.randint(2):
        config["min_delta"] = float(rng.randint(0, 3)) / 10
    if rng.randint(2):
        config["baseline"] = float(rng.randint(0, 12)) / 10
    if rng.randint(2):
        config["restore_best_weights"] = True
    if rng.randint(3) == 0:
        config["start_from_epoch"] = int(rng.randint(0, 4))
    early(config, sequence(12, 0.1))
early(dict(patience=2, mode="min"), [1., 0.9, 0.9 - 1e-9, 0.9 - 2e-9, 0.9 - 3e-9], "below float32")

for _ in range(40):
    config = dict(patience=int(rng.randint(1, 4)), factor=[0.1, 0.5, 0.3][rng.randint(3)], mode=["min", "max"][rng.randint(2)])
    if rng.randint(2):
        config["min_delta"] = float(rng.randint(0, 3)) / 10
    if rng.randint(2):
        config["cooldown"] = int(rng.randint(0, 4))
    if rng.randint(2):
        config["min_lr"] = [0.005, 0.03][rng.randint(2)]
    plateau(config, sequence(16, 0.1))

logs = [{"loss": f32(v), "val_loss": f32(w)} for v, w in zip([1.25, 0.5, 0.25, 1e-5], [0.75, 0.8, 0.125, 12345.678])]
save(dict(filepath="m.keras"), logs)
save(dict(filepath="m-{epoch}.keras"), logs)
save(dict(filepath="{epoch:02d}-{val_loss:.2f}.keras"), logs)
save(dict(filepath="{epoch:5d}_{loss:08.3f}_{val_loss:e}_{val_loss:g}_{loss:.1%}_{{}}_{loss}.keras"), logs)
save(dict(filepath="m-{epoch:03d}.keras", save_best_only=True, mode="min"), logs)
save(dict(filepath="m-{epoch:03d}.keras", save_best_only=True, mode="max"), logs)
save(dict(filepath="m-{epoch:03d}.keras", save_best_only=True, mode="min", initial_value_threshold=0.5), logs)
save(dict(filepath="m-{epoch}-{batch:02d}.keras", save_freq=3), logs, steps=4)

table([{"loss": f32(.1), "accuracy": 0.5}, {"loss": 1e-5, "accuracy": 1.0}])
table([{"loss": 0.25, "val_loss": 123456789.0, "b": 1e16}, {"loss": 1e-4}, {"loss": 5e-324, "val_loss": float("nan"), "b": float("-inf"), "new": 1.0}])
table([{"loss": 0.5}, {"loss": 0.25, "val_loss": 1.0}], separator=";")
table([{"loss": 0.25}], first=[{"loss": 0.5}], append=True)
table([{"loss": 0.25}], append=True)
table([{"loss": 0.25}], first=[{"loss": 0.5}])
table([{"a,b": 0.5, "c\"d": 1.5}])
table([])

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "callbacks.json"), "w") as f:
    f.write('{"keras": %s, "cases": [\n' % json.dumps(keras.__version__))
    f.write(",\n".join(json.dumps(c) for c in cases))
    f.write("\n]}\n")
print(len(cases), "cases")
