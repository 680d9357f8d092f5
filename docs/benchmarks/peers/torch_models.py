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


MODELS = {"mlp": mlp, "cnn": cnn}
