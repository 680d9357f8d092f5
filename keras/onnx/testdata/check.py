"""Compares ONNX Runtime with Mezzo on exported models.

    go test ./keras/onnx -run 'TestExport' -export DIR
    python keras/onnx/testdata/check.py DIR [TOLERANCE]

DIR/manifest.json lists the files, and for each of them calls with inputs and the
outputs of Mezzo. Each file must pass onnx.checker with full_check. The difference of an
output is relative to its largest element.
"""
import json, os, sys
import ml_dtypes, numpy as np, onnx, onnxruntime as ort

ort.set_default_logger_severity(4)
folder = sys.argv[1]
tolerance = float(sys.argv[2]) if len(sys.argv) > 2 else 1e-6


def array(a):
    d = {"bfloat16": ml_dtypes.bfloat16}.get(a["DType"]) or np.dtype(a["DType"])
    return np.fromfile(os.path.join(folder, a["File"]), d).reshape(a["Shape"])


worst, failed, equal, total = (0, ""), 0, 0, 0
for m in json.load(open(os.path.join(folder, "manifest.json"))):
    path = os.path.join(folder, m["File"])
    total += 1
    try:
        onnx.checker.check_model(path, full_check=True)
        s = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        diff = 0.0
        for r in m["Runs"]:
            got = s.run(None, {x["Name"]: array(x) for x in r["In"]})
            for y, want in zip(got, r["Out"], strict=True):
                want = array(want)
                assert y.shape == want.shape, f"shape {y.shape}, want {want.shape}"
                assert y.dtype == want.dtype, f"type {y.dtype}, want {want.dtype}"
                y, want = y.astype(np.float64), want.astype(np.float64)
                assert (np.isfinite(y) == np.isfinite(want)).all(), "infinities or NaN differ"
                y, want = y[np.isfinite(want)], want[np.isfinite(want)]
                if y.size:
                    diff = max(diff, np.abs(y - want).max() / max(np.abs(want).max(), 1e-30))
        equal += diff == 0
        worst = max(worst, (diff, m["Name"]))
        if not diff <= max(tolerance, m["Tolerance"]):
            failed += 1
            print("DIFFERS", m["Name"], diff)
    except Exception as e:
        failed += 1
        print("FAILED", m["Name"], str(e).replace("\n", " ")[:300])
print(f"{total} files, {failed} failed, {equal} with the same bits, largest difference {worst[0]:.2g} ({worst[1]})")
sys.exit(failed > 0)
