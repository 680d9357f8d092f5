"""Writes fit.json: what Keras's callbacks do in trainings of one weight.

Run with the versions that keras/testdata/golden/README.md names:
    python make_fit.py

The model is y = w·x without bias, w = 1 at first, the loss the mean absolute
difference, the optimizer SGD. Callbacks named "log" write down what happens.
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
import tensorflow as tf
from keras import callbacks as kc

warnings.simplefilter("ignore")
cases = []
TRAIN = [1.0, -2.0, 0.5, 3.0, -1.0, 2.0]
HELD = [0.25, 4.0]


def number(x):
    x = float(x)
    return {"x": repr(x)} if not np.isfinite(x) else x


def model(rate=0.0, **options):
    m = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", name="dense")])
    m.compile(optimizer=keras.optimizers.SGD(rate, **options), loss="mae")
    return m


class Log(kc.Callback):
    def __init__(self, stop=None):
        super().__init__()
        self.lines = []
        self.stop = stop

    def weight(self):
        return float(self.model.get_weights()[0][0, 0])

    def on_train_begin(self, logs=None):
        self.lines.append("train begin")

    def on_train_end(self, logs=None):
        self.lines.append("train end")

    def on_epoch_begin(self, epoch, logs=None):
        self.lines.append("epoch begin %d" % epoch)

    def on_epoch_end(self, epoch, logs=None):
        self.lines.append("epoch end %d %s" % (epoch, " ".join(sorted(k for k in logs if k != "learning_rate"))))

    def on_train_batch_begin(self, batch, logs=None):
        self.lines.append("batch begin %d" % batch)

    def on_train_batch_end(self, batch, logs=None):
        self.lines.append("batch end %d" % batch)
        if self.stop is not None and len([l for l in self.lines if l.startswith("batch end")]) == self.stop:
            self.model.stop_training = True

    def on_test_begin(self, logs=None):
        self.lines.append("test begin")

    def on_test_end(self, logs=None):
        self.lines.append("test end")


class Weights(Log):
    """The weight at each moment."""

    def note(self, what):
        self.lines.append([what, self.weight()])

    def on_train_begin(self, logs=None):
        pass

    def on_train_batch_begin(self, batch, logs=None):
        pass

    def on_train_end(self, logs=None):
        pass

    def on_epoch_begin(self, epoch, logs=None):
        self.note("epoch begin")

    def on_epoch_end(self, epoch, logs=None):
        self.note("epoch end")

    def on_train_batch_end(self, batch, logs=None):
        self.note("batch end")

    def on_test_begin(self, logs=None):
        self.note("test begin")

    def on_test_end(self, logs=None):
        self.note("test end")


def arrays(x):
    return np.array(x, "float32").reshape(-1, 1), np.zeros((len(x), 1), "float32")


def fit(m, cs, train=TRAIN, held=None, batch=2, **config):
    x, y = arrays(train)
    out = io.StringIO()
    with redirect_stdout(out):
        h = m.fit(x, y, batch_size=batch, verbose=0, shuffle=False, callbacks=cs,
                  validation_data=arrays(held) if held is not None else None, **config)
    return h, out.getvalue()


def order(name, stop=None, **config):
    log = Log(stop)
    h, _ = fit(model(), [log], **config)
    cases.append(dict(kind="order", name=name, stop=stop or 0, config=config, lines=log.lines, epochs=h.epoch,
                      history={k: [number(x) for x in v] for k, v in h.history.items() if k != "learning_rate"}))


order("plain", epochs=2)
order("validated", epochs=2, held=HELD)
order("validated every other epoch", epochs=4, held=HELD, validation_freq=2)
order("from the second epoch", epochs=3, initial_epoch=1)
order("stopped in an epoch", epochs=3, held=HELD, stop=4)
order("stopped at the end of an epoch", epochs=3, stop=3)

schedules = {
    "halves": lambda epoch, rate: rate / 2,
    "steps": lambda epoch, rate: 0.1 if epoch < 2 else 0.01,
    "keeps": lambda epoch, rate: rate,
    "counts": lambda epoch, rate: 1.0 / (epoch + 1),
}
for name, f in schedules.items():
    m = model(0.1)
    rates = []
    log = kc.LambdaCallback(on_epoch_end=lambda epoch, logs: rates.append(float(m.optimizer.learning_rate.numpy())))
    h, text = fit(m, [kc.LearningRateScheduler(lambda e, r, f=f: float(f(e, float(r))), verbose=1), log], epochs=5)
    cases.append(dict(kind="rates", name=name, rates=rates, logged=[float(x) for x in h.history["learning_rate"]], text=text))

for name, values in {
    "nan at once": [float("nan"), 1, 1, 1],
    "nan later": [1, 2, float("nan"), 1],
    "infinity": [1, float("inf"), 1, 1],
    "finite": [1, 2, 3, 4],
}.items():
    log = Log()
    h, text = fit(model(), [kc.TerminateOnNaN(), log], train=values, batch=1, epochs=2)
    cases.append(dict(kind="nan", name=name, values=[number(x) for x in values], text=text,
                      steps=len([l for l in log.lines if l.startswith("batch end")]), epochs=h.epoch, ended=log.lines[-1]))

for swap in [False, True]:
    log = Weights()
    m = model(0.125, use_ema=True, ema_momentum=0.5)
    h, _ = fit(m, [kc.SwapEMAWeights(swap_on_epoch=swap), log], epochs=3, held=HELD)
    cases.append(dict(kind="ema", name="on epoch" if swap else "", swap=swap, weights=log.lines,
                      val_loss=[float(x) for x in h.history["val_loss"]], final=float(m.get_weights()[0][0, 0])))

for keep in [False, True]:
    where = os.path.join(tempfile.mkdtemp(), "backup")

    class Fails(Log):
        def on_epoch_begin(self, epoch, logs=None):
            super().on_epoch_begin(epoch, logs)
            if epoch == 2 and not os.path.exists(where + ".failed"):
                open(where + ".failed", "w").close()
                raise RuntimeError("power cut")

    lives = []
    for _ in range(2):
        log = Fails()
        m = model(0.125)
        try:
            h, _ = fit(m, [kc.BackupAndRestore(where, delete_checkpoint=not keep), log], epochs=4)
        except RuntimeError:
            pass
        lives.append([l for l in log.lines if l.startswith("epoch begin")])
    cases.append(dict(kind="backup", name="kept" if keep else "deleted", keep=keep, lives=lives, final=float(m.get_weights()[0][0, 0]),
                      left=os.path.isdir(where) and len(os.listdir(where)) > 0))

class Summary:
    """tf.summary, whose scalars are noted: they need the package tensorboard."""

    def __init__(self):
        self.tags = []

    def scalar(self, tag, value, step):
        if bool(tf.summary.should_record_summaries()):
            self.tags.append([tag, int(step), float(value)])

    def __getattr__(self, name):
        return getattr(tf.summary, name)


# Of an epoch whose last step is not one of update_freq Keras writes no scalars
# at all; Mezzo does.
for name, config in {"plain": {}, "validated": dict(held=HELD), "batches": dict(update_freq=3)}.items():
    update = config.pop("update_freq", "epoch")
    c = kc.TensorBoard(tempfile.mkdtemp(), update_freq=update, write_graph=False)
    c._summary_module = Summary()
    fit(model(0.125), [c], epochs=2, **config)
    cases.append(dict(kind="tensorboard", name=name, config=config, update=0 if update == "epoch" else update, tags=c.summary.tags))

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fit.json"), "w") as f:
    f.write('{"keras": %s, "cases": [\n' % json.dumps(keras.__version__))
    f.write(",\n".join(json.dumps(c) for c in cases))
    f.write("\n]}\n")
print(len(cases), "cases")
