"""onnxruntime behind uvicorn, with the weights that the benchmark wrote: python peer.py PORT DIR WORKERS THREADS BATCH

uvloop and httptools. /json takes {"instances": rows} and /binary the elements of one row. With BATCH 0 it is an
application of FastAPI, as in its tutorials. Else it is a plain ASGI application, without the cost of a framework: with
BATCH 1 a request is computed in the event loop, else the requests that wait are computed together, in another thread,
as many as BATCH.
"""
import asyncio
import json
import sys

import numpy as np
import onnxruntime
import orjson
import uvicorn
from onnx import TensorProto, checker, helper, numpy_helper

if __name__ == "__main__":
    port, directory, workers, threads, batch = sys.argv[1:]
    import os
    os.environ["PEER"] = f"{directory} {threads} {batch}"
    uvicorn.run("peer:application", port=int(port), workers=int(workers), loop="uvloop", http="httptools", log_level="warning", access_log=False, backlog=2048)
    sys.exit()

import os

directory, threads, batch = os.environ["PEER"].split()
batch = int(batch)


def model():
    units = json.load(open(f"{directory}/units.json"))
    nodes, initializers, x = [], [], "x"
    for i, (a, b) in enumerate(zip(units, units[1:])):
        w = np.fromfile(f"{directory}/{2 * i}.f32", "<f4").reshape(a, b)
        initializers += [numpy_helper.from_array(w, f"w{i}"), numpy_helper.from_array(np.fromfile(f"{directory}/{2 * i + 1}.f32", "<f4"), f"b{i}")]
        nodes.append(helper.make_node("Gemm", [x, f"w{i}", f"b{i}"], [f"g{i}"]))
        last = i == len(units) - 2
        x = "y" if last else f"r{i}"
        nodes.append(helper.make_node("Softmax" if last else "Relu", [f"g{i}"], [x]))
    graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", units[0]])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", units[-1]])], initializers)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(m)
    return m.SerializeToString()


options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(threads)
options.inter_op_num_threads = 1
options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
session = onnxruntime.InferenceSession(model(), options, providers=["CPUExecutionProvider"])
for n in range(1, 65):
    session.run(None, {"x": np.zeros((n, session.get_inputs()[0].shape[1]), np.float32)})

waiting, computing = [], None


async def compute():
    """Computes what waits until nothing does."""
    global computing
    loop = asyncio.get_running_loop()
    while waiting:
        now, waiting[:] = waiting[:batch], waiting[batch:]
        y = await loop.run_in_executor(None, lambda: session.run(None, {"x": np.concatenate([x for x, _ in now])})[0])
        at = 0
        for x, future in now:
            future.set_result(y[at:at + len(x)])
            at += len(x)
    computing = None


async def predict(x):
    global computing
    if batch == 1:
        return session.run(None, {"x": x})[0]
    future = asyncio.get_running_loop().create_future()
    waiting.append((x, future))
    if computing is None:
        computing = asyncio.ensure_future(compute())
    return await future


async def plain(scope, receive, send):
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"] == "/binary":
        y = await predict(np.frombuffer(body, np.float32)[None])
        answer, kind = y.tobytes(), b"application/octet-stream"
    elif scope["path"] == "/json":
        y = await predict(np.array(orjson.loads(body)["instances"], np.float32))
        answer, kind = orjson.dumps({"predictions": y}, option=orjson.OPT_SERIALIZE_NUMPY), b"application/json"
    else:
        answer, kind = b"ready", b"text/plain"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind), (b"content-length", str(len(answer)).encode())]})
    await send({"type": "http.response.body", "body": answer})


application = plain
if batch == 0:
    import fastapi
    import fastapi.responses
    import pydantic

    class Rows(pydantic.BaseModel):
        instances: list[list[float]]

    application = fastapi.FastAPI()

    @application.post("/json")
    def rows(q: Rows):
        return {"predictions": session.run(None, {"x": np.array(q.instances, np.float32)})[0].tolist()}

    @application.post("/binary")
    async def row(q: fastapi.Request):
        y = session.run(None, {"x": np.frombuffer(await q.body(), np.float32)[None]})[0]
        return fastapi.responses.Response(y.tobytes(), media_type="application/octet-stream")

    @application.get("/v2/health/ready")
    def ready():
        return "ready"
