"""PyTorch's training steps on a GPU, for examples/gpucheck.

    ./gpucheck -specs > specs.json
    python torch_cuda.py specs.json > torch.json
    ./gpucheck -only steps -torch torch.json

Every network and policy is timed eagerly, compiled with CUDA graphs
("reduce-overhead"), and with --autotune also compiled with measured kernels
("max-autotune"). float32 multiplies as TensorFloat-32, mixed policies are
torch.autocast, with a GradScaler for float16; images lie channels last; Adam is
fused. A setting that fails is named on standard error and left out. --rows takes
names with commas between them, --seconds the length of a repetition. --device
cpu is for trying the script out.
"""
import argparse
import gc
import json
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
    p.add_argument("--autotune", action="store_true")
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    with open(a.specs) as f:
        specs = json.load(f)
    modes = ["eager", "reduce-overhead"] + (["max-autotune"] if a.autotune else [])
    result = {}
    for row, spec in specs.items():
        if a.rows and row not in a.rows.split(","):
            continue
        for policy in a.policies.split(","):
            for mode in modes:
                try:
                    step = build(spec, policy, mode, a.device)
                    result.setdefault(row, {}).setdefault(policy, {})[mode] = measure(step, a.device, a.seconds)
                except Exception as e:
                    print(f"{row} {policy} {mode}: {type(e).__name__}: {str(e)[:300]}", file=sys.stderr)
                step = None
                gc.collect()
                if a.device == "cuda":
                    torch.cuda.empty_cache()
            print(row, policy, result.get(row, {}).get(policy), file=sys.stderr, flush=True)
    print("torch", torch.__version__, file=sys.stderr)
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
