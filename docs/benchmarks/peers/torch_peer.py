"""PyTorch's side of examples/bench. See peer.py and README.md.

    python torch_peer.py THREADS
"""
import sys

import torch
import torch.nn.functional as F
from torch import nn

import peer
import torch_models

DTYPES = {"float32": torch.float32, "mixed_bfloat16": torch.bfloat16, "mixed_float16": torch.float16}


def modes(f, *args):
    """f(*args) as it is and compiled."""

    def eager():
        return lambda: f(*args)

    def compiled():
        torch._dynamo.reset()
        g = torch.compile(f)
        return lambda: g(*args)

    return {"eager": eager, "compile": compiled}


def mm(s, d):
    x = torch.randn((s["k"], s["m"]) if s["tx"] else (s["m"], s["k"])).to(d)
    w = torch.randn((s["n"], s["k"]) if s["tw"] else (s["k"], s["n"])).to(d)
    x, w = (x.T if s["tx"] else x), (w.T if s["tw"] else w)

    def onednn():  # packs the weights in each call, as mm must
        return lambda: torch.ops.mkldnn._linear_pointwise(x, w.T, None, "none", [], "")

    def into():
        y = torch.empty(s["m"], s["n"]).to(d)
        return lambda: torch.mm(x, w, out=y)

    settings = {"mm": lambda: lambda: torch.mm(x, w), "mm into": into}
    if not s["tx"]:
        settings["onednn"] = onednn
    return settings


def bmm(s, d):
    n, m, k, b = s["n"], s["m"], s["k"], s["batch"]
    x, w = torch.randn(b, m, k).to(d), torch.randn((b, n, k) if s["tw"] else (b, k, n)).to(d)
    w = w.mT if s["tw"] else w
    return {"bmm": lambda: lambda: torch.bmm(x, w)}


def linear(s, d):
    x, w, b = torch.randn(s["m"], s["k"]).to(d), torch.randn(s["n"], s["k"]).to(d), torch.zeros(s["n"]).to(d)

    def packed():
        p = torch.ops.mkldnn._reorder_linear_weight(w, s["m"])
        return lambda: torch.ops.mkldnn._linear_pointwise(x, p, b, "none", [], "")

    return {"eager": lambda: lambda: F.linear(x, w, b), "onednn packed": packed}


def conv(s, d):
    n = len(s["w"]) - 2
    f = (F.conv1d, F.conv2d, F.conv3d)[n - 1]
    each = [[s[k]] * n for k in ("stride", "pad")] + [[1] * n]

    def setting(layout):
        def build():
            def images(shape):  # from channels last
                t = torch.randn(shape[0], shape[-1], *shape[1:-1]).to(d)
                return t.to(memory_format=layout) if layout else t

            x, y = images(s["x"]), images(s["y"])
            w = torch.randn(s["w"][-1], s["w"][-2], *s["w"][:-2]).to(d)
            w = w.to(memory_format=layout) if layout else w
            b = torch.randn(s["w"][-1]).to(d) if s["first"] else None
            if s["part"] == "forward":
                return lambda: f(x, w, b, *each, s["groups"])
            mask = [s["part"] == "input", s["part"] == "kernel", False]
            return lambda: torch.ops.aten.convolution_backward(y, x, w, None, *each, False, [0] * n, s["groups"], mask)

        return build

    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(n)
    settings = {"channels first": setting(None)}
    if last and not s["first"]:
        settings["channels last"] = setting(last)
    return settings


def bias_relu(s, d):
    x, b = torch.randn(s["m"], s["n"]).to(d), torch.randn(s["n"]).to(d)
    return modes(lambda x, b: torch.relu(x + b), x, b)


def softmax(s, d):
    return modes(lambda x: torch.softmax(x, -1), torch.randn(s["m"], s["n"]).to(d))


def layernorm(s, d):
    x = torch.randn(s["m"], s["n"]).to(d)
    g, b = torch.ones(s["n"]), torch.zeros(s["n"])
    if d != torch.float32:  # what autocast does: in float32, and rounded after
        def f(x):
            return F.layer_norm(x.float(), (s["n"],), g, b).to(d)
    else:
        def f(x):
            return F.layer_norm(x, (s["n"],), g, b)
    if not s["gradient"]:
        return modes(f, x)
    x.requires_grad_(), g.requires_grad_(), b.requires_grad_()
    y, dy = f(x), torch.randn(s["m"], s["n"]).to(d)
    return {"eager": lambda: lambda: torch.autograd.grad(y, (x, g, b), dy, retain_graph=True)}


