"""OpenVINO's side of examples/bench: predictions. See peer.py and README.md.

    python openvino_peer.py THREADS
"""
import sys

import openvino

import onnx_files
import peer

PRECISIONS = {"float32": "f32", "mixed_bfloat16": "bf16"}


def start(s, policy):
    if s["kind"] != "predict" or policy not in PRECISIONS:
        return {}

    def build():
        path, x = onnx_files.export(s)
        core = openvino.Core()
        model = core.read_model(path)
        model.reshape({n: list(t.shape) for n, t in x.items()})
        how = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": int(sys.argv[1]), "INFERENCE_PRECISION_HINT": PRECISIONS[policy]}
        run = core.compile_model(model, "CPU", how).create_infer_request()
        for n, t in x.items():
            run.set_tensor(n, openvino.Tensor(t, shared_memory=True))
        return lambda: run.infer()

    return {"latency": build}


if __name__ == "__main__":
    peer.serve(openvino.__version__, start)
