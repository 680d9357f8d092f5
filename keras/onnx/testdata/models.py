"""Writes ONNX files of other programs, with calls and the results of ONNX Runtime.

    python keras/onnx/testdata/models.py DIR [torch|dynamo|sklearn|keras] ...
    go test ./keras/onnx -run TestImportDir -import DIR -v

Weights are random. torch uses the exporter of TorchScript, dynamo that of torch.export.
"""
import json, os, sys
import numpy as np, onnx, onnxruntime as ort

ort.set_default_logger_severity(4)
folder, kinds = sys.argv[1], sys.argv[2:] or ["torch", "dynamo", "sklearn", "keras"]
os.makedirs(folder, exist_ok=True)
manifest = []


def dump(name, kind, i, arrays):
    out = []
    for k, (key, a) in enumerate(arrays):
        a = np.ascontiguousarray(a)
        file = f"{name}.{i}.{kind}{k}"
        a.tofile(os.path.join(folder, file))
        out.append({"Name": key, "DType": str(a.dtype), "File": file, "Shape": list(a.shape)})
    return out


def add(name, tolerance, calls):
    """calls are dicts of inputs."""
    path = os.path.join(folder, name + ".onnx")
    s = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [i.name for i in s.get_inputs()]
    runs = []
    for i, call in enumerate(calls):
        call = {names[k] if isinstance(k, int) else k: v for k, v in call.items()}
        got = s.run(None, call)
        runs.append({"In": dump(name, "x", i, [(n, call[n]) for n in names]), "Out": dump(name, "y", i, [("", y) for y in got])})
    manifest.append({"Name": name, "File": name + ".onnx", "Tolerance": tolerance, "Runs": runs})
    print(name, os.path.getsize(path), "bytes", sorted({n.op_type for n in onnx.load(path, load_external_data=False).graph.node}), flush=True)


r = np.random.default_rng(1)


def images(n, size=224):
    return {0: r.standard_normal((n, 3, size, size), np.float32)}


