"""Asks mezzo-serve with the gRPC clients that people have, and compares with Keras and with HTTP:

    python ../testdata/model.py DIR
    go run ./cmd/mezzo-serve -keep 2 m=DIR/m
    python testdata/clients.py DIR [127.0.0.1:8500 [127.0.0.1:8501]]

Not run by tests. Needs numpy, tritonclient[all], tensorflow, tensorflow-serving-api and grpcio-health-checking.
"""
import json
import sys
import threading
import time
import urllib.request

import grpc
import numpy as np
import tensorflow as tf
import tritonclient.grpc as triton
import tritonclient.http as triton_http
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import (get_model_metadata_pb2, get_model_status_pb2, model_service_pb2_grpc, predict_pb2,
                                     prediction_service_pb2_grpc)
from tritonclient.utils import InferenceServerException

directory, address, http = (sys.argv[1:] + ["127.0.0.1:8500", "127.0.0.1:8501"])[:3]
want = np.load(f"{directory}/expected.npz")
words, numbers = want["words"], want["numbers"]
tolerance = 1e-5  # float32, other order of sums

client = triton.InferenceServerClient(address)
assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready("m") and client.is_model_ready("m", "2") and not client.is_model_ready("other")
print("server  ", client.get_server_metadata(as_json=True))
print("metadata", json.dumps(client.get_model_metadata("m", as_json=True)))


def infer(version="", outputs=("classes", "score"), rows=slice(None), client=client, kind=triton):
    a = kind.InferInput("words", list(words[rows].shape), "INT32")
    a.set_data_from_numpy(words[rows])
    b = kind.InferInput("numbers", list(numbers[rows].shape), "FP32")
    b.set_data_from_numpy(numbers[rows])
    wanted = [kind.InferRequestedOutput(o) for o in outputs] if outputs else None
    return client.infer("m", [b, a], outputs=wanted, model_version=version, request_id="7")


bits = {}
for version in ("", "1", "2"):
    r = infer(version)
    number = r.get_response().model_version
    assert number == (version or "2") and r.get_response().id == "7"
    for o in ("classes", "score"):
        got = r.as_numpy(o)
        assert got.dtype == np.float32 and np.abs(got - want[o + number]).max() < tolerance
        bits[o + number] = got
over_http = triton_http.InferenceServerClient(http)
for o in ("classes", "score"):
    assert np.array_equal(infer(kind=triton_http, client=over_http).as_numpy(o), bits[o + "2"])
print("tritonclient.grpc: Keras's values; versions 1 and 2; the bits of tritonclient.http")
assert set(o.name for o in infer(outputs=None).get_response().outputs) == {"classes", "score"}
r = infer(outputs=("score",))
assert r.as_numpy("classes") is None and r.as_numpy("score").shape == (5, 1)
narrow = triton.InferInput("words", [5, 6], "INT32")
narrow.set_data_from_numpy(words[:, :6].copy())
for bad, code in ((lambda: infer("9"), "NOT_FOUND"), (lambda: infer(outputs=("x",)), "INVALID_ARGUMENT"),
                  (lambda: client.infer("m", [narrow]), "INVALID_ARGUMENT")):
    try:
        bad()
        raise SystemExit("no error")
    except InferenceServerException as e:
        print("triton error:", e)
        assert code in str(e)

channel = grpc.insecure_channel(address)
serving = prediction_service_pb2_grpc.PredictionServiceStub(channel)


def predict(version=0, label="", words=words, numbers=numbers, outputs=(), name="m"):
    q = predict_pb2.PredictRequest(output_filter=outputs)
    q.model_spec.name = name
    if version:
        q.model_spec.version.value = version
    if label:
        q.model_spec.version_label = label
    q.inputs["words"].CopyFrom(words if isinstance(words, TensorProto) else tf.make_tensor_proto(words))
    q.inputs["numbers"].CopyFrom(numbers if isinstance(numbers, TensorProto) else tf.make_tensor_proto(numbers))
    return serving.Predict(q, timeout=10)


for version in (0, 1, 2):
    r = predict(version)
    number = str(version or 2)
    assert r.model_spec.version.value == int(number) and r.model_spec.name == "m"
    for o in ("classes", "score"):
        assert np.array_equal(tf.make_ndarray(r.outputs[o]), bits[o + number])
typed = TensorProto(dtype="DT_FLOAT", float_val=numbers.flatten())
typed.tensor_shape.CopyFrom(tf.TensorShape(numbers.shape).as_proto())
integers = TensorProto(dtype="DT_INT32", int_val=words.flatten())
integers.tensor_shape.CopyFrom(tf.TensorShape(words.shape).as_proto())
assert np.array_equal(tf.make_ndarray(predict(numbers=typed, words=integers).outputs["classes"]), bits["classes2"])
half = predict(numbers=tf.make_tensor_proto(0.5, shape=[5, 3]))
full = predict(numbers=np.full((5, 3), 0.5, np.float32))
assert half.outputs == full.outputs
assert list(predict(outputs=["score"]).outputs) == ["score"]
print("tensorflow-serving-api: the same bits; typed values, and one that stands for all")
for bad, code in ((lambda: predict(9), "NOT_FOUND"), (lambda: predict(name="x"), "NOT_FOUND"), (lambda: predict(outputs=["x"]), "INVALID_ARGUMENT"),
                  (lambda: predict(label="stable"), "NOT_FOUND"), (lambda: predict(numbers=numbers.astype(np.float64)), "INVALID_ARGUMENT")):
    try:
        bad()
        raise SystemExit("no error")
    except grpc.RpcError as e:
        print("TF error:", e.code().name, e.details())
        assert e.code().name == code
q = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
q.model_spec.name = "m"
signatures = get_model_metadata_pb2.SignatureDefMap()
assert serving.GetModelMetadata(q, timeout=10).metadata["signature_def"].Unpack(signatures)
signature = signatures.signature_def["serving_default"]
assert signature.inputs["words"].dtype == tf.int32.as_datatype_enum and signature.outputs["classes"].tensor_shape.dim[1].size == 4
q = get_model_status_pb2.GetModelStatusRequest()
q.model_spec.name = "m"
states = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(q, timeout=10).model_version_status
assert [(s.version, s.state) for s in states] == [(2, 30), (1, 30)], states
health = health_pb2_grpc.HealthStub(channel)
assert health.Check(health_pb2.HealthCheckRequest()).status == 1
assert next(iter(health.Watch(health_pb2.HealthCheckRequest(service="inference.GRPCInferenceService"), timeout=10))).status == 1
print("GetModelMetadata, GetModelStatus and grpc.health.v1: right")

right, lock = 0, threading.Lock()


def many():
    global right
    own = triton.InferenceServerClient(address)
    for i in range(40):
        got = infer(rows=slice(i % 5, i % 5 + 1), client=own).as_numpy("classes")
        if np.abs(got - bits["classes2"][i % 5]).max() < tolerance:
            with lock:
                right += 1


threads = [threading.Thread(target=many) for _ in range(8)]
begun = time.time()
[t.start() for t in threads]
[t.join() for t in threads]
assert right == 320
metrics = urllib.request.urlopen(f"http://{http}/metrics").read().decode()
of = {line.split(" ")[0]: float(line.split(" ")[1]) for line in metrics.splitlines() if line.startswith("mezzo_batch_rows_")}
rows, batches = of['mezzo_batch_rows_sum{model="m",version="2"}'], of['mezzo_batch_rows_count{model="m",version="2"}']
print(f"8 threads, 320 requests: {time.time() - begun:.2f} s, {right} right; all batches so far: {batches:.0f} of {rows / batches:.1f} rows")
