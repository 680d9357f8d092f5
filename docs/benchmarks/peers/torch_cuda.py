"""PyTorch's training steps on a GPU, for examples/gpucheck.

    ./gpucheck -specs > specs.json
    python torch_cuda.py specs.json --out torch.json
    ./gpucheck -only steps -torch torch.json

Every network and policy is timed eagerly, and then compiled with CUDA graphs
("reduce-overhead"); --modes takes these and "max-autotune", which measures
kernels, with commas between them. After each time the file of --out is written
anew, with what it had before: a run that is ended has its rows in it. float32
multiplies as TensorFloat-32, mixed policies are torch.autocast, with a GradScaler
for float16; images lie channels last; Adam is fused. A setting that fails is named
and left out. --rows takes names with commas between them, --seconds the length of
a repetition. --device cpu is for trying the script out.
"""
import argparse
import gc
import json
import os
import sys
import time

import torch

import torch_models

DTYPES = {"float32": torch.float32, "mixed_bfloat16": torch.bfloat16, "mixed_float16": torch.float16}


def build(spec, policy, mode, device):
    torch.manual_seed(0)
    torch._dynamo.reset()
    d = DTYPES[policy]
    layout = torch.channels_last if spec["model"] in ("cnn", "unet") else torch.contiguous_format
    net, data, loss = torch_models.make(spec)
    net = net.to(device, memory_format=layout)
    data = [x.to(device, memory_format=layout) if x.dim() == 4 else x.to(device) for x in data]
    opt = torch.optim.Adam(net.parameters(), fused=True)
    scaler = torch.amp.GradScaler(device, enabled=d == torch.float16)

    def forward(*data):
        with torch.autocast(device, d, enabled=d != torch.float32):
            return loss(net, *data)

    if mode != "eager":
        forward = torch.compile(forward, mode=mode)

    def step():
        opt.zero_grad(set_to_none=True)
        scaler.scale(forward(*data)).backward()
        scaler.step(opt)
        scaler.update()

    return step


def measure(step, device, seconds):
    """The median of three repetitions, milliseconds a step."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def repeat(n):
        wait()
        begin = time.perf_counter()
        for _ in range(n):
            step()
        wait()
        return time.perf_counter() - begin

    repeat(5)  # compiles, and captures
    n = 1
    while repeat(n) < seconds and n < 1 << 20:
        n *= 2
    return sorted(repeat(n) for _ in range(3))[1] / n * 1e3


def main():
    p = argparse.ArgumentParser()
    p.add_argument("specs")
    p.add_argument("--rows", default="")
    p.add_argument("--policies", default=",".join(DTYPES))
    p.add_argument("--seconds", type=float, default=0.3)
    p.add_argument("--modes", default="eager,reduce-overhead")
    p.add_argument("--out", required=True)
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    with open(a.specs) as f:
        specs = json.load(f)
    result = {}
    if os.path.exists(a.out):
        with open(a.out) as f:
            result = json.load(f)
    print("torch", torch.__version__, flush=True)
    for mode in a.modes.split(","):
        for row, spec in specs.items():
            if a.rows and row not in a.rows.split(","):
                continue
            for policy in a.policies.split(","):
                try:
                    step = build(spec, policy, mode, a.device)
                    ms = measure(step, a.device, a.seconds)
                except Exception as e:
                    print(f"{row} {policy} {mode}: {type(e).__name__}: {str(e)[:300]}", flush=True)
                else:
                    print(f"{row} {policy} {mode}: {ms:.3f} ms", flush=True)
                    result.setdefault(row, {}).setdefault(policy, {})[mode] = ms
                    with open(a.out + ".new", "w") as f:
                        json.dump(result, f, indent=1)
                    os.replace(a.out + ".new", a.out)
                step = None
                gc.collect()
                if a.device == "cuda":
                    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