def cast(s, d):
    x = torch.randn(s["m"], s["n"]).to(d if s["widen"] else torch.float32)
    to = torch.float32 if s["widen"] else d
    return modes(lambda x: x.to(to), x)


def dropout(s, d):
    return modes(lambda x: F.dropout(x, 0.2, True), torch.randn(s["m"], s["n"]).to(d))


def embedding(s, d):
    at = torch.arange(s["indices"]) * 7919 % s["rows"]
    if s["gradient"]:
        g = torch.randn(s["indices"], s["width"])
        return {"eager": lambda: lambda: torch.ops.aten.embedding_dense_backward(g, at, s["rows"], -1, False)}
    table = torch.randn(s["rows"], s["width"])
    return modes(lambda at: F.embedding(at, table).to(d), at)


def attention(s, d):
    shape = s["batch"], s["steps"], s["heads"], s["size"]
    q, k, v, g = (torch.randn(shape).to(d).transpose(1, 2) for _ in range(4))

    def f(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    if not s["gradient"]:
        return modes(f, q, k, v)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    return {"eager": lambda: lambda: torch.autograd.grad(f(q, k, v), (q, k, v), g)}


def recurrent(s, d):
    def build():
        net = torch_models.RECURRENT[s["cell"]](s["features"], s["units"], batch_first=True).to(d)
        x = torch.randn(s["batch"], s["steps"], s["features"]).to(d)

        def work():
            with torch.no_grad():
                net(x)

        return work

    return {"eager": build}


def adam(s, _):
    def setting(**how):
        def build():
            w = nn.Parameter(torch.randn(s["n"]))
            w.grad = torch.randn(s["n"])
            return torch.optim.Adam([w], **how).step

        return build

    return {"fused": setting(fused=True), "foreach": setting(foreach=True)}


def step(s, policy):
    d = DTYPES[policy]

    def setting(compiled, layout):
        def build():
            torch.manual_seed(0)
            net, data, loss = torch_models.make(s)
            net = net.to(memory_format=layout)
            data = [x.to(memory_format=layout) if x.dim() == 4 else x for x in data]
            opt = torch.optim.Adam(net.parameters(), fused=True)
            scaler = torch.amp.GradScaler("cpu", enabled=d == torch.float16)

            def forward(*data):
                with torch.autocast("cpu", d, enabled=d != torch.float32):
                    return loss(net, *data)

            if compiled:
                torch._dynamo.reset()
                forward = torch.compile(forward)

            def work():
                opt.zero_grad(set_to_none=True)
                scaler.scale(forward(*data)).backward()
                scaler.step(opt)
                scaler.update()

            return work

        return build

    layouts = {"": torch.contiguous_format}
    if s["model"] in ("cnn", "unet"):
        layouts[" channels last"] = torch.channels_last
    return {mode + name: setting(mode == "compile", layout) for name, layout in layouts.items() for mode in ("eager", "compile")}


def predict(s, policy):
    d = DTYPES[policy]

    def setting(compiled, layout):
        def build():
            net, data, _ = torch_models.make(s)
            net = net.to(memory_format=layout).eval()
            x = [x.to(memory_format=layout) if x.dim() == 4 else x for x in torch_models.inputs(s, net, data)]
            if compiled:
                torch._dynamo.reset()
                torch._inductor.config.freezing = True
                net = torch.compile(net)

            def work():
                with torch.inference_mode(), torch.autocast("cpu", d, enabled=d != torch.float32):
                    net(*x)

            return work

        return build

    layouts = {"": torch.contiguous_format}
    if s["model"] in ("cnn", "unet", "resnet20", "mobilenet"):
        layouts[" channels last"] = torch.channels_last
    return {mode + name: setting(mode == "compile", layout) for name, layout in layouts.items() for mode in ("eager", "compile")}


OPS = {"mm": mm, "linear": linear, "conv": conv, "bias-relu": bias_relu, "softmax": softmax, "layernorm": layernorm,
       "cast": cast, "dropout": dropout, "embedding": embedding, "adam": adam,
       "attention": attention, "recurrent": recurrent, "bmm": bmm}


def start(s, policy):
    if s["kind"] == "step":
        return step(s, policy)
    if s["kind"] == "predict":
        return predict(s, policy)
    make = OPS.get(s["kind"])
    return make(s, DTYPES[policy]) if make else {}


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    peer.serve(torch.__version__, start)
