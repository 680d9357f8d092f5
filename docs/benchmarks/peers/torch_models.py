"""The networks of examples/bench in PyTorch: make(spec) returns the module,
the data of a step, and the loss as a function of both."""
import torch
import torch.nn.functional as F
from torch import nn


def make(s):
    return MODELS[s["model"]](s)


def cross_entropy(net, x, y):
    return F.cross_entropy(net(x).float(), y)


def mlp(s):
    sizes, mods = s["sizes"], []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        mods.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            mods.append(nn.ReLU())
    x, y = torch.rand(s["batch"], sizes[0]) - 0.5, torch.arange(s["batch"]) % sizes[-1]
    return nn.Sequential(*mods), [x, y], cross_entropy


def cnn(s):
    size, (a, b), pad = s["size"], s["filters"], 1 if s["padding"] == "same" else 0
    left = ((size - 2 + 2 * pad) // 2 - 2 + 2 * pad) // 2
    net = nn.Sequential(
        nn.Conv2d(1, a, 3, padding=pad), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(a, b, 3, padding=pad), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(b * left * left, 10))
    x, y = torch.rand(s["batch"], 1, size, size) - 0.5, torch.arange(s["batch"]) % 10
    return net, [x, y], cross_entropy


class Block(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv2d(i, o, 3), nn.ReLU(), nn.BatchNorm2d(o), nn.Conv2d(o, o, 3), nn.ReLU(), nn.BatchNorm2d(o))


class UNet(nn.Module):
    def __init__(self, filters, depth, classes):
        super().__init__()
        n = [filters << i for i in range(depth + 1)]
        self.down = nn.ModuleList(Block(i, o) for i, o in zip([3] + n, n))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * o, o, 2, 2) for o in n[-2::-1])
        self.join = nn.ModuleList(Block(2 * o, o) for o in n[-2::-1])
        self.head = nn.Conv2d(filters, classes, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            skips.append(x)
        skips.pop()
        for up, join in zip(self.up, self.join):
            x, skip = up(x), skips.pop()
            m = (skip.shape[-1] - x.shape[-1]) // 2
            x = join(torch.cat([skip[..., m:m + x.shape[-2], m:m + x.shape[-1]], x], 1))
        return self.head(x)


def unet(s):
    net = UNet(s["filters"], s["depth"], s["classes"])
    x = torch.rand(s["batch"], 3, s["size"], s["size"]) - 0.5
    with torch.no_grad():
        y = net(x).argmax(1)
    return net, [x, torch.randint_like(y, s["classes"])], cross_entropy


class Attention(nn.Module):
    def __init__(self, s):
        super().__init__()
        h = s["hidden"]
        self.heads, self.p = s["heads"], s["dropout"]
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)

    def forward(self, x, mask):
        b, t, h = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, mask, self.p if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(b, t, h))


class Encoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        h = s["hidden"]
        self.attend, self.norm = Attention(s), nn.LayerNorm(h, 1e-12)
        self.inner, self.outer, self.norm2 = nn.Linear(h, s["intermediate"]), nn.Linear(s["intermediate"], h), nn.LayerNorm(h, 1e-12)
        self.drop = nn.Dropout(s["dropout"])

    def forward(self, x, mask):
        x = self.norm(x + self.drop(self.attend(x, mask)))
        return self.norm2(x + self.drop(self.outer(F.gelu(self.inner(x)))))


class Span(nn.Module):
    """BERT with start and end logits from its last two layers."""

    def __init__(self, s):
        super().__init__()
        h = s["hidden"]
        self.token, self.kind = nn.Embedding(s["vocabulary"], h), nn.Embedding(s["types"], h)
        self.position, self.norm = nn.Embedding(s["positions"], h), nn.LayerNorm(h, 1e-12)
        self.drop = nn.Dropout(s["dropout"])
        self.layers = nn.ModuleList(Encoder(s) for _ in range(s["layers"]))
        self.head = nn.Linear(2 * h, 2)

    def forward(self, tokens, kinds):
        mask = (tokens != 0)[:, None, None, :]
        x = self.token(tokens) + self.kind(kinds) + self.position.weight[:tokens.shape[1]]
        x = self.drop(self.norm(x))
        hidden = []
        for layer in self.layers:
            x = layer(x, mask)
            hidden.append(x)
        return self.head(self.drop(torch.cat([hidden[-1], hidden[-2]], -1))).unbind(-1)


def span_loss(net, tokens, kinds, start, end):
    a, b = net(tokens, kinds)
    return F.cross_entropy(a.float(), start) + F.cross_entropy(b.float(), end)


def bert(s):
    b, t = s["batch"], s["tokens"]
    data = [torch.randint(1, s["vocabulary"], (b, t)), torch.randint(s["types"], (b, t)), torch.randint(t, (b,)), torch.randint(t, (b,))]
    return Span(s), data, span_loss


