//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"os"
)

// settings are how programs are computed and started, each from an environment variable
// that is "1", the default, or "0".
type settings struct {
	// tf32 has products and convolutions of float32 round their operands to the
	// 10 bits of mantissa that Tensor Cores take, as TensorFlow's
	// tf.config.experimental.enable_tensor_float_32_execution: KERAS_TF32.
	tf32 bool
	// epilogue lets libraries add a bias before they round a product to 16 bits.
	// Without it every operation rounds to its type, as on other devices:
	// KERAS_CUDA_EPILOGUE.
	epilogue bool
	// autotune measures the algorithms that a library offers for a product
	// instead of taking the one it thinks best: KERAS_CUDA_AUTOTUNE. Algorithms
	// differ in the last bits of results.
	autotune bool
	// pad has products with odd sizes computed on copies with whole rows, where that
	// pays: KERAS_CUDA_PAD. padAll has it done whatever it costs, for tests.
	pad, padAll bool
	// cudnn has convolutions computed by cuDNN where it is found: KERAS_CUDA_CUDNN.
	cudnn bool
	// wideGradients keeps the gradients of kernels as the float32 sums that they
	// are. cuDNN rounds them to 16 bits, as Keras does, so our own kernels compute
	// them then: KERAS_CUDA_WIDE_GRADIENTS.
	wideGradients bool
	// eight has products of what is rounded to 8-bit floats be products of those,
	// where the GPU has them and it pays: KERAS_CUDA_FP8. eightAll has it done
	// whatever it costs, for tests.
	eight, eightAll bool
	// graphs has a run with the same buffers as before be the launch of one
	// captured graph: KERAS_CUDA_GRAPHS.
	graphs bool
}

func readSettings() (settings, error) {
	var s settings
	for name, to := range map[string]*bool{
		"KERAS_TF32": &s.tf32, "KERAS_CUDA_EPILOGUE": &s.epilogue, "KERAS_CUDA_AUTOTUNE": &s.autotune, "KERAS_CUDA_GRAPHS": &s.graphs, "KERAS_CUDA_PAD": &s.pad, "KERAS_CUDA_FP8": &s.eight,
		"KERAS_CUDA_CUDNN": &s.cudnn, "KERAS_CUDA_WIDE_GRADIENTS": &s.wideGradients,
	} {
		switch value := os.Getenv(name); value {
		case "", "1":
			*to = true
		case "0":
		default:
			return s, fmt.Errorf("cuda: %s: got %q, want 0 or 1", name, value)
		}
	}
	return s, nil
}
