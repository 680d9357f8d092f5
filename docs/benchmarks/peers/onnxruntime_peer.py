"""ONNX Runtime's side of examples/bench: predictions in float32. See peer.py and README.md.

    python onnxruntime_peer.py THREADS
"""
import sys

import onnxruntime

import onnx_files
import peer


def start(s, policy):
    if s["kind"] != "predict" or policy != "float32":
        return {}

    def setting(spin):
        def build():
            path, x = onnx_files.export(s)
            o = onnxruntime.SessionOptions()
            o.intra_op_num_threads = int(sys.argv[1])
            o.add_session_config_entry("session.intra_op.allow_spinning", spin)
            run = onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])
            return lambda: run.run(None, x)

        return build

    return {"spinning": setting("1"), "waiting": setting("0")}


if __name__ == "__main__":
    peer.serve(onnxruntime.__version__, start)
