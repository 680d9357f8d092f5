"""Writes models of Keras with calls and their results, for Mezzo to export.

    python keras/onnx/testdata/fromkeras.py DIR
    go test ./keras/onnx -run TestExportKeras -keras DIR
    python keras/onnx/testdata/check.py DIR 2e-6

So check.py compares ONNX Runtime on Mezzo's file with Keras.
"""
import json, os, sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
import keras, numpy as np

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
L, r = keras.layers, np.random.default_rng(1)
keras.utils.set_random_seed(1)


def transformer():
    x = keras.Input((10,), dtype="int32")
    y = L.Embedding(50, 16)(x)
    y = L.LayerNormalization()(y + L.MultiHeadAttention(2, 8)(y, y, use_causal_mask=True))
    y = L.LayerNormalization()(y + L.Dense(16)(L.Dense(32, "gelu")(y)))
    return keras.Model(x, L.Dense(3, "softmax")(L.GlobalAveragePooling1D()(y)))


def masked():
    x = keras.Input((10,), dtype="int32")
    y = L.Embedding(5, 8, mask_zero=True)(x)
    return keras.Model(x, L.Dense(3)(L.Bidirectional(L.LSTM(6))(L.GRU(6, return_sequences=True)(y))))


A = keras.applications
models = {
    "mlp": lambda: keras.Sequential([keras.Input((6,)), L.Dense(16, "relu"), L.BatchNormalization(), L.Dense(3, "softmax")]),
    "recurrent": lambda: keras.Sequential([keras.Input((9, 5)), L.Bidirectional(L.LSTM(8, return_sequences=True)), L.GRU(6, go_backwards=True, return_sequences=True), L.SimpleRNN(4), L.Dense(2)]),
    "masked": masked,
    "transformer": transformer,
    "mobilenet_v2": lambda: A.MobileNetV2((96, 96, 3), alpha=0.35, weights=None),
    "efficientnet_b0": lambda: A.EfficientNetB0(input_shape=(64, 64, 3), weights=None),
    "resnet50": lambda: A.ResNet50(input_shape=(64, 64, 3), weights=None),
    "densenet121": lambda: A.DenseNet121(input_shape=(64, 64, 3), weights=None),
    "convnext_tiny": lambda: A.ConvNeXtTiny(input_shape=(64, 64, 3), weights=None),
}
manifest = []
for name, make in models.items():
    keras.backend.clear_session()
    m = make()
    for l in m._flatten_layers():  # statistics that normalize nothing would hide mistakes
        if isinstance(l, L.BatchNormalization):
            l.moving_mean.assign(r.uniform(-0.3, 0.3, l.moving_mean.shape))
            l.moving_variance.assign(r.uniform(0.5, 1.5, l.moving_variance.shape))
    m.save(os.path.join(folder, name + ".keras"))
    shape, ints = m.inputs[0].shape[1:], "int" in m.inputs[0].dtype
    runs = []
    for i, n in enumerate([3, 1]):
        x = r.integers(0, 5, (n, *shape)).astype(np.int32) if ints else r.standard_normal((n, *shape)).astype(np.float32) * (60 if "efficient" in name or "convnext" in name else 1)
        y = np.asarray(m(x))
        arrays = []
        for kind, a in (("x", x), ("y", y)):
            file = f"{name}.{i}.{kind}"
            a.tofile(os.path.join(folder, file))
            arrays.append({"Name": m.inputs[0].name if kind == "x" else "", "DType": str(a.dtype), "File": file, "Shape": list(a.shape)})
        runs.append({"In": arrays[:1], "Out": arrays[1:]})
    manifest.append({"Name": name, "File": name + ".onnx", "Tolerance": 0, "Runs": runs})
    print(name, m.count_params(), flush=True)
json.dump(manifest, open(os.path.join(folder, "manifest.json"), "w"), indent=1)
