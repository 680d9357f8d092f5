"""Reload and SIGTERM under load: no request of tritonclient (HTTP, gRPC) or tensorflow-serving-api fails.

    python ../testdata/model.py DIR
    go build -o mezzo-serve ./cmd/mezzo-serve
    python testdata/drain.py ./mezzo-serve DIR

Clients stop when the server says that it is not ready, as a load balancer makes them. Not run by tests. Needs numpy,
tritonclient[all], tensorflow, tensorflow-serving-api and grpcio-health-checking.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import grpc
import numpy as np
import tensorflow as tf
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

binary, directory = sys.argv[1:]
want = np.load(f"{directory}/expected.npz")
models = tempfile.mkdtemp()
shutil.copytree(f"{directory}/m/1", f"{models}/1")
rest, rpc = "127.0.0.1:8511", "127.0.0.1:8510"
server = subprocess.Popen([binary, "-http", rest, "-grpc", rpc, "-drain", "2s", f"m={models}"])
words, numbers = want["words"][:1], want["numbers"][:1]
health = health_pb2_grpc.HealthStub(grpc.insecure_channel(rpc))
while True:
    try:
        if health.Check(health_pb2.HealthCheckRequest()).status == 1:
            break
    except grpc.RpcError:
        time.sleep(0.1)
stopped, answered, failed, lock = False, {}, [], threading.Lock()


def ask_triton(kind, address):
    client = kind.InferenceServerClient(address)
    a = kind.InferInput("words", [1, 7], "INT32")
    a.set_data_from_numpy(words)
    b = kind.InferInput("numbers", [1, 3], "FP32")
    b.set_data_from_numpy(numbers)

    def ask():
        r = client.infer("m", [a, b])
        response = r.get_response()
        return int(response["model_version"] if isinstance(response, dict) else response.model_version), r.as_numpy("score")
    return ask


def ask_tf():
    stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(rpc))
    q = predict_pb2.PredictRequest()
    q.model_spec.name = "m"
    q.inputs["words"].CopyFrom(tf.make_tensor_proto(words))
    q.inputs["numbers"].CopyFrom(tf.make_tensor_proto(numbers))

    def ask():
        r = stub.Predict(q, timeout=10)
        return r.model_spec.version.value, tf.make_ndarray(r.outputs["score"])
    return ask


def run(make, *args):
    ask = make(*args)
    while not stopped:
        try:
            version, score = ask()
            right = np.abs(score - want[f"score{2 - version % 2}"][0]).max() < 1e-5
            with lock:
                answered[version] = answered.get(version, 0) + 1
                if not right:
                    failed.append(f"version {version}: {score}")
        except Exception as e:
            with lock:
                failed.append(e)


makers = [(ask_triton, triton, rpc), (ask_triton, triton_http, rest), (ask_tf,)] * 3
threads = [threading.Thread(target=run, args=m) for m in makers]
[t.start() for t in threads]
for version in range(2, 8):  # odd ones are version 1, even ones version 2
    time.sleep(1)
    os.makedirs(f"{models}/aside")
    shutil.copy(f"{directory}/m/{2 - version % 2}/model.keras", f"{models}/aside")
    os.rename(f"{models}/aside", f"{models}/{version}")
time.sleep(2)
server.send_signal(signal.SIGTERM)
while health.Check(health_pb2.HealthCheckRequest()).status == 1:
    time.sleep(0.01)
time.sleep(0.5)
stopped = True
[t.join() for t in threads]
print("exit status", server.wait(30))
print(sum(answered.values()), "answers, by version", answered)
print(len(failed), "failed", failed[:3])
assert not failed and len(answered) == 7 and server.returncode == 0
