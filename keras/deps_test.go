package keras_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// module is the prefix of the packages that the rules below leave out.
const module = "github.com/mezzo-ml/mezzo/"

// imports is the architecture as data: what each package may import from this
// module and from others. A new edge is a decision; it belongs here and in
// docs/architecture.md, with a reason.
var imports = map[string]string{
	"backend/dtype":                    "github.com/x448/float16",
	"backend/philox":                   "",
	"backend/portablemath":             "",
	"backend/op":                       "backend/dtype backend/portablemath",
	"backend/ir":                       "backend/dtype backend/op",
	"backend/driver":                   "backend/dtype backend/ir backend/op",
	"backend":                          "backend/driver backend/dtype backend/ir backend/op",
	"backend/null":                     "backend backend/driver backend/dtype backend/ir backend/op",
	"backend/cpu":                      "backend backend/cpu/internal/attention backend/cpu/internal/collective backend/cpu/internal/conv backend/cpu/internal/elementwise backend/cpu/internal/exec backend/cpu/internal/gemm backend/cpu/internal/isa backend/cpu/internal/move backend/cpu/internal/pooling backend/cpu/internal/product backend/cpu/internal/recurrent backend/cpu/internal/reduce backend/cpu/internal/tiling backend/driver backend/dtype backend/ir backend/op golang.org/x/sys/unix", // on Windows golang.org/x/sys/windows
	"backend/cpu/internal/attention":   "backend/cpu/internal/elementwise backend/cpu/internal/exec backend/cpu/internal/gemm backend/cpu/internal/isa backend/cpu/internal/lanes backend/cpu/internal/product backend/cpu/internal/reduce backend/cpu/internal/tiling backend/cpu/internal/vec backend/dtype backend/ir backend/op backend/portablemath",
	"backend/cpu/internal/recurrent":   "backend backend/cpu/internal/exec backend/cpu/internal/gemm backend/cpu/internal/isa backend/cpu/internal/lanes backend/cpu/internal/product backend/cpu/internal/tiling backend/cpu/internal/vec backend/dtype backend/ir backend/op",
	"backend/cpu/internal/conv":        "backend backend/cpu/internal/elementwise backend/cpu/internal/exec backend/cpu/internal/gemm backend/cpu/internal/lanes backend/cpu/internal/product backend/cpu/internal/tiling backend/cpu/internal/vec backend/cpu/internal/window backend/dtype backend/ir backend/op",
	"backend/cpu/internal/pooling":     "backend/cpu/internal/elementwise backend/cpu/internal/exec backend/cpu/internal/gemm backend/cpu/internal/isa backend/cpu/internal/lanes backend/cpu/internal/tiling backend/cpu/internal/window backend/dtype backend/ir backend/op backend/portablemath",
	"backend/cpu/internal/collective":  "backend/cpu/internal/exec backend/cpu/internal/lanes backend/driver backend/dtype backend/ir backend/op",
	"backend/cpu/internal/window":      "backend/cpu/internal/tiling backend/op",
	"backend/cpu/internal/product":     "backend backend/cpu/internal/elementwise backend/cpu/internal/exec backend/cpu/internal/gemm backend/cpu/internal/lanes backend/cpu/internal/tiling backend/cpu/internal/vec backend/dtype backend/ir backend/op",
	"backend/cpu/internal/elementwise": "backend/cpu/internal/exec backend/cpu/internal/isa backend/cpu/internal/lanes backend/cpu/internal/move backend/cpu/internal/tiling backend/cpu/internal/vec backend/dtype backend/ir backend/op backend/philox",
	"backend/cpu/internal/reduce":      "backend/cpu/internal/exec backend/cpu/internal/isa backend/cpu/internal/lanes backend/cpu/internal/move backend/cpu/internal/tiling backend/cpu/internal/vec backend/dtype backend/ir backend/op backend/portablemath",
	"backend/cpu/internal/move":        "backend/cpu/internal/exec backend/cpu/internal/isa backend/cpu/internal/lanes backend/cpu/internal/tiling backend/cpu/internal/vec backend/driver backend/dtype backend/ir backend/op",
	"backend/cpu/internal/exec":        "backend backend/cpu/internal/lanes backend/cpu/internal/tiling backend/cpu/internal/vec backend/driver backend/dtype backend/ir backend/op",
	"backend/cpu/internal/lanes":       "backend/cpu/internal/isa backend/cpu/internal/vec backend/dtype backend/op backend/portablemath",
	"backend/cpu/internal/tiling":      "backend/op",
	"backend/cpu/internal/gemm":        "backend/cpu/internal/isa backend/cpu/internal/vec backend/dtype backend/portablemath golang.org/x/sys/cpu",
	"backend/cpu/internal/vec":         "backend/cpu/internal/isa backend/dtype",
	"backend/cpu/internal/isa":         "backend golang.org/x/sys/cpu",
	"backend/cpu/internal/isa/isatest": "backend/cpu/internal/isa backend/dtype",
	"backend/cpu/internal/gen":         "backend/cpu/internal/gen/asm backend/cpu/internal/gen/gemm backend/cpu/internal/gen/vec",
	"backend/cpu/internal/gen/gemm":    "backend/cpu/internal/gen/amd64 backend/cpu/internal/gen/arm64 backend/cpu/internal/gen/asm",
	"backend/cpu/internal/gen/vec":     "backend/cpu/internal/gen/amd64 backend/cpu/internal/gen/arm64 backend/cpu/internal/gen/asm",
	"backend/cpu/internal/gen/amd64":   "backend/cpu/internal/gen/asm",
	"backend/cpu/internal/gen/arm64":   "backend/cpu/internal/gen/asm",
	"backend/cpu/internal/gen/asm":     "",
	"backend/cpu/internal/gen/asmtest": "",
	"backend/cuda":                     "backend backend/cuda/internal/api backend/cuda/internal/cublaslt backend/cuda/internal/cudnn backend/cuda/internal/nccl backend/cuda/internal/ptx backend/cuda/kernels backend/driver backend/dtype backend/ir backend/op",
	"backend/cuda/internal/api":        "gorgonia.org/cu",
	"backend/cuda/internal/cublaslt":   "backend/cuda/internal/nvlib backend/dtype",
	"backend/cuda/internal/cudnn":      "backend/cuda/internal/nvlib backend/dtype",
	"backend/cuda/internal/fake":       "backend/cuda/internal/fake/simt backend/cuda/kernels",
	"backend/cuda/internal/fake/build": "backend/cuda/internal/fake",
	"backend/cuda/internal/fake/simt":  "",
	"backend/cuda/internal/nccl":       "backend/cuda/internal/nvlib",
	"backend/cuda/internal/nvlib":      "",
	"backend/cuda/internal/nvrtc":      "",
	"backend/cuda/internal/ptx":        "backend/dtype backend/op",
	"backend/cuda/kernels":             "",
	"backend/suggest":                  "",
	"backend/internal/goroutine":       "",
	"backend/backendtest":              "backend backend/driver backend/dtype backend/ir backend/op backend/philox",
	"backend/tensor":                   "backend backend/driver backend/dtype backend/internal/goroutine backend/ir backend/op github.com/x448/float16",

	"backend/tensor/lossshape":  "backend/dtype backend/op backend/tensor",
	"backend/tensor/tensortest": "backend/dtype backend/op backend/tensor",

	"backend/tensor/lossmath": "backend/op backend/tensor backend/tensor/lossshape",

	"policy": "backend backend/driver backend/dtype backend/suggest",

	"layers":                       "backend/dtype backend/op backend/suggest backend/tensor layers/activations layers/constraints layers/initializers layers/internal/support layers/regularizers layers/callspec policy",
	"layers/internal/support":      "backend/dtype backend/tensor layers/resample policy",
	"layers/preprocessing":         "backend/dtype backend/op backend/portablemath backend/suggest backend/tensor layers layers/internal/stringhash layers/initializers layers/internal/support layers/resample policy",
	"layers/internal/stringhash":   "",
	"layers/resample":              "backend/portablemath",
	"layers/callspec":              "backend/suggest",
	"layers/callspec/callspectest": "backend/tensor/tensortest",
	"layers/activations":           "backend/dtype backend/op backend/tensor layers/callspec",
	"layers/constraints":           "backend/dtype backend/op backend/tensor layers/callspec",
	"layers/initializers":          "backend backend/philox backend/portablemath backend/tensor layers/callspec gonum.org/v1/gonum/lapack/lapack64 gonum.org/v1/gonum/blas gonum.org/v1/gonum/blas/blas64",
	"layers/regularizers":          "backend/dtype backend/tensor layers/callspec",
	"layers/layertest":             "backend backend/dtype backend/op backend/tensor backend/tensor/tensortest layers optimizers policy",
	"losses":                       "backend/dtype backend/op backend/portablemath backend/suggest backend/tensor backend/tensor/lossshape backend/tensor/lossmath",
	"optimizers":                   "backend/dtype backend/op backend/portablemath backend/suggest backend/tensor optimizers/kerasstate policy",
	"keras/metrics":                "backend/dtype backend/op backend/portablemath backend/suggest backend/tensor backend/tensor/lossshape backend/tensor/lossmath",
	"keras":                        "backend backend/cpu backend/cuda backend/driver backend/dtype backend/ir backend/op backend/suggest backend/tensor optimizers/kerasstate keras/distribution keras/exponents keras/internal/console keras/internal/pipeline keras/metrics layers losses optimizers policy github.com/rivo/uniseg github.com/schollz/progressbar/v3",
	"keras/callbacks":              "backend/suggest backend/tensor keras keras/checkpoint keras/exponents keras/internal/atomicfile keras/metrics keras/saving keras/tensorboard optimizers",
	"keras/checkpoint":             "backend/dtype backend/op backend/tensor keras keras/internal/atomicfile keras/internal/safeio",
	"keras/exponents":              "backend/dtype",
	"keras/doctor":                 "backend/dtype backend/op backend/tensor keras keras/checkpoint keras/internal/atomicfile layers optimizers policy",
	"keras/doctor/doctortest":      "backend/dtype backend/op keras keras/doctor layers layers/layertest layers/preprocessing losses optimizers policy",
	"keras/journal":                "backend/dtype backend/op backend/tensor keras keras/checkpoint keras/doctor keras/internal/safeio",
	"keras/plot":                   "keras keras/exponents keras/internal/atomicfile keras/internal/console layers github.com/guptarohit/asciigraph gonum.org/v1/plot gonum.org/v1/plot/font gonum.org/v1/plot/plotter gonum.org/v1/plot/vg gonum.org/v1/plot/vg/draw",
	"keras/saving":                 "backend/dtype backend/op backend/tensor optimizers/kerasstate keras keras/internal/atomicfile keras/internal/safeio keras/internal/npy keras/internal/hdf5 layers layers/activations layers/preprocessing layers/callspec optimizers policy github.com/maruel/safetensors",
	"keras/hub":                    "backend/dtype backend/portablemath backend/tensor keras keras/internal/safeio keras/saving layers",
	"keras/hub/tokenizer":          "keras keras/internal/safeio github.com/rivo/uniseg golang.org/x/text/unicode/norm",
	"keras/onnx":                   "backend/dtype backend/ir backend/op backend/tensor keras keras/internal/atomicfile keras/internal/safeio layers policy google.golang.org/protobuf/encoding/protowire",
	"keras/serving":                "backend/driver backend/dtype backend/op backend/tensor keras keras/saving",
	"keras/internal/hdf5":          "keras/internal/safeio",
	"keras/internal/atomicfile":    "",
	"keras/internal/safeio":        "",
	"keras/internal/console":       "golang.org/x/term", // on Windows also golang.org/x/sys/windows
	"keras/internal/pipeline":      "backend/philox",
	"keras/internal/npy":           "backend/dtype backend/op keras/internal/safeio",
	"keras/internal/tfrecord":      "keras/internal/safeio",
	"keras/data":                   "backend/dtype backend/op backend/philox backend/tensor keras keras/internal/atomicfile keras/internal/safeio keras/internal/pipeline keras/internal/npy keras/internal/tfrecord layers layers/preprocessing google.golang.org/protobuf/encoding/protowire",
	"keras/data/audio":             "keras keras/internal/safeio",
	"keras/data/images":            "backend/op backend/tensor keras keras/data keras/internal/atomicfile keras/internal/safeio layers/resample golang.org/x/image/bmp",
	"keras/tensorboard":            "backend/dtype keras/exponents keras/internal/tfrecord google.golang.org/protobuf/encoding/protowire",
	"keras/datasets/digits":        "backend/philox backend/tensor keras",
	"keras/datasets/mnist":         "backend/tensor keras keras/internal/atomicfile keras/internal/safeio",

	"optimizers/kerasstate": "backend/tensor",

	"keras/ops": "backend/dtype backend/tensor",

	"keras/distribution":            "backend backend/driver backend/dtype backend/op backend/tensor", // engines with dependencies are modules of their own
	"keras/distribution/enginetest": "keras/distribution",

	"keras/internal/scenario": "", // tests only
}

