"""OpenBLAS, as NumPy's wheels have it, in examples/bench: products of float32.
See peer.py and README.md.

    python numpy_peer.py THREADS    (OMP_NUM_THREADS says how many OpenBLAS uses)
"""
import numpy as np

import peer


def normal(*shape):
    return np.random.default_rng(1).standard_normal(shape, np.float32)


def mm(s):
    x = normal(s["k"], s["m"]).T if s["tx"] else normal(s["m"], s["k"])
    w = normal(s["n"], s["k"]).T if s["tw"] else normal(s["k"], s["n"])
    out = np.empty((s["m"], s["n"]), np.float32)  # not new memory each time
    return {"openblas": lambda: lambda: np.matmul(x, w, out)}


def linear(s):
    x, w, b = normal(s["m"], s["k"]), normal(s["k"], s["n"]), np.zeros(s["n"], np.float32)
    out = np.empty((s["m"], s["n"]), np.float32)

    def work():
        np.matmul(x, w, out)
        np.add(out, b, out)

    return {"openblas": lambda: work}


def start(s, policy):
    make = {"mm": mm, "linear": linear}.get(s["kind"])
    return make(s) if make and policy == "float32" else {}


if __name__ == "__main__":
    blas = np.show_config("dicts")["Build Dependencies"]["blas"]
    peer.serve(f"{np.__version__} with {blas['name']} {blas['version']}", start)
