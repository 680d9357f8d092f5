"""Asks a server with the clients that people have, and compares with Keras: see model.py.

Needs numpy and tritonclient[http]. Start the server with -keep 2 to ask both versions.
"""
import json
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

address, directory = sys.argv[1:]
want = np.load(f"{directory}/expected.npz")
words, numbers = want["words"], want["numbers"]
tolerance = 1e-5  # float32, other order of sums

client = triton.InferenceServerClient(address)
assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("m") and client.is_model_ready("m", "2") and not client.is_model_ready("other")
print("server  ", client.get_server_metadata())
print("metadata", client.get_model_metadata("m"))


def infer(binary, version="", outputs=("classes", "score"), rows=slice(None), client=client):
    a = triton.InferInput("words", list(words[rows].shape), "INT32")
    a.set_data_from_numpy(words[rows], binary_data=binary)
    b = triton.InferInput("numbers", list(numbers[rows].shape), "FP32")
    b.set_data_from_numpy(numbers[rows], binary_data=binary)
    wanted = [triton.InferRequestedOutput(o, binary_data=binary) for o in outputs] if outputs else None
    return client.infer("m", [b, a], outputs=wanted, model_version=version, request_id="7")


bits = None
for version in ("", "1", "2"):
    for binary in (True, False):
        r = infer(binary, version)
        number = r.get_response()["model_version"]
        assert number == (version or "2") and r.get_response()["id"] == "7"
        for o in ("classes", "score"):
            got = r.as_numpy(o)
            assert got.dtype == np.float32 and np.abs(got - want[o + number]).max() < tolerance
        if version == "2":
            assert bits is None or np.array_equal(bits, r.as_numpy("classes"))
            bits = r.as_numpy("classes")
print("triton: binary and JSON have the same bits; Keras's values; versions 1 and 2")
r = infer(True, outputs=None)
assert set(o["name"] for o in r.get_response()["outputs"]) == {"classes", "score"}
r = infer(True, outputs=("score",))
assert r.as_numpy("classes") is None and r.as_numpy("score").shape == (5, 1)
for bad, text in ((lambda: infer(True, "9"), "no version 9"), (lambda: infer(True, outputs=("x",)), 'there is no output "x"')):
    try:
        bad()
        raise SystemExit("no error")
    except InferenceServerException as e:
        print("triton error:", e)
        assert text in str(e)


def post(path, body):
    request = urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        return 200, json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


code, r = post("/v1/models/m:predict", {"instances": [{"words": w.tolist(), "numbers": n.tolist()} for w, n in zip(words, numbers)]})
assert code == 200, r
assert np.array_equal(np.array([p["classes"] for p in r["predictions"]], np.float32), bits)
code, r = post("/v1/models/m/versions/1:predict", {"inputs": {"words": words.tolist(), "numbers": numbers.tolist()}})
assert code == 200 and np.abs(np.array(r["outputs"]["score"]) - want["score1"]).max() < tolerance
code, r = post("/v1/models/m:predict", {"inputs": {"words": words.tolist(), "numbers": (numbers * np.nan).tolist()}})
assert code == 200 and np.isnan(r["outputs"]["score"]).all()
print("TF Serving REST: rows, columns, NaN: the same bits")
print(post("/v1/models/m:predict", {"instances": [1]}), post("/v1/models/other:predict", {"instances": [1]}))
print(json.load(urllib.request.urlopen(f"http://{address}/v1/models/m")))

right, lock = 0, threading.Lock()


def many():
    global right
    own = triton.InferenceServerClient(address)  # its greenlets are for one thread
    for i in range(40):
        got = infer(True, rows=slice(i % 5, i % 5 + 1), client=own).as_numpy("classes")
        if np.abs(got - bits[i % 5]).max() < tolerance:
            with lock:
                right += 1


threads = [threading.Thread(target=many) for _ in range(8)]
begun = time.time()
[t.start() for t in threads]
[t.join() for t in threads]
print(f"8 threads, 320 requests: {time.time() - begun:.2f} s, {right} right")
assert right == 320