// topLevel is the folders of the repository that packages lie in.
var topLevel = []string{"backend", "examples", "keras", "layers", "losses", "optimizers", "policy"}

// TestImports holds packages to the import rules: architecture that is not
// executed erodes in silence. With the tag cuda there are more packages and
// edges than without.
func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-tags", "cuda", "-json=ImportPath,Imports,Standard", "../...")
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	known := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		if name == "examples" || strings.HasPrefix(name, "examples/") {
			continue // programs import anything
		}
		known[name] = true
		if top, _, _ := strings.Cut(name, "/"); !slices.Contains(topLevel, top) {
			t.Errorf("package %s lies in %s; the top level is %v", name, top, topLevel)
		}
		rule, ok := imports[name]
		if !ok {
			t.Errorf("package %s has no rule; add one to keras/deps_test.go and docs/architecture.md", name)
			continue
		}
		allowed := strings.Fields(rule)
		for _, i := range p.Imports {
			first, _, _ := strings.Cut(i, "/")
			i = strings.TrimPrefix(i, module)
			if strings.Contains(first, ".") && !slices.Contains(allowed, i) {
				t.Errorf("package %s imports %s, which its rule does not allow", name, i)
			}
		}
	}
	for name := range imports {
		if !known[name] {
			t.Errorf("the rules name package %s, which does not exist", name)
		}
	}
}

// TestServingModules: a program that serves over HTTP links no gRPC and no metrics
// library. Those are in the nested module keras/serving/grpc. No dependency of another
// nested module is in go.mod, either.
func TestServingModules(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.Module.Path}}{{end}}", "./serving").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	modules := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
	want := []string{
		"github.com/edsrzf/mmap-go", "github.com/maruel/safetensors", // weights
		"github.com/mezzo-ml/mezzo",
		"github.com/mitchellh/colorstring", "github.com/rivo/uniseg", "github.com/schollz/progressbar/v3", // Fit's progress
		"github.com/x448/float16", "golang.org/x/sys", "golang.org/x/term", "gonum.org/v1/gonum",
	}
	if !slices.Equal(modules, want) {
		t.Errorf("keras/serving depends on %v, want %v", modules, want)
	}
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	// purego, which keras/distribution/mpi needs, makes programs depend on the C library.
	for _, module := range []string{"google.golang.org/grpc", "github.com/prometheus/", "github.com/ebitengine/purego"} {
		if strings.Contains(string(text), module) {
			t.Errorf("go.mod has %s", module)
		}
	}
}
