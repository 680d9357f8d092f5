package policy

import "github.com/mezzo-ml/mezzo/backend"

// SetTF32 has products, convolutions, attention and recurrent layers of float32 read
// their operands rounded to TensorFloat-32, which has float32's range and 10 bits of
// fraction, and add up in float32 (TensorFlow:
// tf.config.experimental.enable_tensor_float_32_execution). Nothing else about
// float32 changes, and 16-bit types stay as they are.
//
// GPUs from compute capability 8.0 on multiply so with their Tensor Cores. On other
// devices, such as the CPU, operands are rounded before a float32 product: this
// shows what TensorFloat-32 does to a model, with the same bits on every run, and is
// slower than float32.
//
// Without a call GPUs use TensorFloat-32, unless MEZZO_TF32 is 0, and other devices
// float32; a call has precedence over MEZZO_TF32. Call it at the start of a program:
// what is compiled later obeys, and a Function that has been compiled is compiled
// again, but a call while another goroutine trains may miss a step.
func SetTF32(on bool) { backend.SetTF32(on) }
