"""Writes golden.json here and in ../../testdata: requests as the clients that people have send them, with the answers
of mezzo-serve, which the clients have read and found right.

    go run ./cmd/mezzo-serve
    python testdata/record.py

Not run by tests. Needs numpy, tritonclient[all], tensorflow, tensorflow-serving-api, grpcio-health-checking and curl.
"""
import base64
import http.server
import json
import os
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent import futures

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

x, y = np.array([1, 2, 5], np.float32), np.array([2.5, 3, 4.5], np.float32)
recorded = {"grpc": [], "http": []}
client = ""  # whose request it is


def text(b):
    return base64.b64encode(b).decode()


class Forward(grpc.GenericRpcHandler):
    channel = grpc.insecure_channel("127.0.0.1:8500")

    def service(self, details):
        def forward(request, context):
            one = {"client": client, "method": details.method, "request": text(request)}
            recorded["grpc"].append(one)
            try:
                answer = self.channel.unary_unary(details.method)(request, timeout=10)
            except grpc.RpcError as e:
                one["code"], one["message"] = e.code().name, e.details()
                context.abort(e.code(), e.details())
            one["answer"] = text(answer)
            return answer
        return grpc.unary_unary_rpc_method_handler(forward)


class ForwardHTTP(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {k: v for k, v in self.headers.items() if k not in ("Host", "User-Agent", "Content-Length", "Connection", "Accept")}
        q = urllib.request.Request("http://127.0.0.1:8501" + self.path, body or None, headers, method=self.command)
        try:
            r = urllib.request.urlopen(q)
        except urllib.error.HTTPError as e:
            r = e
        answer = r.read()
        kept = {k: v for k, v in r.headers.items() if k in ("Content-Type", "Inference-Header-Content-Length")}
        recorded["http"].append({"client": client, "method": self.command, "path": self.path, "headers": headers, "request": text(body),
                                 "status": r.status, "answer_headers": kept, "answer": text(answer)})
        self.send_response(r.status)
        for k, v in kept.items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *args):
        pass


server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Forward()])
rpc = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
rest_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), ForwardHTTP)
rest = f"127.0.0.1:{rest_server.server_port}"
threading.Thread(target=rest_server.serve_forever, daemon=True).start()

for kind, address, client in ((triton, rpc, "tritonclient.grpc"), (triton_http, rest, "tritonclient.http")):
    c = kind.InferenceServerClient(address)
    assert c.is_server_live() and c.is_server_ready() and c.is_model_ready("half_plus_two") and not c.is_model_ready("other")
    assert c.get_server_metadata() and c.get_model_metadata("half_plus_two")
    for options in ({}, {"binary_data": False}) if kind is triton_http else ({},):
        i = kind.InferInput("x", [3], "FP32")
        i.set_data_from_numpy(x, **options)
        r = c.infer("half_plus_two", [i], outputs=[kind.InferRequestedOutput("y", **options)], model_version="1", request_id="7")
        assert np.array_equal(r.as_numpy("y"), y)
    assert np.array_equal(c.infer("half_plus_two", [i]).as_numpy("y"), y)
    i = kind.InferInput("x", [1, 3], "FP32")
    i.set_data_from_numpy(x[None])
    try:
        c.infer("half_plus_two", [i])
        raise SystemExit("no error")
    except InferenceServerException as e:
        assert "got shape [1 3], want [-1]" in str(e), e

client = "tensorflow-serving-api"
channel = grpc.insecure_channel(rpc)
serving = prediction_service_pb2_grpc.PredictionServiceStub(channel)
proto = TensorProto(dtype="DT_FLOAT", float_val=x)
proto.tensor_shape.CopyFrom(tf.TensorShape([3]).as_proto())
for tensor, want in ((tf.make_tensor_proto(x), y), (proto, y), (tf.make_tensor_proto(0.5, shape=[3]), [2.25] * 3),
                     (tf.make_tensor_proto(x[None]), None), (tf.make_tensor_proto(x.astype(np.float64)), None)):
    q = predict_pb2.PredictRequest(output_filter=["y"])
    q.model_spec.name, q.model_spec.version.value, q.model_spec.signature_name = "half_plus_two", 1, "serving_default"
    q.inputs["x"].CopyFrom(tensor)
    try:
        assert np.array_equal(tf.make_ndarray(serving.Predict(q).outputs["y"]), want)
    except grpc.RpcError as e:
        assert want is None and e.code().name == "INVALID_ARGUMENT"
q = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
q.model_spec.name = "half_plus_two"
assert serving.GetModelMetadata(q).metadata["signature_def"].Is(get_model_metadata_pb2.SignatureDefMap.DESCRIPTOR)
q = get_model_status_pb2.GetModelStatusRequest()
q.model_spec.name = "half_plus_two"
assert model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(q).model_version_status[0].state == 30
client = "grpcio-health-checking"
assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status == 1

client = "curl"
for path, body, want in (("/v1/models/half_plus_two:predict", '{"instances": [1.0, 2.0, 5.0]}', '{"predictions":[2.5,3.0,4.5]}'),
                         ("/v1/models/half_plus_two", None, None), ("/v1/models/half_plus_two/metadata", None, None)):
    got = subprocess.run(["curl", "-s"] + (["-d", body] if body else []) + [f"http://{rest}{path}"], capture_output=True, check=True).stdout.decode()
    assert want is None or got == want

here = os.path.dirname(os.path.abspath(__file__))
for kind, to in (("grpc", here), ("http", os.path.join(here, "..", "..", "testdata"))):
    with open(os.path.join(to, "golden.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(one) for one in recorded[kind]) + "\n]\n")
    print(kind, len(recorded[kind]), "requests")
