//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"os"

	"github.com/mezzo-ml/mezzo/backend"
)

// settings are how programs are computed and started, each from an environment variable
// that is "1", the default, or "0".
type settings struct {
	// tf32 has products and convolutions of float32 round their operands to the
	// 10 bits of mantissa that Tensor Cores take, as TensorFlow's
	// tf.config.experimental.enable_tensor_float_32_execution: MEZZO_TF32.
	tf32 bool
	// epilogue lets libraries add a bias before they round a product to 16 bits.
	// Without it every operation rounds to its type, as on other devices:
	// MEZZO_CUDA_EPILOGUE.
	epilogue bool
	// autotune measures the algorithms that a library offers for a product
	// instead of taking the one it thinks best: MEZZO_CUDA_AUTOTUNE. Algorithms
	// differ in the last bits of results.
	autotune bool
	// pad has products with odd sizes computed on copies with whole rows, where that
	// pays: MEZZO_CUDA_PAD. padAll has it done whatever it costs, for tests.
	pad, padAll bool
	// cudnn has convolutions computed by cuDNN where it is found: MEZZO_CUDA_CUDNN.
	cudnn bool
	// wideGradients keeps the gradients of kernels as the float32 sums that they
	// are. cuDNN rounds them to 16 bits, as Keras does, so our own kernels compute
	// them then: MEZZO_CUDA_WIDE_GRADIENTS.
	wideGradients bool
	// eight has products of what is rounded to 8-bit floats be products of those,
	// where the GPU has them and it pays: MEZZO_CUDA_FP8. eightAll has it done
	// whatever it costs, for tests.
	eight, eightAll bool
	// graphs has a run with the same buffers as before be the launch of one
	// captured graph: MEZZO_CUDA_GRAPHS.
	graphs bool
	// wgrad is the algorithm of MEZZO_ALGORITHM for gradients of kernels, or "": see
	// byIm2col. columns is what is taken for maxColumns, for tests.
	wgrad   string
	columns int
}

func readSettings() (settings, error) {
	var s settings
	for name, to := range map[string]*bool{
		"MEZZO_TF32": &s.tf32, "MEZZO_CUDA_EPILOGUE": &s.epilogue, "MEZZO_CUDA_AUTOTUNE": &s.autotune, "MEZZO_CUDA_GRAPHS": &s.graphs, "MEZZO_CUDA_PAD": &s.pad, "MEZZO_CUDA_FP8": &s.eight,
		"MEZZO_CUDA_CUDNN": &s.cudnn, "MEZZO_CUDA_WIDE_GRADIENTS": &s.wideGradients,
	} {
		switch value := os.Getenv(name); value {
		case "", "1":
			*to = true
		case "0":
		default:
			return s, fmt.Errorf("cuda: %s: got %q, want 0 or 1", name, value)
		}
	}
	s.wgrad = backend.ForcedAlgorithm("wgrad")
	return s, nil
}