def pytorch(dynamo):
    import torch, torchvision, transformers

    torch.manual_seed(1)
    kind = "dynamo" if dynamo else "torch"

    def export(name, model, args, tolerance, calls):
        model.eval()
        for m in model.modules():  # statistics that normalize nothing would hide mistakes
            if hasattr(m, "running_var") and m.running_var is not None:
                m.running_var.uniform_(0.5, 2)
                m.running_mean.uniform_(-0.5, 0.5)
        for p in model.parameters():
            if p.dim() > 1 and not p.any():  # a head of zeros would hide everything before it
                torch.nn.init.normal_(p, std=0.05)
        path = os.path.join(folder, f"{kind}-{name}.onnx")
        try:
            if dynamo:
                batch = torch.export.Dim("batch", min=1, max=64)
                shapes = tuple({0: batch} for _ in args)
                torch.onnx.export(model, args, path, dynamo=True, dynamic_shapes=shapes, external_data=False, verbose=False)
            else:
                names = [f"x{i}" for i in range(len(args))]
                torch.onnx.export(model, args, path, dynamo=False, input_names=names, dynamic_axes={n: {0: "batch"} for n in names}, opset_version=17)
            add(f"{kind}-{name}", tolerance, calls)
        except Exception as e:
            print("FAILED", kind, name, repr(e)[:300], flush=True)

    x = (torch.randn(2, 3, 224, 224),)
    calls = [images(2), images(1)]
    for name in ["resnet18", "mobilenet_v3_small", "efficientnet_b0", "densenet121", "googlenet", "shufflenet_v2_x0_5", "squeezenet1_1", "regnet_y_400mf"]:
        more = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
        export(name, getattr(torchvision.models, name)(weights=None, **more), x, 2e-5, calls)
    v = torchvision.models
    small = (torch.randn(2, 3, 32, 32),)
    calls = [images(2, 32), images(1, 32)]
    export("vision-transformer", v.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10), small, 1e-5, calls)
    export("swin", v.SwinTransformer(patch_size=[2, 2], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10), small, 1e-5, calls)
    blocks = [v.convnext.CNBlockConfig(16, 32, 2), v.convnext.CNBlockConfig(32, None, 2)]
    export("convnext", v.ConvNeXt(blocks, num_classes=10), small, 1e-5, calls)
    ids = torch.randint(0, 1000, (2, 16))
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[0, 11:] = 0

    class Logits(torch.nn.Module):
        def __init__(self, m):
            super().__init__()
            self.m = m

        def forward(self, ids, mask):
            return self.m(input_ids=ids, attention_mask=mask)[0]

    tokens = [{0: r.integers(0, 1000, (n, 16)), 1: np.array([[1] * 11 + [0] * 5, [1] * 16])[:n]} for n in (2, 1)]
    for attention in ["eager", "sdpa"]:
        c = transformers.DistilBertConfig(vocab_size=1000, n_layers=2, dim=64, n_heads=4, hidden_dim=128, attn_implementation=attention)
        export(f"distilbert-{attention}", Logits(transformers.DistilBertForSequenceClassification(c)), (ids, mask), 1e-5, tokens)
        c = transformers.BertConfig(vocab_size=1000, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128, attn_implementation=attention)
        export(f"bert-{attention}", Logits(transformers.BertForSequenceClassification(c)), (ids, mask), 1e-5, tokens)

    class First(torch.nn.Module):  # without the last states, whose first axis is not the batch
        def __init__(self, m):
            super().__init__()
            self.m = m

        def forward(self, x):
            return self.m(x)[0]

    n = torch.nn
    t = {
        "lstm": (First(n.LSTM(6, 5, batch_first=True)), (2, 7, 6)),
        "bigru": (First(n.GRU(6, 5, num_layers=2, bidirectional=True, batch_first=True)), (2, 7, 6)),
        "rnn": (First(n.RNN(6, 5, nonlinearity="relu", batch_first=True)), (2, 7, 6)),
        "group-norm": (n.Sequential(n.Conv2d(3, 8, 3, padding=1), n.GroupNorm(4, 8), n.SiLU(), n.AvgPool2d(2, padding=1), n.ConvTranspose2d(8, 4, 3, 2, 1, 1)), (2, 3, 9, 9)),
        "upsample": (n.Sequential(n.Conv2d(3, 4, 3), n.Upsample(scale_factor=2, mode="bilinear"), n.InstanceNorm2d(4, affine=True), n.ELU(), n.PReLU(4), n.Upsample(scale_factor=2)), (2, 3, 8, 8)),
        "ceil-pool": (n.Sequential(n.MaxPool2d(3, 2, 1, ceil_mode=True), n.AvgPool2d(2, 2, ceil_mode=True), n.Hardswish(), n.ReflectionPad2d(1), n.PixelShuffle(1)), (2, 3, 10, 10)),
        "transformer": (n.TransformerEncoder(n.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu"), 2, enable_nested_tensor=False), (2, 5, 16)),
        "mlp": (n.Sequential(n.Linear(6, 8), n.BatchNorm1d(8), n.LeakyReLU(), n.Linear(8, 8), n.LayerNorm(8), n.Tanh(), n.Softplus(), n.Linear(8, 3), n.LogSoftmax(-1)), (2, 6)),
        "conv1d": (n.Sequential(n.Conv1d(3, 6, 3, padding=1, groups=3), n.BatchNorm1d(6), n.GELU(), n.MaxPool1d(2), n.Flatten(), n.Linear(24, 2), n.Sigmoid()), (2, 3, 8)),
    }
    for name, (m, shape) in t.items():
        export(name, m, (torch.randn(*shape),), 1e-5, [{0: r.standard_normal((k, *shape[1:]), np.float32)} for k in (2, 1)])


def sklearn():
    from sklearn.datasets import load_iris, load_diabetes
    from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
    from skl2onnx import to_onnx

    x, y = load_iris(return_X_y=True)
    x = x.astype(np.float32)
    u, v = load_diabetes(return_X_y=True)
    u = u.astype(np.float32)
    for name, model, a, b in [
        ("logistic", LogisticRegression(max_iter=1000), x, y),
        ("logistic-binary", LogisticRegression(max_iter=1000), x[:100], y[:100]),
        ("mlp", MLPClassifier((16, 8), max_iter=200, random_state=1), x, y),
        ("mlp-binary", MLPClassifier((8,), activation="tanh", max_iter=200, random_state=1), x[:100], y[:100]),
        ("scaler-logistic", make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), x, y),
        ("scaler-mlp", make_pipeline(MinMaxScaler(), Normalizer(), MLPClassifier((8,), max_iter=100, random_state=1)), x, y),
        ("linear", LinearRegression(), u, v),
        ("ridge-scaler", make_pipeline(StandardScaler(), Ridge()), u, v),
        ("mlp-regressor", make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(8,), max_iter=100, random_state=1)), u, v),
    ]:
        model.fit(a, b)
        options = {} if "scaler" in name or "linear" in name or "regressor" in name else {id(model): {"zipmap": False}}
        if name.startswith("scaler"):
            options = {id(model): {"zipmap": False}}
        p = to_onnx(model, a[:1], options=options or None)
        open(os.path.join(folder, f"sklearn-{name}.onnx"), "wb").write(p.SerializeToString())
        add(f"sklearn-{name}", 2e-6, [{0: a[::7]}, {0: a[:1]}])


def from_keras():
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    import keras

    L = keras.layers
    keras.utils.set_random_seed(1)
    models = {
        "mlp": (keras.Sequential([keras.Input((6,)), L.Dense(8, "relu"), L.BatchNormalization(), L.Dense(3, "softmax")]), (6,)),
        "cnn": (keras.Sequential([keras.Input((12, 12, 3)), L.Conv2D(4, 3, padding="same", strides=2), L.BatchNormalization(), L.ReLU(), L.DepthwiseConv2D(3), L.MaxPooling2D(), L.Conv2D(6, 2, activation="elu"), L.GlobalAveragePooling2D(), L.Dense(3)]), (12, 12, 3)),
        "rnn": (keras.Sequential([keras.Input((7, 5)), L.Bidirectional(L.LSTM(4, return_sequences=True)), L.LSTM(6), L.Dense(2)]), (7, 5)),
        "mobilenet": (keras.applications.MobileNetV2((64, 64, 3), alpha=0.35, weights=None, classes=10), (64, 64, 3)),
    }
    for name, (m, shape) in models.items():
        try:
            m(np.zeros((1, *shape), np.float32))
            m.export(os.path.join(folder, f"keras-{name}.onnx"), format="onnx", verbose=False)
            add(f"keras-{name}", 1e-5, [{0: r.standard_normal((n, *shape)).astype(np.float32)} for n in (3, 1)])
        except Exception as e:
            print("FAILED keras", name, repr(e)[:300], flush=True)


for k in kinds:
    {"torch": lambda: pytorch(False), "dynamo": lambda: pytorch(True), "sklearn": sklearn, "keras": from_keras}[k]()
json.dump(manifest, open(os.path.join(folder, "manifest.json"), "w"), indent=1)
