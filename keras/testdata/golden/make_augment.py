"""augment.json: image augmentation with given random numbers.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_augment.py (see README.md).

Random numbers are not portable. Layers whose factors are points are called as they are. Others get the transformation that they
would draw: `addition`, `threshold` (Solarization), `hue`, `shear` (x, y), `end` (corners of RandomPerspective, x and y), `noise`
(RandomElasticTransform, down and across), `weight` and `order` (MixUp), `box` (x0, x1, y0, y1 of CutMix and RandomErasing).
"""

from common import case, keras, np, rand, tf, uniform, write

cases = []
first = lambda x: np.ascontiguousarray(x.transpose(0, 3, 1, 2))
P = np.round(uniform(3, 2, 6, 7, 3, high=255), 0)  # pixels
U = uniform(4, 2, 6, 7, 3)  # from 0 to 1
G = np.round(uniform(5, 2, 5, 8, 1, high=255), 1)  # one channel
S = rand(6, 2, 6, 7, 3, scale=0.4)  # about 0
FLAT = np.concatenate([np.full((1, 4, 4, 2), 17.0), np.round(uniform(7, 1, 4, 4, 2, high=9))]).astype(np.float32)
POINT = np.full((2, 4, 5, 3), 0.5, np.float32)


def layer_of(cls, args):
    keras.utils.clear_session()
    return getattr(keras.layers, cls)(**args)


def add(name, cls, args, x, training=True):
    y = layer_of(cls, args)(x, training=training)
    cases.append(case(name, {"class_name": cls, "training": training, **args}, {"y": y}, {"x": x}))


def given(name, cls, args, x, transformation, draws, **more):
    y = layer_of(cls, args).transform_images(keras.ops.convert_to_tensor(x), transformation)
    cases.append(case(name, {"class_name": cls, **args}, {"y": y, **more}, {"x": x, **draws}))


CF = {"data_format": "channels_first"}
for tag, x, r in (("bytes", P, (0, 255)), ("unit", U, (0, 1)), ("signed", np.clip(S, -1, 1), (-1, 1))):
    v = {"value_range": r}
    add("contrast_" + tag, "RandomContrast", {"factor": (0.0, 0.0), **v}, x)
    add("brightness_" + tag, "RandomBrightness", {"factor": (0.3, 0.3), **v}, x)
    add("degeneration_" + tag, "RandomColorDegeneration", {"factor": (0.3, 0.3), **v}, x)
    add("autocontrast_" + tag, "AutoContrast", v, x)
    add("posterization_" + tag, "RandomPosterization", {"factor": (3, 3), **v}, x)
    add("sharpness_" + tag, "RandomSharpness", {"factor": (0.9, 0.9), **v}, x)
    add("blur_" + tag, "RandomGaussianBlur", {"factor": (1.0, 1.0), "sigma": (0.7, 0.7), **v}, x)
    add("clahe_" + tag, "ContrastLimitedAdaptiveHistogramEqualization", {"tile_grid_size": (2, 3), **v}, x)
    if tag != "signed":  # pixels at the edges of bins are rounded differently there
        add("equalization_" + tag, "Equalization", v, x)
    for a, t in ((0, 128), (90, 70)):
        d = {"addition": np.array([a, a + 30], np.float32), "threshold": np.array([t, t + 60], np.float32)}
        given("solarization_%s_%d" % (tag, a), "Solarization", v, x,
              {"additions": d["addition"].reshape(2, 1, 1, 1), "thresholds": d["threshold"].reshape(2, 1, 1, 1)}, d)
    hue = np.array([0.3, -0.45], np.float32)
    given("hue_" + tag, "RandomHue", {"factor": 0.5, **v}, x, {"factor": keras.ops.convert_to_tensor(hue)}, {"hue": hue})
add("degeneration_more", "RandomColorDegeneration", {"factor": (-0.5, -0.5)}, P)
add("degeneration_first", "RandomColorDegeneration", {"factor": (1.0, 1.0), **CF}, first(P))
add("degeneration_gray", "RandomColorDegeneration", {"factor": (0.5, 0.5)}, G)
add("autocontrast_flat", "AutoContrast", {}, FLAT)
add("autocontrast_inference", "AutoContrast", {}, P, training=False)
add("equalization_gray", "Equalization", {}, G)
add("equalization_bins", "Equalization", {"bins": 11}, P)
add("equalization_flat", "Equalization", {}, FLAT[:1])
add("equalization_first", "Equalization", CF, first(P))
add("equalization_inference", "Equalization", {}, P, training=False)
add("posterization_1", "RandomPosterization", {"factor": (1, 1)}, P)
add("posterization_8", "RandomPosterization", {"factor": (8, 8)}, G)
add("posterization_first", "RandomPosterization", {"factor": (2, 2), **CF}, first(P))
add("sharpness_blur", "RandomSharpness", {"factor": (0.1, 0.1)}, G)
add("sharpness_first", "RandomSharpness", {"factor": (0.8, 0.8), **CF}, first(P))
add("blur_5", "RandomGaussianBlur", {"factor": (1.0, 1.0), "kernel_size": 5, "sigma": (1.0, 1.0)}, G)
add("blur_first", "RandomGaussianBlur", {"factor": (1.0, 1.0), "kernel_size": 7, "sigma": (0.4, 0.4), **CF}, first(P))
add("blur_none", "RandomGaussianBlur", {"factor": (0.0, 0.0), "value_range": (20, 200)}, P)
for f in (0.2, 0.5, 0.8, -0.5):
    add("saturation_%s" % f, "RandomSaturation", {"factor": (f, f)}, P)
