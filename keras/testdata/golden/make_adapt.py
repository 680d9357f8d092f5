"""adapt.json: bin boundaries that Discretization learns.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_adapt.py (see README.md).

`x0`, `x1`, ... are given one after the other, in update_state; `y` are the boundaries.
"""

from common import case, keras, np, rand, write

cases = []


def add(name, args, *batches):
    layer = keras.layers.Discretization(**args)
    layer.reset_state()
    for b in batches:
        layer.update_state(b)
    layer.finalize_state()
    cases.append(case(name, {"class_name": "Discretization", **args}, {"y": np.array(layer.bin_boundaries, np.float32)},
                      {"x%d" % i: b for i, b in enumerate(batches)}))


add("docstring", {"num_bins": 4}, np.array([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]], np.float32))
add("few", {"num_bins": 10}, np.array([1.0, 5.0, 2.0], np.float32))
add("hundred", {"num_bins": 7}, rand(1, 100))
add("many", {"num_bins": 5}, rand(2, 433, 3))
add("batches", {"num_bins": 6, "epsilon": 0.05}, rand(3, 70), rand(4, 130, scale=3), rand(5, 33))
add("coarse", {"num_bins": 3, "epsilon": 0.3}, rand(6, 50), rand(7, 51))
write("adapt.json", cases)
