"""ONNX Runtime's side of examples/bench: predictions in float32, and with -int8 those of
quantize_static with the input as the data for calibration, or of quantize_dynamic. See
peer.py and README.md.

    python onnxruntime_peer.py THREADS
"""
import sys

import onnxruntime

import onnx_files
import peer


class Once:
    """Data for calibration: one batch."""

    def __init__(self, x):
        self.left = [x]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantized(path, x, kind, weights):
    from onnxruntime.quantization import QuantFormat, QuantType, quant_pre_process, quantize_dynamic, quantize_static

    prepared, out = path + ".prepared.onnx", path + ".int8.onnx"
    quant_pre_process(path, prepared)
    if kind == "dynamic":
        quantize_dynamic(prepared, out, per_channel=True, weight_type=QuantType[weights])
        return out
    quantize_static(prepared, out, Once(x), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8, weight_type=QuantType[weights])
    return out


def start(s, policy):
    if s["kind"] != "predict" or policy != "float32":
        return {}

    def setting(spin, weights="QInt8"):
        def build():
            path, x = onnx_files.export(s)
            if s.get("int8"):
                path = quantized(path, x, s["int8"], weights)
            o = onnxruntime.SessionOptions()
            o.intra_op_num_threads = int(sys.argv[1])
            o.add_session_config_entry("session.intra_op.allow_spinning", spin)
            run = onnxruntime.InferenceSession(path, o, providers=["CPUExecutionProvider"])
            return lambda: run.run(None, x)

        return build

    settings = {"spinning": setting("1"), "waiting": setting("0")}
    if s.get("int8"):
        settings["uint8 weights"] = setting("1", "QUInt8")
    return settings


if __name__ == "__main__":
    peer.serve(onnxruntime.__version__, start)
