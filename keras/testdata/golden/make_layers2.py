"""layers2.json: embeddings, further normalization, reshaping, einsum and attention layers, with masks.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_layers2.py (see README.md).

`weight_names` in a config is the order of get_weights, as paths within the layer; weights and gradients go by these names.
`mask0`, `mask1`, ... among the inputs are the masks of x0, x1, ... ; `out_mask` is that of the result. Arguments of the call
(use_causal_mask, return_attention_scores, reverse, use_attention_mask: the last input is the attention mask) are in the config too.
"""

from functools import partial

from common import np, rand, uniform, write
from recorders import POLICIES as ALL, record_masked

cases = []
add = partial(record_masked, cases)

IDS = np.array([[1, 2, 0], [4, 0, 0]], np.int32)
X2, X3, X4 = rand(1, 3, 4), rand(2, 2, 5, 4), rand(3, 2, 3, 4, 4)
X5 = rand(4, 2, 2, 2, 3, 2)
B3 = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 0]], bool)

add("embedding", "Embedding", {"input_dim": 5, "output_dim": 3}, {"x": IDS}, policies=ALL)
add("embedding_mask_zero", "Embedding", {"input_dim": 5, "output_dim": 3, "mask_zero": True}, {"x": IDS})
REVERSIBLE = {"input_dim": 5, "output_dim": 4}
add("reversible_embedding", "ReversibleEmbedding", {**REVERSIBLE, "mask_zero": True}, {"x": IDS}, policies=ALL)
add("reversible_embedding_reverse", "ReversibleEmbedding", {**REVERSIBLE, "reverse": True}, {"x": X3}, policies=ALL)
add("reversible_embedding_untied", "ReversibleEmbedding", {**REVERSIBLE, "tie_weights": False, "reverse": True, "logit_soft_cap": 2.0},
    {"x": X3}, policies=ALL)
XM = X3.copy()
XM[0, 3:] = 0
XM[1, 1] = 0
XM[1, 2, :2] = 0
add("masking", "Masking", {}, {"x": XM}, policies=ALL)
add("masking_value", "Masking", {"mask_value": 2.0}, {"x": np.where(XM == 0, 2, XM).astype(np.float32)})
for n, cls in enumerate(("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")):
    add(cls.lower() + "_masked", cls, {}, {"x0": X3, "x1": rand(5, 2, 5, 4), "mask0": B3, "mask1": B3[:, ::-1].copy()}, grads=False)
add("concatenate_masked", "Concatenate", {"axis": 1}, {"x0": X3, "x1": rand(6, 2, 2, 4), "mask0": B3}, grads=False)
add("dense_masked", "Dense", {"units": 2}, {"x": X3, "mask0": B3})
add("batch_norm_masked", "BatchNormalization", {}, {"x": X3, "mask0": B3}, {"moving_variance": uniform(9, 4, low=0.5, high=1.5)}, training=True)
add("layer_norm_masked", "LayerNormalization", {}, {"x": X3, "mask0": B3})

add("group_norm", "GroupNormalization", {"groups": 2}, {"x": X4}, policies=ALL)
add("group_norm_axis1", "GroupNormalization", {"groups": -1, "axis": 1, "epsilon": 1e-5}, {"x": X4})
add("group_norm_plain", "GroupNormalization", {"groups": 4, "center": False, "scale": False}, {"x": X2})
add("rms_norm", "RMSNormalization", {}, {"x": X3}, policies=ALL)
add("rms_norm_axes", "RMSNormalization", {"axis": [2, 3], "epsilon": 0.01}, {"x": X4})
add("unit_norm", "UnitNormalization", {}, {"x": X3}, policies=ALL)
add("unit_norm_axes", "UnitNormalization", {"axis": [1, 2]}, {"x": X4})
add("spectral_norm", "SpectralNormalization", {"layer": {"class_name": "Dense", "config": {"units": 3}}, "power_iterations": 2},
    {"x": X2}, training=True, grads=False)

add("einsum_dense", "EinsumDense", {"equation": "abc,cd->abd", "output_shape": [None, 3], "bias_axes": "d"}, {"x": X3}, policies=ALL)
add("einsum_dense_dots", "EinsumDense", {"equation": "...x,xy->...y", "output_shape": 3, "bias_axes": "y"}, {"x": X4})
add("einsum_dense_dots_end", "EinsumDense", {"equation": "ab...,bc->ac...", "output_shape": 2, "bias_axes": "c"}, {"x": X4})
add("einsum_dense_two_axes", "EinsumDense", {"equation": "abc,cde->abde", "output_shape": [None, 2, 3], "bias_axes": "de"}, {"x": X3})
add("einsum_dense_shared", "EinsumDense", {"equation": "abcd,bde->aebc", "output_shape": [2, 3, 4], "bias_axes": "eb", "activation": "tanh"}, {"x": X4})
add("einsum_dense_summed", "EinsumDense", {"equation": "abc,bd->ad", "output_shape": [3], "bias_axes": "d"}, {"x": X3})
add("softmax_axes", "Softmax", {"axis": [1, 2]}, {"x": X4})
add("softmax_masked", "Softmax", {}, {"x": rand(10, 2, 5), "mask0": B3})

