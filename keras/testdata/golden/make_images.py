"""images.json: resizing, cropping, and affine maps of images.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_images.py (see README.md).

Random numbers are not portable, so random layers are called with given transformations: `transform` are rows of
ops.image.affine_transform, class affine; what RandomRotation, RandomZoom and RandomTranslation make of `angle`, `zoom` (height, width)
and `shift` (height, width, as shares of the image) is class rotation, zoom, translation.
"""

from common import case, keras, np, rand, write

cases = []
X = rand(1, 2, 5, 7, 2)
Y = rand(2, 1, 12, 9, 1)


def add(name, cls, args, x, **call):
    keras.utils.clear_session()
    cases.append(case(name, {"class_name": cls, **args, **call}, {"y": getattr(keras.layers, cls)(**args)(x, **call)}, {"x": x}))


for how in ("nearest", "bilinear", "bicubic", "area", "lanczos3", "lanczos5"):
    for antialias in (False, True):
        for tag, x, h, w in (("up", X, 9, 13), ("down", Y, 5, 4)):
            add("resizing_%s_%s%s" % (how, tag, "_antialias" * antialias), "Resizing",
                {"height": h, "width": w, "interpolation": how, "antialias": antialias}, x)
add("resizing_crop", "Resizing", {"height": 4, "width": 8, "crop_to_aspect_ratio": True}, X)
add("resizing_crop_rows", "Resizing", {"height": 8, "width": 3, "crop_to_aspect_ratio": True}, X)
add("resizing_pad", "Resizing", {"height": 6, "width": 6, "pad_to_aspect_ratio": True, "fill_value": 0.5}, X)
add("resizing_pad_columns", "Resizing", {"height": 4, "width": 12, "pad_to_aspect_ratio": True, "interpolation": "nearest"}, X)
add("resizing_first", "Resizing", {"height": 7, "width": 3, "data_format": "channels_first"}, np.ascontiguousarray(X.transpose(0, 3, 1, 2)))
add("center_crop", "CenterCrop", {"height": 3, "width": 4}, X)
add("center_crop_first", "CenterCrop", {"height": 2, "width": 6, "data_format": "channels_first"}, np.ascontiguousarray(X.transpose(0, 3, 1, 2)))
add("center_crop_small", "CenterCrop", {"height": 8, "width": 6}, X)
# While training, images that are larger in both directions are cropped at random; the others are not.
CROP = {"height": 4, "width": 3}
for tag, shape in (("larger", (6, 5)), ("higher", (7, 2)), ("wider", (2, 9)), ("smaller", (3, 2)), ("as_high", (4, 8)), ("equal", (4, 3))):
    x = rand(3, 1, *shape, 2)
    for training in (False, True):
        if training and tag == "larger":
            continue
        add("random_crop_%s%s" % (tag, "_training" * training), "RandomCrop", CROP, x, training=training)
        add("random_crop_%s_first%s" % (tag, "_training" * training), "RandomCrop", {**CROP, "data_format": "channels_first"},
            np.ascontiguousarray(x.transpose(0, 3, 1, 2)), training=training)

T = np.array([[1.1, 0.3, -1.7, -0.2, 0.9, 2.3, 0, 0], [-0.8, 2.5, 9.3, 1.9, 0.7, -14.6, 0, 0]], np.float32)
for fill in ("reflect", "wrap", "constant", "nearest"):
    for how in ("nearest", "bilinear"):
        y = keras.ops.image.affine_transform(X, T, interpolation=how, fill_mode=fill, fill_value=0.25, data_format="channels_last")
        cases.append(case("affine_%s_%s" % (fill, how), {"class_name": "affine", "fill_mode": fill, "interpolation": how, "fill_value": 0.25},
                          {"y": y}, {"x": X, "transform": T}))

angle = np.array([30.0, -100.0], np.float32)
layer = keras.layers.RandomRotation(0.5)
zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
m = layer._compute_affine_matrix(0.5, 0.5, keras.ops.convert_to_tensor(angle), zeros, zeros, ones, zeros, zeros, 5, 7)
cases.append(case("rotation", {"class_name": "rotation"}, {"y": layer.transform_images(X, {"rotation_matrix": m})}, {"x": X, "angle": angle}))
zoom = np.array([[0.7, 1.3], [1.2, 0.5]], np.float32)
layer = keras.layers.RandomZoom(0.5, 0.5)
y = layer.transform_images(X, {"height_zoom": zoom[:, :1], "width_zoom": zoom[:, 1:]})
cases.append(case("zoom", {"class_name": "zoom"}, {"y": y}, {"x": X, "zoom": zoom}))
shift = np.array([[0.3, -0.2], [-0.7, 0.9]], np.float32)
layer = keras.layers.RandomTranslation(0.5, 0.5)
y = layer.transform_images(X, {"translations": shift[:, ::-1] * np.array([7, 5], np.float32)})
cases.append(case("translation", {"class_name": "translation"}, {"y": y}, {"x": X, "shift": shift}))
write("images.json", cases)
