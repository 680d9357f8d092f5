"""Training steps of the reference networks in PyTorch and Keras 3, for the
rows of examples/bench. Needs its own virtual environment with torch, keras and
tensorflow-cpu; Mezzo never needs it. Unset OPENBLAS_CORETYPE and
OPENBLAS_L2_SIZE first.

    python train.py [--peer torch|keras] [--rows ROW,...] [--reps 9]
"""
import argparse
import os
import time

ROWS = {
    "mlp64-b8192": ([784, 64, 64, 10], 8192),
    "mlp64-b128": ([784, 64, 64, 10], 128),
    "mlp512-b128": ([784, 512, 512, 10], 128),
    "mlp4096-b1024": ([784, 4096, 4096, 10], 1024),
}


def flops(sizes, batch):
    return sum(2 * (2 if i == 0 else 3) * batch * a * b for i, (a, b) in enumerate(zip(sizes, sizes[1:])))


def median_ms(step, reps, least=0.1):
    n = 1
    while True:
        t = time.perf_counter()
        for _ in range(n):
            step()
        if time.perf_counter() - t >= least:
            break
        n *= 2
    out = []
    for _ in range(reps):
        t = time.perf_counter()
        for _ in range(n):
            step()
        out.append((time.perf_counter() - t) / n * 1e3)
    return sorted(out)[len(out) // 2]


def torch_step(sizes, batch, bf16, compiled):
    import torch

    torch.manual_seed(0)
    mods = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        mods.append(torch.nn.Linear(a, b))
        if i < len(sizes) - 2:
            mods.append(torch.nn.ReLU())
    net = torch.nn.Sequential(*mods)
    opt = torch.optim.Adam(net.parameters(), fused=True)
    loss_fn = torch.nn.CrossEntropyLoss()
    x, y = torch.rand(batch, sizes[0]) - 0.5, torch.arange(batch) % sizes[-1]

    def forward(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            out = net(x)
        return loss_fn(out.float(), y)

    f = torch.compile(forward) if compiled else forward

    def step():
        opt.zero_grad(set_to_none=True)
        f(x, y).backward()
        opt.step()

    return step


def keras_step(sizes, batch, policy):
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    import numpy as np

    keras.config.set_dtype_policy(policy)
    net = keras.Sequential([keras.layers.Dense(u, activation="relu") for u in sizes[1:-1]] + [keras.layers.Dense(sizes[-1], dtype="float32")])
    net.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = (np.random.rand(batch, sizes[0]) - 0.5).astype("float32")
    y = (np.arange(batch) % sizes[-1]).astype("int32")
    net.train_on_batch(x, y)
    import tensorflow as tf

    xs, ys = tf.constant(x), tf.constant(y)
    data = iter(tf.data.Dataset.from_tensors((xs, ys)).repeat())
    return lambda: net.train_function(data)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--peer", default="torch")
    p.add_argument("--rows", default=",".join(ROWS))
    p.add_argument("--reps", type=int, default=9)
    a = p.parse_args()
    if a.peer == "torch":
        import torch

        torch.set_num_threads(2)
        kinds = [("float32", lambda s, b: torch_step(s, b, False, False)), ("bfloat16", lambda s, b: torch_step(s, b, True, False)),
                 ("float32 compiled", lambda s, b: torch_step(s, b, False, True)), ("bfloat16 compiled", lambda s, b: torch_step(s, b, True, True))]
        print("torch", torch.__version__)
    else:
        import keras

        kinds = [(n, lambda s, b, n=n: keras_step(s, b, n)) for n in ("float32", "mixed_bfloat16", "mixed_float16")]
        print("keras", keras.__version__)
    print("| row | kind | ms/step | GFLOP/s |")
    print("|---|---|---|---|")
    for row in a.rows.split(","):
        sizes, batch = ROWS[row]
        for name, make in kinds:
            try:
                ms = median_ms(make(sizes, batch), a.reps)
                print(f"| {row} | {a.peer} {name} | {ms:.3f} | {flops(sizes, batch) / ms / 1e6:.0f} |", flush=True)
            except Exception as e:  # a setting that does not run here is a row, too
                print(f"| {row} | {a.peer} {name} | {type(e).__name__} | |", flush=True)


if __name__ == "__main__":
    main()