class MinimalGate(nn.Module):
    """A cell of one gate, step by step."""

    def __init__(self, size, units, batch_first):
        super().__init__()
        self.x, self.h = nn.Linear(size, 2 * units), nn.Linear(units, 2 * units, bias=False)

    def forward(self, x):
        h, x, all = x.new_zeros(x.shape[0], self.h.in_features), self.x(x), []
        for i in range(x.shape[1]):
            f, g = (x[:, i] + self.h(h)).chunk(2, 1)
            g = torch.tanh(g)
            h = torch.lerp(g, h.to(g.dtype), torch.sigmoid(f))
            all.append(h)
        return torch.stack(all, 1), h


RECURRENT = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN, "custom": MinimalGate}


class Recurrent(nn.Module):
    def __init__(self, cell, size, units):
        super().__init__()
        self.layer, self.head = RECURRENT[cell](size, units, batch_first=True), nn.Linear(units, 10)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


def recurrent(s):
    x, y = torch.rand(s["batch"], s["size"], s["size"]) - 0.5, torch.arange(s["batch"]) % 10
    return Recurrent(s["cell"], s["size"], s["units"]), [x, y], cross_entropy


def tokens(s):
    return torch.randint(1, s["words"], (s["batch"], s["steps"]))


class Text(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed, self.conv = nn.Embedding(s["words"], s["width"]), nn.Conv1d(s["width"], s["filters"], 5)
        self.inner, self.head = nn.Linear(s["filters"], 64), nn.Linear(64, 2)

    def forward(self, x):
        x = F.relu(self.conv(self.embed(x).transpose(1, 2))).amax(-1)
        return self.head(F.relu(self.inner(x)))


def text(s):
    return Text(s), [tokens(s)], None


class BiGRU(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s["words"], s["width"])
        self.gru, self.head = nn.GRU(s["width"], s["units"], batch_first=True, bidirectional=True), nn.Linear(2 * s["units"], 2)

    def forward(self, x):
        h = self.gru(self.embed(x))[1]
        return self.head(torch.cat([h[0], h[1]], 1))


def bigru(s):
    return BiGRU(s), [tokens(s)], None


class PreNorm(nn.Module):
    def __init__(self, s):
        super().__init__()
        h = s["hidden"]
        self.attend, self.norm = Attention(s | {"dropout": 0.0}), nn.LayerNorm(h, 1e-3)
        self.inner, self.outer, self.norm2 = nn.Linear(h, 4 * h), nn.Linear(4 * h, h), nn.LayerNorm(h, 1e-3)

    def forward(self, x):
        x = x + self.attend(self.norm(x), None)
        return x + self.outer(F.gelu(self.inner(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, s):
        super().__init__()
        h = s["hidden"]
        self.embed, self.layers = nn.Embedding(s["words"], h), nn.Sequential(*(PreNorm(s) for _ in range(s["layers"])))
        self.norm, self.head = nn.LayerNorm(h, 1e-3), nn.Linear(h, 2)

    def forward(self, x):
        return self.head(self.norm(self.layers(self.embed(x))).mean(1))


def transformer(s):
    return Transformer(s), [tokens(s)], None


def convolve(i, o, k, stride, relu=True, groups=1):
    # Keras pads strided windows of 3 below and on the right alone.
    pad = [nn.ZeroPad2d((0, 1, 0, 1))] if stride == 2 and k == 3 else []
    mods = pad + [nn.Conv2d(i, o, k, stride, 0 if pad else k // 2, groups=groups, bias=False), nn.BatchNorm2d(o, 1e-3)]
    return nn.Sequential(*mods, *([nn.ReLU()] if relu else []))


class Residual(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.a, self.b = convolve(i, o, 3, stride), convolve(o, o, 3, 1, False)
        self.shortcut = nn.Identity() if i == o else convolve(i, o, 1, stride, False)

    def forward(self, x):
        return F.relu(self.b(self.a(x)) + self.shortcut(x))


def classifier(s, size, *mods, channels, classes):
    net = nn.Sequential(*mods, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    return net, [torch.rand(s["batch"], 3, size, size) - 0.5], None


def resnet20(s):
    blocks, i = [convolve(3, 16, 3, 1)], 16
    for o in (16, 32, 64):
        for _ in range(3):
            blocks.append(Residual(i, o, 1 if i == o else 2))
            i = o
    return classifier(s, 32, *blocks, channels=64, classes=10)


def mobilenet(s):
    blocks, i = [convolve(3, 16, 3, 2)], 16
    for o, stride in s["separable"]:
        blocks += [convolve(i, i, 3, stride, groups=i), convolve(i, o, 1, 1)]
        i = o
    return classifier(s, 96, *blocks, channels=i, classes=100)


MODELS = {"mlp": mlp, "mlp4096": mlp, "cnn": cnn, "recurrent": recurrent, "unet": unet, "bert": bert, "text": text, "bigru": bigru,
          "transformer": transformer, "resnet20": resnet20, "mobilenet": mobilenet}


def inputs(s, net, data):
    """The arguments of net among the data of a step."""
    return data[:2] if s["model"] == "bert" else data[:1]
