"""The networks of examples/bench as ONNX files, which PyTorch writes."""
import os
import tempfile

import torch

import torch_models


def export(s):
    """Returns the path of a file, and the inputs as NumPy arrays by name."""
    net, data, _ = torch_models.make(s)
    x = torch_models.inputs(s, net, data)
    names = [f"x{i}" for i in range(len(x))]
    path = os.path.join(tempfile.mkdtemp(), "model.onnx")
    torch.onnx.export(net.eval(), tuple(x), path, input_names=names, dynamo=False, opset_version=17)
    return path, {n: t.numpy() for n, t in zip(names, x)}
