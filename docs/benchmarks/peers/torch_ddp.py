"""Times PyTorch's DistributedDataParallel with gloo at what keras/distribution/mpi's BenchmarkExchange and
BenchmarkStep time: sums of float32 vectors over 2 ranks, and training steps on ranks of one core each.

    python torch_ddp.py [exchange|float32|bfloat16 ...]

    python torch_ddp.py losses > keras/distribution/testdata/torch_ddp.txt

prints the losses of 100 steps of a training on 2 ranks, with which TestDistributedLosses compares Mezzo's.
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


def numbers(rows, columns, modulus, factor):
    i, j = torch.arange(rows)[:, None], torch.arange(columns)[None, :]
    return ((i * 37 + j * 101 + i * j * 3) % modulus).float() / modulus * factor


def losses():
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with torch.no_grad():
        for layer, factor in (net[0], 0.5), (net[2], 1):
            layer.weight.copy_((numbers(layer.in_features, layer.out_features, 199, factor) - factor / 2).T)
            layer.bias.zero_()
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = numbers(256, 64, 101, 1), torch.arange(256) * 7 % 10
    for step in range(100):
        first = step % 4 * 64 + dist.get_rank() * 32  # of the rank's rows of the batch
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[first:first + 32]), y[first:first + 32])
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"{total.item() / 2:.7f}", flush=True)


def main(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("DDP_PORT", "29511"))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for policy in sys.argv[1:] or ["exchange", "float32", "bfloat16"]:
        if policy == "losses":
            if ranks == 2:
                losses()
            continue
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
