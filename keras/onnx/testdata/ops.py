"""Writes ops.json.gz: a small ONNX file for each operation that Import reads, in old and
new operator sets, with inputs and the results of ONNX Runtime.

    python keras/onnx/testdata/ops.py
"""
import base64, gzip, json, os
import numpy as np, onnx, onnxruntime as ort
from onnx import TensorProto as T, helper as h, numpy_helper as nh

ort.set_default_logger_severity(4)
r = np.random.default_rng(1)
cases = []
types = {np.dtype("float32"): T.FLOAT, np.dtype("float64"): T.DOUBLE, np.dtype("int64"): T.INT64, np.dtype("int32"): T.INT32, np.dtype("bool"): T.BOOL, np.dtype("uint8"): T.UINT8, np.dtype("int8"): T.INT8}


def arrays(all):
    return [{"DType": str(a.dtype), "Shape": list(a.shape), "Data": base64.b64encode(np.ascontiguousarray(a).tobytes()).decode()} for a in all]


def case(op, inputs, consts=(), opset=17, outputs=1, name="", domain="", order=None, fixed=False, **attrs):
    """inputs are data, with a batch of 3 first; consts initializers. order names the operands. fixed files are for that batch alone."""
    names = [f"x{i}" for i in range(len(inputs))]
    inits = [f"c{i}" for i in range(len(consts))]
    outs = [f"y{i}" for i in range(outputs)]
    node = h.make_node(op, order if order is not None else names + inits, outs, name=op, domain=domain, **attrs)
    batch = lambda a: [3 if fixed else "N"] + list(a.shape[1:])
    g = h.make_graph([node], "g", [h.make_tensor_value_info(n, types[a.dtype], batch(a)) for n, a in zip(names, inputs)],
                     [h.make_empty_tensor_value_info(o) for o in outs], [nh.from_array(np.asarray(c), n) for n, c in zip(inits, consts)])
    opsets = [h.make_opsetid("", opset)] + ([h.make_opsetid(domain, 3)] if domain else [])
    m = h.make_model(g, opset_imports=opsets, ir_version=8)
    s = ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    got = s.run(None, dict(zip(names, inputs)))
    del m.graph.output[:]
    m.graph.output.extend(h.make_tensor_value_info(o, types[a.dtype], None) for o, a in zip(outs, got))
    label = f"{(domain + '.') if domain else ''}{op}{'-' if name else ''}{name}, opset {opset}"
    cases.append({"Name": label, "Model": base64.b64encode(m.SerializeToString()).decode(), "In": arrays(inputs), "Out": arrays(got)})


f = lambda *s: r.standard_normal(s).astype(np.float32)
i64 = lambda *x: np.array(x, np.int64)
x = f(3, 4, 5)
pos = np.abs(x) + 0.1
for op in "Abs Neg Exp Sin Cos Tan Sinh Cosh Tanh Sigmoid Softplus Softsign Relu Erf Floor Ceil Round Sign Identity HardSwish Mish IsNaN".split():
    case(op, [x], opset=18 if op == "Mish" else 17)
for op in ["Log", "Sqrt", "Reciprocal"]:
    case(op, [pos])
for op, a in [("Elu", {"alpha": 1.5}), ("Selu", {}), ("Celu", {"alpha": 0.7}), ("LeakyRelu", {"alpha": 0.3}), ("ThresholdedRelu", {"alpha": 0.4}), ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}), ("LogSoftmax", {"axis": 1})]:
    case(op, [x], **a)
case("Softmax", [x], axis=1, opset=11)
case("Softmax", [x], axis=1, opset=13)
case("Gelu", [x], opset=20)
case("Gelu", [x], opset=20, approximate="tanh", name="tanh")
case("PRelu", [x], [f(4, 1)])
case("IsInf", [np.where(x > 1, np.inf, np.where(x < -1, -np.inf, x)).astype(np.float32)])
case("Clip", [x], opset=6 + 1, min=-0.5, max=0.7)
case("Clip", [x], [np.float32(-0.5), np.float32(0.7)])
case("Clip", [x], [np.float32(0.5)], order=["x0", "", "c0"], name="max")
for op in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]:
    case(op, [x, f(3, 4, 5)])
    if op not in ("Sum", "Mean"):
        case(op, [x], [f(4, 1)], name="broadcast")
