"""Writes the files that the tests read, with h5py. Run it in this directory."""

import gzip
import io

import h5py
import ml_dtypes
import numpy as np


def save(name, fill, **options):
    f = io.BytesIO()
    with h5py.File(f, "w", **options) as h:
        fill(h)
    with open(name + ".gz", "wb") as out:
        out.write(gzip.compress(f.getvalue(), mtime=0))


def types(h):
    values = np.array([[0, 1, 2.5], [-3, 0.1, 5]])
    for t in ["float16", "float32", "float64", ">f4", ">f8"]:
        h["floats/" + t] = values.astype(t)
    for t in ["int32", "int64", "uint8", "uint32", ">i4"]:
        h["integers/" + t] = np.array([0, 1, 2, 200]).astype(t)
    d = h.create_dataset("bfloat16", data=values.astype(ml_dtypes.bfloat16))
    d.attrs["dtype"] = "bfloat16"
    h["bool"] = np.array([True, False, True])
    h["scalar"] = np.float32(7)
    h["empty"] = np.zeros((0, 3), "float32")
    h.attrs["text"] = "grün"
    h.attrs["nothing"] = ""
    h.attrs["list"] = np.array(["a", "", "ccc"], dtype=h5py.string_dtype())
    h.attrs["fixed"] = np.array([b"ab", b"c"])
    h.attrs["number"] = np.int32(5)
    h.create_group("deep/er/and/deeper")


def many(h):
    for i in range(1200):  # a B-tree of three levels
        h[f"d{i}"] = np.int32(i)


def chunked(h):
    h.create_dataset("c", data=np.zeros(100), chunks=(10,), compression="gzip")


def soft(h):
    h["a"] = np.int32(1)
    h["b"] = h5py.SoftLink("/a")


def hard(h):
    h["a/b"] = np.int32(1)
    h["a/c"] = h["a"]


def external(h):
    h["a"] = h5py.ExternalLink("other.h5", "/a")


save("types.h5", types)
save("latest.h5", types, libver="latest")
save("many.h5", many)
save("chunked.h5", chunked)
save("soft.h5", soft)
save("cycle.h5", hard)
save("external.h5", external)
