"""names.json: what Keras exports, by kind; a name's value is the one that the object itself has, so that aliases can be told.

Made with Keras 3.15.1. Re-run: python make_names.py (see README.md).
Base classes, modules and (de)serialization functions are left out.
"""

import inspect
import json
import os

from common import HERE, keras

KINDS = {
    "layers": keras.layers, "losses": keras.losses, "metrics": keras.metrics, "optimizers": keras.optimizers,
    "schedules": keras.optimizers.schedules, "initializers": keras.initializers, "activations": keras.activations,
    "regularizers": keras.regularizers, "constraints": keras.constraints, "callbacks": keras.callbacks,
}
LEFT_OUT = {
    "get", "serialize", "deserialize", "Layer", "Wrapper", "InputSpec", "Loss", "Metric", "MeanMetricWrapper", "Optimizer",
    "OptimizerMap", "LearningRateSchedule", "Initializer", "Regularizer", "Constraint", "Callback", "CallbackList",
}

out = {"keras": keras.__version__}
for kind, module in KINDS.items():
    names = {n: o for n, o in vars(module).items() if not n.startswith("_") and not inspect.ismodule(o) and n not in LEFT_OUT}
    if kind in ("losses", "metrics"):  # functions repeat the classes
        names = {n: o for n, o in names.items() if inspect.isclass(o)}
    if kind == "layers":
        names = {n: o for n, o in names.items() if inspect.isclass(o) or n == "Input"}
    out[kind] = {n: o.__name__ for n, o in sorted(names.items())}

with open(os.path.join(HERE, "names.json"), "w") as f:
    json.dump(out, f, indent=1)
    f.write("\n")
