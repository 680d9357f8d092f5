"""steps.json: three steps of training of every layer with weights, under three policies.

Made with Keras 3.15.1, TensorFlow 2.21.0 (CPU), numpy 2.4.6, Python 3.11.
Re-run: python make_steps.py (see README.md).

SGD with learning_rate RATE on the mean of (y-t)^2, in float32, of the (first) result y; under mixed_float16 within a LossScaleOptimizer that starts at
SCALE. `grad/NAME` are the gradients of the first step, unscaled, by inputs of floats and by trainable weights; `loss` those of the three
steps; `final/NAME` all weights after them. Weights go by their paths within the layer, `weight_names` in a config is their order.
"""

from functools import partial

from common import np, rand, write
from recorders import record_steps

cases = []
add = partial(record_steps, cases)


def of(cls, **args):
    return {"class_name": cls, **args}


def inner(cls, **args):
    return {"class_name": cls, "config": args}


X2, X3 = rand(1, 4, 5), rand(2, 3, 4, 5)
I1, I2, I3 = rand(3, 2, 7, 4), rand(4, 2, 5, 4, 4), rand(5, 2, 4, 3, 3, 2)
IDS = np.array([[1, 2, 0, 1], [4, 0, 0, 2]], np.int32)
K = {"filters": 4, "kernel_size": 2}

add("dense", of("Dense", units=3, activation="tanh"), X2)
add("einsum_dense", of("EinsumDense", equation="abc,cd->abd", output_shape=[None, 3], bias_axes="d"), X3)
add("embedding", of("Embedding", input_dim=6, output_dim=3), IDS)
add("reversible_embedding", of("ReversibleEmbedding", input_dim=6, output_dim=3), IDS)
add("prelu", of("PReLU", shared_axes=[1]), X3)
for n, x in ((1, I1), (2, I2), (3, I3)):
    add("conv%dd" % n, of("Conv%dD" % n, **K, padding="same", activation="tanh"), x)
    add("conv%dd_transpose" % n, of("Conv%dDTranspose" % n, **K, strides=2), x)
    if n < 3:
        add("depthwise_conv%dd" % n, of("DepthwiseConv%dD" % n, kernel_size=2, depth_multiplier=2), x)
        add("separable_conv%dd" % n, of("SeparableConv%dD" % n, **K), x)
    add("conv_lstm%dd" % n, of("ConvLSTM%dD" % n, filters=2, kernel_size=2, return_sequences=True), rand(10 + n, 2, 3, *([4, 3, 3][:n]), 2))
add("batch_normalization", of("BatchNormalization", momentum=0.75), I2)
add("layer_normalization", of("LayerNormalization"), X3)
add("group_normalization", of("GroupNormalization", groups=2), I2)
add("rms_normalization", of("RMSNormalization"), X3)
add("spectral_normalization", of("SpectralNormalization", layer=inner("Dense", units=3)), X2)
for cls in ("SimpleRNN", "LSTM", "GRU"):
    add(cls.lower(), of(cls, units=3, return_sequences=True), X3)
    add("rnn_" + cls.lower(), of("RNN", cell=inner(cls + "Cell", units=3)), X3)
    add("bidirectional_" + cls.lower(), of("Bidirectional", layer=inner(cls, units=3)), X3)
add("rnn_stacked", of("RNN", cell=inner("StackedRNNCells", cells=[inner("LSTMCell", units=3), inner("GRUCell", units=2)])), X3)
add("gru_before", of("GRU", units=3, reset_after=False), X3)
add("time_distributed", of("TimeDistributed", layer=inner("Dense", units=3)), X3)
add("attention", of("Attention", use_scale=True), X3, rand(6, 3, 6, 5))
add("attention_concat", of("Attention", use_scale=True, score_mode="concat"), X3, rand(6, 3, 6, 5))
add("additive_attention", of("AdditiveAttention"), X3, rand(6, 3, 6, 5))
add("multi_head_attention", of("MultiHeadAttention", num_heads=2, key_dim=3), X3, rand(7, 3, 6, 4))
add("group_query_attention", of("GroupQueryAttention", head_dim=3, num_query_heads=4, num_key_value_heads=2), X3, rand(8, 3, 6, 5))
add("layer_scale", of("LayerScale", init_values=0.5, projection_dim=5), X3)
write("steps.json", cases)