add("zero_padding1d", "ZeroPadding1D", {"padding": [1, 2]}, {"x": X3})
add("zero_padding2d", "ZeroPadding2D", {"padding": [[1, 0], [2, 3]]}, {"x": X4[:1]})
add("zero_padding2d_first", "ZeroPadding2D", {"padding": [1, 0], "data_format": "channels_first"}, {"x": X4[:1]})
add("zero_padding3d", "ZeroPadding3D", {"padding": [[0, 1], [1, 0], [0, 0]]}, {"x": X5})
add("cropping1d", "Cropping1D", {"cropping": [1, 2]}, {"x": X3})
add("cropping2d", "Cropping2D", {"cropping": [[1, 0], [1, 2]]}, {"x": X4})
add("cropping3d", "Cropping3D", {"cropping": [[0, 1], [1, 0], [1, 1]]}, {"x": X5})
add("up_sampling1d", "UpSampling1D", {"size": 3}, {"x": X3[:1]})
add("up_sampling2d", "UpSampling2D", {"size": [2, 3]}, {"x": X4[:1, :, :2, :2]})
add("up_sampling2d_bilinear", "UpSampling2D", {"size": [2, 3], "interpolation": "bilinear"}, {"x": X4[:1, :, :3, :1]})
add("up_sampling2d_bilinear_first", "UpSampling2D", {"size": 2, "interpolation": "bilinear", "data_format": "channels_first"},
    {"x": X4[:1, :1, :3, :3]})
add("up_sampling3d", "UpSampling3D", {"size": [1, 2, 2]}, {"x": X5[:1]})

add("dot", "Dot", {"axes": 1}, {"x0": X2, "x1": rand(11, 3, 4)})
add("dot_matrices", "Dot", {"axes": [1, 2]}, {"x0": X3, "x1": rand(12, 2, 3, 5)}, policies=ALL)
add("dot_vector", "Dot", {"axes": [2, 1]}, {"x0": X3, "x1": rand(13, 2, 4)})
add("dot_cosine", "Dot", {"axes": [2, 2], "normalize": True}, {"x0": X3, "x1": rand(14, 2, 2, 4)})
add("dot_rank4", "Dot", {"axes": [1, 3]}, {"x0": X3[:, :3], "x1": rand(15, 2, 2, 2, 3)})

Q, V, K = rand(20, 2, 3, 4), rand(21, 2, 5, 4), rand(22, 2, 5, 4)
QM = np.array([[1, 1, 0], [1, 1, 1]], bool)
pair, three = {"x0": Q, "x1": V}, {"x0": Q, "x1": V, "x2": K}
masked = {**pair, "mask0": QM, "mask1": B3}
for cls in ("Attention", "AdditiveAttention"):
    low = "additive_attention" if cls[1] == "d" else "attention"
    add(low, cls, {}, pair, policies=ALL)
    add(low + "_scores", cls, {"use_scale": cls == "Attention", "return_attention_scores": True}, three)
    add(low + "_masks", cls, {"use_causal_mask": True}, masked)
add("attention_concat", "Attention", {"score_mode": "concat", "use_scale": True}, three)
add("attention_concat_plain", "Attention", {"score_mode": "concat"}, pair)

H = {"num_heads": 2, "key_dim": 3}
add("mha", "MultiHeadAttention", H, pair, policies=ALL)
add("mha_key_dims", "MultiHeadAttention", {**H, "value_dim": 2, "output_shape": [5], "use_bias": False},
    {"x0": Q, "x1": rand(23, 2, 5, 3), "x2": rand(24, 2, 5, 6)})
add("mha_output_shape", "MultiHeadAttention", {**H, "output_shape": [2, 3]}, pair)
add("mha_scores", "MultiHeadAttention", {**H, "return_attention_scores": True}, three)
add("mha_masks", "MultiHeadAttention", {**H, "return_attention_scores": True}, {**three, "mask0": QM, "mask1": B3, "mask2": B3 | B3[:, ::-1]})
add("mha_causal", "MultiHeadAttention", {**H, "use_causal_mask": True}, {"x0": V, "x1": V})
add("mha_causal_scores", "MultiHeadAttention", {**H, "use_causal_mask": True, "return_attention_scores": True}, {"x0": V, "x1": V, "mask1": B3[:, ::1]})
add("mha_attention_mask", "MultiHeadAttention", {**H, "use_attention_mask": True},
    {**pair, "x2": np.array([[[1, 0, 1, 0, 0], [0, 1, 1, 1, 1], [1, 1, 0, 0, 1]]] * 2, bool)})
add("mha_window", "MultiHeadAttention", {**H, "sliding_window": 2, "use_causal_mask": True}, {"x0": V, "x1": V})
add("mha_gate", "MultiHeadAttention", {**H, "use_gate": True}, pair)
add("mha_two_axes", "MultiHeadAttention", {"num_heads": 2, "key_dim": 2}, {"x0": rand(25, 1, 2, 3, 4), "x1": rand(26, 1, 3, 2, 4)})
add("mha_one_of_two_axes", "MultiHeadAttention", {"num_heads": 2, "key_dim": 2, "attention_axes": [2], "return_attention_scores": True},
    {"x0": rand(27, 1, 2, 3, 4), "x1": rand(28, 1, 2, 2, 4)})
G = {"head_dim": 3, "num_query_heads": 4, "num_key_value_heads": 2}
add("gqa", "GroupQueryAttention", G, pair, policies=ALL)
add("gqa_scores", "GroupQueryAttention", {**G, "return_attention_scores": True, "use_bias": False}, {**three, "mask1": B3})
add("gqa_causal_gate", "GroupQueryAttention", {**G, "use_causal_mask": True, "use_gate": True}, {"x0": V, "x1": V})

write("layers2.json", cases)