add("saturation_unit", "RandomSaturation", {"factor": (0.7, 0.7), "value_range": (0, 1)}, U)
add("saturation_first", "RandomSaturation", {"factor": (0.3, 0.3), **CF}, first(P))
add("saturation_gray", "RandomSaturation", {"factor": (0.7, 0.7)}, POINT)
given("hue_first", "RandomHue", {"factor": 0.5, **CF}, first(P), {"factor": keras.ops.convert_to_tensor(hue)}, {"hue": hue})
given("hue_gray", "RandomHue", {"factor": 0.5}, POINT, {"factor": keras.ops.convert_to_tensor(hue)}, {"hue": hue})
add("jitter", "RandomColorJitter", {"brightness_factor": (0.2, 0.2), "contrast_factor": (0.0, 0.0), "saturation_factor": (0.4, 0.4)}, P)
add("jitter_none", "RandomColorJitter", {}, P)
for grid, limit in (((1, 1), 4.0), ((8, 8), 2.0), ((2, 2), 0.0), ((3, 2), 40.0)):
    add("clahe_%d_%d_%g" % (*grid, limit), "ContrastLimitedAdaptiveHistogramEqualization", {"tile_grid_size": grid, "clip_limit": limit},
        uniform(8, 1, 9, 10, 2, high=255, digits=1))
add("clahe_first", "ContrastLimitedAdaptiveHistogramEqualization", {"tile_grid_size": (2, 3), **CF}, first(P))
add("clahe_inference", "ContrastLimitedAdaptiveHistogramEqualization", {"tile_grid_size": (3, 3)}, P, training=False)

shear = np.array([[0.3, -0.2], [-0.9, 0.0]], np.float32)
for fill in ("reflect", "wrap", "constant", "nearest"):
    for how in ("nearest", "bilinear"):
        args = {"x_factor": 0.5, "y_factor": 0.5, "fill_mode": fill, "interpolation": how, "fill_value": 9.0}
        given("shear_%s_%s" % (fill, how), "RandomShear", args, P, {"shear_factor": keras.ops.convert_to_tensor(shear)}, {"shear": shear})
given("shear_first", "RandomShear", {"x_factor": 0.5, **CF}, first(P), {"shear_factor": keras.ops.convert_to_tensor(shear)}, {"shear": shear})

for how in ("nearest", "bilinear"):
    for tag, x, fmt in (("", P, {}), ("_first", first(P), CF)):
        start = np.array([[0, 0], [6, 0], [0, 5], [6, 5]], np.float32)
        move = np.array([[[0.2, 0.4], [0.11, 0.3], [0.4, -0.23], [-0.17, 0.28]], [[0, 0], [-0.37, 0.1], [0.4, 0.43], [0.19, -0.3]]], np.float32)
        end = (start + start * move).astype(np.float32)
        t = {"apply_perspective": tf.constant([True, True]), "start_points": np.stack([start, start]), "end_points": end}
        given("perspective_%s%s" % (how, tag), "RandomPerspective", {"interpolation": how, "fill_value": 7.0, **fmt}, x, t, {"end": end})

normal = tf.random.stateless_normal
for fill in ("reflect", "wrap", "constant", "nearest"):
    for how in ("nearest", "bilinear"):
        for scale in (0.4, 1.0):
            x = np.round(uniform(9, 2, 21, 22, 1, high=255), 0)
            noise = [rand(10, 2, 21, 22, digits=2), rand(11, 2, 21, 22, digits=2)]
            todo = [tf.constant(noise[1]), tf.constant(noise[0])]  # across comes first
            tf.random.stateless_normal = lambda *a, **k: todo.pop(0)
            args = {"fill_mode": fill, "interpolation": how, "fill_value": 3.0, "scale": (scale, scale)}
            t = {"apply_transform": tf.constant([True, True]), "distortion_factor": scale, "seed": 1}
            if fill == "reflect" or (scale, how) == (1.0, "bilinear"):
                given("elastic_%s_%s_%g" % (fill, how, scale), "RandomElasticTransform", args, x, t, {"noise": np.stack(noise)})
tf.random.stateless_normal = normal

X = rand(12, 3, 4, 5, 2)
Y = np.eye(4, dtype=np.float32)[[1, 3, 0]]
weight, order = np.array([0.25, 1.0, 0.6], np.float32), np.array([2, 0, 1])
t = {"mix_weight": tf.constant(weight), "permutation_order": order}
given("mixup", "MixUp", {}, X, t, {"labels": Y, "weight": weight, "order": order}, labels=layer_of("MixUp", {}).transform_labels(tf.constant(Y), t))
box = np.array([[0.5, 3.2, 1.0, 2.0], [0, 5, 0, 4], [1.1, 1.1, 0.3, 3.9]], np.float32)
for tag, x, fmt in (("", X, {}), ("_first", first(X), CF)):
    l = layer_of("CutMix", fmt)
    masks, w = l._generate_batch_mask(x.shape, tuple(tf.constant(box[:, i]) for i in range(4)))
    t = {"permutation_order": order, "batch_masks": masks, "mix_weight": w}
    given("cutmix" + tag, "CutMix", fmt, x, t, {"labels": Y, "box": box, "order": order}, labels=l.transform_labels(tf.constant(Y), t))
    for name, fill in (("", 0.5), ("_channels", [0.25, -0.5])):
        f = fill if name == "" else np.reshape(fill, (2, 1, 1) if fmt else (2,)) * np.ones(x.shape, np.float32)
        t = {"apply_erasing": tf.constant([True, True, False]), "batch_masks": masks, "fill_value": tf.constant(f, tf.float32)}
        given("erasing" + tag + name, "RandomErasing", {"fill_value": fill, "value_range": (-1, 1), **fmt}, x, t, {"box": box})
write("augment.json", cases)
