"""defaults.json: every class that Keras exports, made with what it requires alone, as Keras writes it into a config.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), Python 3.11.
Re-run: python defaults.py

{"layers": [{"class_name": "Dense", "args": {"units": 2}, "config": {...}}], "losses": [...], ...}: args is all that was given,
config what get_config returns. Functions (activations) have the defaults of their parameters instead.
"""

import inspect
import json
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras  # noqa: E402

L = keras.layers
CONV = {"filters": 2, "kernel_size": 3}
CELL = {"class_name": "LSTMCell", "config": {"units": 2}}
DENSE = {"class_name": "Dense", "config": {"units": 2}}
LSTM = {"class_name": "LSTM", "config": {"units": 2}}
REQUIRED = {
    "Activation": {"activation": "relu"}, "CategoryEncoding": {"num_tokens": 3}, "CenterCrop": {"height": 2, "width": 3},
    "Dense": {"units": 2}, "DepthwiseConv1D": {"kernel_size": 3}, "DepthwiseConv2D": {"kernel_size": 3}, "Discretization": {"bin_boundaries": [0.5]},
    "Dot": {"axes": 1}, "Dropout": {"rate": 0.5}, "EinsumDense": {"equation": "ab,bc->ac", "output_shape": 2}, "Embedding": {"input_dim": 3, "output_dim": 2},
    "AlphaDropout": {"rate": 0.5}, "GaussianDropout": {"rate": 0.5}, "GaussianNoise": {"stddev": 0.5},
    "GroupQueryAttention": {"head_dim": 2, "num_query_heads": 4, "num_key_value_heads": 2}, "HashedCrossing": {"num_bins": 3}, "Hashing": {"num_bins": 3},
    "MultiHeadAttention": {"num_heads": 2, "key_dim": 3}, "Permute": {"dims": [2, 1]}, "RandomBrightness": {"factor": 0.5},
    "RandomColorDegeneration": {"factor": 0.5}, "RandomContrast": {"factor": 0.5}, "RandomCrop": {"height": 2, "width": 3}, "RandomHue": {"factor": 0.5},
    "RandomPosterization": {"factor": 4}, "RandomRotation": {"factor": 0.5}, "RandomSaturation": {"factor": 0.5}, "RandomSharpness": {"factor": 0.5},
    "RandomTranslation": {"height_factor": 0.5, "width_factor": 0.25}, "RandomZoom": {"height_factor": 0.5}, "RepeatVector": {"n": 2},
    "Rescaling": {"scale": 0.5}, "Reshape": {"target_shape": [2, 3]}, "Resizing": {"height": 2, "width": 3},
    "ReversibleEmbedding": {"input_dim": 3, "output_dim": 2}, "RNN": {"cell": CELL}, "StackedRNNCells": {"cells": [CELL]}, "Bidirectional": {"layer": LSTM},
    "TimeDistributed": {"layer": DENSE}, "SpectralNormalization": {"layer": DENSE}, "MaxNumBoundingBoxes": {"max_number": 3},
}
REQUIRED.update({"SpatialDropout%dD" % n: {"rate": 0.5} for n in (1, 2, 3)})
for n in (1, 2, 3):
    REQUIRED.update({name % n: CONV for name in ("Conv%dD", "Conv%dDTranspose", "SeparableConv%dD", "ConvLSTM%dD")})
    REQUIRED.update({name % n: {"output_size": 2} for name in ("AdaptiveAveragePooling%dD", "AdaptiveMaxPooling%dD")})
    REQUIRED["AveragePooling%dD" % n] = {"pool_size": 2}
for name in ("SimpleRNN", "LSTM", "GRU", "SimpleRNNCell", "LSTMCell", "GRUCell"):
    REQUIRED[name] = {"units": 2}
REQUIRED.update({
    # metrics
    "IoU": {"num_classes": 3, "target_class_ids": [0, 1]}, "MeanIoU": {"num_classes": 3}, "OneHotIoU": {"num_classes": 3, "target_class_ids": [0, 1]},
    "OneHotMeanIoU": {"num_classes": 3}, "PrecisionAtRecall": {"recall": 0.5}, "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5}, "SpecificityAtSensitivity": {"sensitivity": 0.5},
    # schedules
    "CosineDecay": {"initial_learning_rate": 0.1, "decay_steps": 10}, "CosineDecayRestarts": {"initial_learning_rate": 0.1, "first_decay_steps": 10},
    "ExponentialDecay": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}, "PolynomialDecay": {"initial_learning_rate": 0.1, "decay_steps": 10},
    "InverseTimeDecay": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5}, "PiecewiseConstantDecay": {"boundaries": [1], "values": [0.1, 0.2]},
})
WITHOUT = {  # wrap what is not Keras's, or functions
    "Lambda", "JaxLayer", "FlaxLayer", "TFSMLayer", "TorchModuleWrapper", "InputLayer", "Input", "Pipeline", "Layer", "Wrapper", "InputSpec",
    "Loss", "Metric", "MeanMetricWrapper", "Optimizer", "OptimizerMap", "LearningRateSchedule", "Initializer", "Regularizer", "Constraint",
    "LossScaleOptimizer", "MultiOptimizer",
}


def made(value):
    if isinstance(value, dict) and "class_name" in value:
        return getattr(L, value["class_name"])(**value["config"])
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [made(v) for v in value]
    return value


out = {"keras": keras.__version__}
for kind, module in (("layers", L), ("losses", keras.losses), ("metrics", keras.metrics), ("optimizers", keras.optimizers),
                     ("schedules", keras.optimizers.schedules), ("initializers", keras.initializers), ("regularizers", keras.regularizers),
                     ("constraints", keras.constraints)):
    rows = []
    for name, cls in sorted(vars(module).items()):
        if not inspect.isclass(cls) or name.startswith("_") or name in WITHOUT:
            continue
        if cls.__name__ != name and cls.__name__ in vars(module):
            continue  # an alias
        args = dict(REQUIRED.get(name, {}))
        obj = cls(**{k: made(v) for k, v in args.items()})
        config = keras.saving.serialize_keras_object(obj)["config"] if kind in ("layers", "optimizers") else obj.get_config()
        rows.append({"class_name": name, "args": args, "config": config})
    out[kind] = rows
out["activations"] = [
    {"class_name": name, "args": {}, "config": {p.name: None if p.default is inspect.Parameter.empty else p.default
                                                for p in list(inspect.signature(f).parameters.values())[1:]}}
    for name, f in sorted(vars(keras.activations).items()) if inspect.isfunction(f) and name not in ("get", "serialize", "deserialize")]

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "defaults.json"), "w") as f:
    f.write('{"keras":%s' % json.dumps(out.pop("keras")))
    for kind, rows in out.items():
        f.write(',\n"%s":[\n' % kind + ",\n".join(json.dumps(r) for r in rows) + "\n]")
    f.write("}\n")