case("Div", [np.arange(-6, 6).reshape(3, 4)], [i64(4)], name="integers")
case("Mod", [np.arange(-6, 6).reshape(3, 4)], [i64(4)], name="integers")
case("Mod", [x], [np.float32(0.7)], fmod=1)
case("Pow", [pos], [np.float32(1.7)])
case("Pow", [x], [i64(2)], name="square")
b = x > 0
case("And", [b, f(3, 4, 5) > 0]); case("Or", [b, f(3, 4, 5) > 0]); case("Xor", [b, f(3, 4, 5) > 0]); case("Not", [b])
case("Where", [b, x], [np.float32(2)])
for op in "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSumExp".split():
    case(op, [x], opset=11, axes=[1, -1])
    case(op, [x], [i64(1)], opset=18, keepdims=0)
case("ReduceLogSum", [pos], [i64(1)], opset=18)
case("ArgMax", [x], axis=2); case("ArgMin", [x], axis=1, keepdims=0)
case("CumSum", [x], [i64(1)[0]]); case("CumSum", [x], [i64(2)[0]], reverse=1, name="reverse")
case("Trilu", [x], upper=0); case("Trilu", [x], [i64(1)[0]], name="k")
case("Cast", [x], to=T.INT32); case("Cast", [x], to=T.BOOL, name="bool"); case("Cast", [np.arange(6).reshape(3, 2)], to=T.FLOAT, name="float")
case("CastLike", [x], [i64(1)])
case("Reshape", [x], [i64(0, -1)]); case("Flatten", [x], axis=1)
case("Transpose", [x], perm=[0, 2, 1]); case("Squeeze", [f(3, 1, 4, 1)], opset=11, axes=[1]); case("Squeeze", [f(3, 1, 4, 1)], [i64(-1)])
case("Unsqueeze", [x], opset=11, axes=[1, 4]); case("Unsqueeze", [x], [i64(-1)])
case("Concat", [x, f(3, 2, 5)], axis=1); case("Split", [x], outputs=2, axis=1); case("Split", [x], [i64(1, 3)], outputs=2, axis=1, name="sizes"); case("Split", [x], opset=11, outputs=2, axis=2, split=[2, 3])
case("Slice", [x], opset=9, starts=[1, -3], ends=[3, 100], axes=[1, 2]); case("Slice", [x], [i64(-1, 0), i64(-10, 5), i64(1, 2), i64(-1, 2)])
case("Gather", [x], [i64(3, 0, -1)], axis=1); case("Gather", [x], [i64(2)[0]], axis=2, name="scalar")
case("Gather", [r.integers(0, 6, (3, 2))], [f(6, 4)], order=["c0", "x0"], name="embedding")
case("GatherElements", [x, r.integers(0, 4, (3, 2, 5))], axis=1)
case("GatherND", [r.integers(0, 4, (3, 2, 2))], [f(4, 4, 3)], order=["c0", "x0"])
case("ScatterND", [f(3, 4)], [np.zeros((6, 4), np.float32), i64(1, 5, 1).reshape(3, 1)], order=["c0", "c1", "x0"], reduction="add", opset=16, fixed=True)
case("Expand", [f(3, 1, 5)], [i64(3, 4, 5)], fixed=True); case("Tile", [x], [i64(1, 2, 3)])
case("Pad", [x], opset=10, pads=[0, 1, 2, 0, 0, 1], value=0.5); case("Pad", [x], [i64(0, 1, 2, 0, 0, 1), np.float32(0.5)]); case("Pad", [x], [i64(0, 1, 2, 0, 2, 1)], mode="reflect", name="reflect"); case("Pad", [x], [i64(0, 1, 2, 0, 2, 1)], mode="edge", name="edge")
case("Pad", [x], [i64(0, -1, 2, 0, 0, -1)], name="negative")
case("OneHot", [np.array([[0, 2], [1, -1], [3, 0]])], [i64(4)[0], np.array([-1, 2], np.float32)])
case("DepthToSpace", [f(3, 8, 2, 3)], blocksize=2); case("DepthToSpace", [f(3, 8, 2, 3)], blocksize=2, mode="CRD", name="CRD"); case("SpaceToDepth", [f(3, 2, 4, 6)], blocksize=2)
case("Dropout", [x])
im = f(3, 4, 7, 6)
case("Conv", [im], [f(5, 4, 3, 2), f(5)], strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2]); case("Conv", [im], [f(6, 2, 3, 3)], group=2, auto_pad="SAME_UPPER", strides=[2, 2], name="groups")
case("Conv", [im], [f(6, 4, 3, 3)], auto_pad="SAME_LOWER", strides=[2, 2], name="lower"); case("Conv", [f(3, 4, 9)], [f(4, 1, 3)], group=4, name="1d"); case("Conv", [f(3, 2, 4, 5, 3)], [f(3, 2, 2, 2, 2)], name="3d")
case("ConvTranspose", [im], [f(4, 3, 3, 3), f(3)], strides=[2, 2], pads=[1, 0, 0, 1], output_padding=[1, 0]); case("ConvTranspose", [im], [f(4, 2, 3, 2)], group=2, dilations=[2, 1], name="groups"); case("ConvTranspose", [im], [f(4, 2, 3, 3)], strides=[2, 2], output_shape=[14, 12], name="shape")
case("MaxPool", [im], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]); case("MaxPool", [im], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, name="ceil"); case("MaxPool", [im], kernel_shape=[2, 2], dilations=[2, 2], name="dilation"); case("MaxPool", [im], kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER", name="same")
for c in (0, 1):
    case("AveragePool", [im], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=c, name=f"pad {c}"); case("AveragePool", [im], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad=c, pads=[1, 1, 1, 1], opset=19, name=f"ceil {c}")
case("GlobalAveragePool", [im]); case("GlobalMaxPool", [im])
bn = [np.abs(f(4)) + 0.2 for _ in range(4)]
case("BatchNormalization", [im], bn, epsilon=1e-3); case("BatchNormalization", [f(3, 4)], bn, opset=9, name="2 axes")
case("InstanceNormalization", [im], bn[:2]); case("GroupNormalization", [im], bn[:2], num_groups=2, opset=21); case("LayerNormalization", [x], [f(5), f(5)]); case("LayerNormalization", [x], [f(4, 5)], axis=1, epsilon=1e-3, name="axis 1"); case("RMSNormalization", [x], [f(5)], opset=23); case("LRN", [im], size=3, alpha=0.1, beta=0.6, bias=1.5)
case("Resize", [im], [np.array([1, 1, 2, 1.5], np.float32)], order=["x0", "", "c0"]); case("Resize", [im], [i64(3, 4, 4, 9)], order=["x0", "", "", "c0"], mode="linear", name="sizes", fixed=True); case("Resize", [im], [np.array([1, 1, 0.6, 2], np.float32)], order=["x0", "", "c0"], mode="linear", coordinate_transformation_mode="align_corners", name="corners"); case("Resize", [im], [np.array([1, 1, 2, 2], np.float32)], order=["x0", "", "c0"], mode="cubic", name="cubic")
case("Resize", [im], [np.array([1, 1, 2, 2], np.float32)], order=["x0", "", "c0"], coordinate_transformation_mode="asymmetric", nearest_mode="floor", name="floor"); case("Resize", [im], [np.array([1, 1, 2, 2], np.float32)], opset=10, name="10"); case("Upsample", [im], [np.array([1, 1, 2, 2], np.float32)], opset=9, mode="linear")
case("MatMul", [x], [f(5, 3)]); case("MatMul", [x, f(3, 5, 2)], name="batched"); case("MatMul", [x], [f(5)], name="vector")
case("Gemm", [f(3, 4)], [f(5, 4), f(5)], transB=1, alpha=0.5, beta=2.0); case("Einsum", [x, f(3, 2, 5)], equation="bij,bkj->bik")
t = f(6, 3, 4)  # steps, batch
def rnn(op, gates, biases=True, name="", directions=1, **attrs):
    c = [f(directions, gates * 3, 4), f(directions, gates * 3, 3)] + ([f(directions, 2 * gates * 3)] if biases else [])
    x = h.make_tensor_value_info("x0", T.FLOAT, ["N", 6, 4])
    names = ["w", "r", "b"][: len(c)]
    outs = ["y", "last"] + (["c"] if op == "LSTM" else [])
    nodes = [h.make_node("Transpose", ["x0"], ["t"], perm=[1, 0, 2]), h.make_node(op, ["t"] + names, outs, hidden_size=3, **attrs), h.make_node("Transpose", ["y"], ["y0"], perm=[2, 0, 1, 3]), h.make_node("Transpose", ["last"], ["y1"], perm=[1, 0, 2])]
    g = h.make_graph(nodes, "g", [x], [h.make_tensor_value_info("y0", T.FLOAT, None), h.make_tensor_value_info("y1", T.FLOAT, None)], [nh.from_array(a, n) for a, n in zip(c, names)])
    m = h.make_model(g, opset_imports=[h.make_opsetid("", 14)], ir_version=8)
    a = f(3, 6, 4)
    got = ort.InferenceSession(m.SerializeToString()).run(None, {"x0": a})
    cases.append({"Name": f"{op}{name}, opset 14", "Model": base64.b64encode(m.SerializeToString()).decode(), "In": arrays([a]), "Out": arrays(got)})
for d, n in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
    rnn("LSTM", 4, directions=n, direction=d, name=" " + d); rnn("GRU", 3, directions=n, direction=d, linear_before_reset=1, name=" " + d); rnn("RNN", 1, directions=n, direction=d, name=" " + d)
rnn("GRU", 3, name=" reset before"); rnn("LSTM", 4, biases=False, name=" without bias"); rnn("RNN", 1, activations=["Relu"], name=" relu")
case("QuantizeLinear", [x * 20], [np.float32(0.3), np.uint8(100)]); case("QuantizeLinear", [x * 20], [np.abs(f(4)) + 0.1, np.zeros(4, np.int8)], axis=1, name="axis"); case("DequantizeLinear", [r.integers(0, 255, (3, 4)).astype(np.uint8)], [np.float32(0.3), np.uint8(100)])
ml = "ai.onnx.ml"
v = f(3, 4)
case("Scaler", [v], domain=ml, offset=[0.1, 0.2, 0.3, 0.4], scale=[2.0, 1.0, 0.5, 3.0]); case("LinearRegressor", [v], domain=ml, coefficients=list(map(float, f(8))), intercepts=[0.5, -0.5], targets=2)
for n in ("MAX", "L1", "L2"):
    case("Normalizer", [v], domain=ml, norm=n, name=n)
case("LinearClassifier", [v], domain=ml, outputs=2, coefficients=list(map(float, f(12))), intercepts=[0.5, -0.5, 0.1], classlabels_ints=[3, 5, 9], post_transform="SOFTMAX", multi_class=1)
case("LinearClassifier", [v], domain=ml, outputs=2, coefficients=list(map(float, f(8))), intercepts=[0.5, -0.5], classlabels_ints=[0, 1], post_transform="LOGISTIC", name="logistic")
case("ArrayFeatureExtractor", [v], [i64(2, 0)], domain=ml)

at = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops.json.gz")
text = json.dumps({"ONNXRuntime": ort.__version__, "Cases": cases}, separators=(",", ":"))
open(at, "wb").write(gzip.compress(text.encode(), mtime=0))
print(len(cases), "cases", os.path.getsize(at), "bytes")
