"""inits.json: limits and standard deviations of the initializers, from their arguments and fans (not from samples).

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_inits.py (see README.md).

outputs: fan_in, fan_out; for uniform kinds "limit" (low = -limit), "stddev" of the resulting values; for normal kinds "sigma" (of the
parent normal), "bound" (values lie in [-bound, bound]; absent if untruncated), "stddev" of the resulting values. Constant kinds give "value".
Keras's own samples are checked against these numbers when the script runs.
"""

import math

from common import case, keras, np, write

# Standard deviation of a unit normal truncated at two sigma.
TRUNCATED = math.sqrt(1 - 2 * 2 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2)))
cases = []
SHAPES = [(64, 32), (3, 3, 8, 16), (40,)]


def describe(init, shape):
    cfg = init.get_config()
    if isinstance(init, keras.initializers.VarianceScaling):
        fan_in, fan_out = keras.src.initializers.random_initializers.compute_fans(shape)
        n = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[init.mode]
        s = init.scale / max(1.0, n)
        out = {"fan_in": fan_in, "fan_out": fan_out}
        if init.distribution == "uniform":
            limit = math.sqrt(3 * s)
            return {**out, "limit": limit, "stddev": limit / math.sqrt(3)}
        if init.distribution == "untruncated_normal":
            return {**out, "sigma": math.sqrt(s), "stddev": math.sqrt(s)}
        sigma = math.sqrt(s) / 0.87962566103423978
        return {**out, "sigma": sigma, "bound": 2 * sigma, "stddev": sigma * TRUNCATED}
    name = type(init).__name__
    if name == "RandomUniform":
        return {"limit": cfg["maxval"], "stddev": cfg["maxval"] / math.sqrt(3)}
    if name == "RandomNormal":
        return {"sigma": cfg["stddev"], "stddev": cfg["stddev"]}
    if name == "TruncatedNormal":
        return {"sigma": cfg["stddev"], "bound": 2 * cfg["stddev"], "stddev": cfg["stddev"] * TRUNCATED}
    return {"value": {"Zeros": 0.0, "Ones": 1.0}[name] if name != "Constant" else cfg["value"]}


def add(name, cls, args=None):
    args = args or {}
    for shape in SHAPES:
        init = keras.initializers.get(name) if not args else getattr(keras.initializers, cls)(**args)
        assert type(init).__name__ == cls, (name, type(init).__name__)
        out = describe(init, shape)
        v = np.asarray(init(shape))
        if "value" in out:
            assert (v == np.float32(out["value"])).all()
        else:
            top = out.get("limit", out.get("bound", math.inf))
            # The spread of a sample deviation over n values is about stddev/sqrt(2n); five times that.
            assert np.abs(v).max() <= top * (1 + 1e-6) and abs(v.std() / out["stddev"] - 1) < 5 / math.sqrt(2 * v.size), (name, shape)
        label = name if not args else cls + "/" + "/".join("%s=%s" % kv for kv in args.items())
        cases.append(case("%s/%s" % (label, "x".join(map(str, shape))), {"class_name": cls, "alias": name, **args, "shape": list(shape)},
                          {k: float(x) for k, x in out.items()}))


for name, cls in (("glorot_uniform", "GlorotUniform"), ("glorot_normal", "GlorotNormal"), ("he_uniform", "HeUniform"),
                  ("he_normal", "HeNormal"), ("lecun_uniform", "LecunUniform"), ("lecun_normal", "LecunNormal"),
                  ("variance_scaling", "VarianceScaling"), ("random_uniform", "RandomUniform"), ("uniform", "RandomUniform"),
                  ("random_normal", "RandomNormal"), ("normal", "RandomNormal"), ("truncated_normal", "TruncatedNormal"),
                  ("zeros", "Zeros"), ("ones", "Ones")):
    add(name, cls)
for dist in ("uniform", "truncated_normal", "untruncated_normal"):
    for mode in ("fan_in", "fan_out", "fan_avg"):
        add("variance_scaling", "VarianceScaling", {"scale": 0.5, "mode": mode, "distribution": dist})
add("constant", "Constant", {"value": 0.3})
add("random_uniform", "RandomUniform", {"minval": -0.2, "maxval": 0.2})
add("truncated_normal", "TruncatedNormal", {"mean": 0.0, "stddev": 0.1})

for shape in ((4, 4), (3, 5)):
    cases.append(case("identity/%dx%d" % shape, {"class_name": "Identity", "gain": 2.0, "shape": list(shape)},
                      {"w": np.asarray(keras.initializers.Identity(gain=2.0)(shape))}))

# Keras computes the angles in float32.
for args in ({}, {"side": "imag"}, {"window": "hamming", "scaling": "spectrum", "periodic": True}, {"side": "imag", "window": None}):
    cases.append(case("stft/" + "/".join(map(str, args.values())), {"class_name": "STFT", **{k: "none" if v is None else v for k, v in args.items()},
                      "shape": [12, 1, 9]}, {"kernel": np.asarray(keras.initializers.STFT(**args)((12, 1, 9)))}))
for window in ("hann", "hamming", "blackman", "nuttall", "blackmanharris", "flattop", "boxcar"):
    cases.append(case("window/" + window, {"class_name": "STFT", "window": window, "scaling": "none", "shape": [9, 1, 6]},
                      {"kernel": np.asarray(keras.initializers.STFT(window=window, scaling=None)((9, 1, 6)))}))

write("inits.json", cases)
