"""Times PyTorch's DistributedDataParallel with gloo at what keras/distribution/mpi's BenchmarkExchange and
BenchmarkStep time: sums of float32 vectors over 2 ranks, and training steps on ranks of one core each.

    python torch_ddp.py [exchange|float32|bfloat16 ...]
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

SIZES = [1 << 8, 1 << 18, 25 << 18]


def exchange():
    for n in SIZES:
        x = torch.zeros(n)
        best = None
        for _ in range(15):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(x)
            took = time.perf_counter() - began
            best = took if best is None else min(best, took)
        if dist.get_rank() == 0:
            print(f"all_reduce {4 * n} bytes: {best * 1e6:.1f} us", flush=True)


def step(name, policy, ddp):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10))
    if ddp:
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x, y = torch.rand(1024, 784), torch.arange(1024) % 10
    took = []
    for i in range(7):
        dist.barrier()
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=policy == "bfloat16"):
            loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if i > 1:
            took.append(time.perf_counter() - began)
    took.sort()
    if dist.get_rank() == 0:
        print(f"step {policy} {name}: {took[len(took) // 2] * 1e3:.1f} ms", flush=True)


def main(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("DDP_PORT", "29511"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for policy in sys.argv[1:] or ["exchange", "float32", "bfloat16"]:
        if policy == "exchange":
            if ranks > 1:
                exchange()
            continue
        step(f"{ranks} alone", policy, False)
        step(f"{ranks} parallel", policy, True)
    dist.destroy_process_group()


if __name__ == "__main__":
    for ranks in 1, 2:
        mp.spawn(main, (ranks,), ranks)
