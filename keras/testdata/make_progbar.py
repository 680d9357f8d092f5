"""Writes progbar.json.gz: what Keras's ProgbarLogger prints, on a clock that is told.

    KERAS_BACKEND=tensorflow python make_progbar.py | gzip -9n > progbar.json.gz

The backspaces with which Keras goes back to the start of the line, before the
carriage return that does so, too, are left out.
"""

import json
import time

import keras
from keras.src.callbacks.progbar_logger import ProgbarLogger
from keras.src.utils import io_utils


def play(verbose, target, epochs, seconds):
    now, text, script = [1000.0], [], []
    time.time = lambda: now[0]
    io_utils.print_msg = lambda s, line_break=True: text.append(s + "\n" * line_break)
    logger = ProgbarLogger()
    logger.set_params({"verbose": verbose, "epochs": epochs, "steps": target})
    logger.on_train_begin()
    value = 1
    for epoch in range(epochs):
        logger.on_epoch_begin(epoch)
        script.append({"epoch": epoch + 1})
        steps = target or 7
        for i in range(steps):
            value = value * 16807 % 2147483647
            add = seconds[value % len(seconds)]
            now[0] += add
            logs = {"accuracy": value % 1000 / 1000, "loss": [3.14159, 1e-3, 2e-4, 0.0, 12345.678, float("nan"), float("inf")][value % 7]}
            logger.on_train_batch_end(i, logs)
            script.append({"add": add, "step": i + 1, "logs": text_of(logs)})
        now[0] += seconds[0]
        logs["val_loss"] = 0.25
        logger.on_epoch_end(epoch, logs)
        script.append({"add": seconds[0], "finish": True, "logs": text_of(logs)})
    return {"verbose": verbose, "target": target or -1, "epochs": epochs, "script": script,
            "text": "".join(text).replace("\b", "")}


def text_of(logs):
    return [[k, repr(v)] for k, v in logs.items()]


cases = []
for verbose in (1, 2):
    for target in (1, 6, 25, None):
        for epochs in (1, 2):
            # Whole numbers of 1/64 s, so that clocks add them up alike.
            for seconds in ([1 / 64, 1 / 32], [0.125, 3.0, 0.5], [60.0, 400.0, 1.5], [1 / 1024, 1 / 4096]):
                cases.append(play(verbose, target, epochs, seconds))
cases.append(play(1, 125, 1, [0.125, 3.0, 0.5]))
print(json.dumps({"keras": keras.__version__, "cases": cases}, separators=(",", ":")))
