// A libcudnn.so.9 for tests on machines without a GPU: convolutions by loops,
// put on the fake driver's streams. Descriptors are checked as the real library
// does, with the types and layouts that its manual has for each function. Each
// problem has several algorithms: the one that the library likes best wants
// workspace, others add in another order each time, or compute something of
// less precision (zeros, here, so that nobody takes them unseen), or fail.
//
// FAKECUDNN_CUDA is the CUDA runtime that it was built for (12090).
#include <cstdlib>
#include <vector>

#include "library.h"

enum { SUCCESS = 0, NOT_INITIALIZED = 1001, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { DEFAULT_MATH, TENSOR_MATH, CONVERSION_MATH, FMA_MATH };
enum { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };
enum { NHWC = 1, RELU = 1, IDENTITY = 5 };
static const size_t WORKSPACE = 1000;

// type_of is the type of library.h for a cudnnDataType_t, or -1.
static int type_of(int type) { return type == 0 ? R32 : type == 1 ? R64 : type == 2 ? R16 : type == 9 ? RBF16 : -1; }

struct Tensor { // and filters
	int type = -1, format = -1;
	std::vector<int64_t> sizes, strides;
	int64_t elements() const {
		int64_t n = 1;
		for (int64_t s : sizes) n *= s;
		return n;
	}
	// Whether channels are neighbours, and nothing lies between elements.
	bool packed() const {
		int64_t n = sizes[1];
		for (size_t i = sizes.size() - 1; i >= 2; i--) {
			if (sizes[i] > 1 && strides[i] != n) return false;
			n *= sizes[i];
		}
		return (sizes[1] == 1 || strides[1] == 1) && (sizes[0] == 1 || strides[0] == n);
	}
};
struct Convolution {
	std::vector<int64_t> padding, stride, dilation;
	int mode = -1, type = -1, groups = 1, math = DEFAULT_MATH;
};
struct Activation { int mode, nan; };
struct Handle { void *stream; };
struct Choice {
	int algorithm, status;
	float time;
	size_t memory;
	int determinism, math, reserved[3];
};

#define SIZE extern "C" __attribute__((visibility("default"))) size_t
SIZE cudnnGetVersion() { return 91002; }
SIZE cudnnGetCudartVersion() {
	const char *v = getenv("FAKECUDNN_CUDA");
	return v ? atoi(v) : 12090;
}
extern "C" __attribute__((visibility("default"))) const char *cudnnGetErrorString(int e) {
	switch (e) {
	case NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
	case BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
	case NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
	case EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
	}
	return "CUDNN_UNKNOWN_STATUS";
}
API cudnnCreate(void **h) { *h = new Handle{}; return SUCCESS; }
API cudnnDestroy(void *h) { delete (Handle *)h; return SUCCESS; }
API cudnnSetStream(void *h, void *stream) { ((Handle *)h)->stream = stream; return SUCCESS; }

API cudnnCreateTensorDescriptor(void **d) { *d = new Tensor; return SUCCESS; }
API cudnnDestroyTensorDescriptor(void *d) { delete (Tensor *)d; return SUCCESS; }
API cudnnCreateFilterDescriptor(void **d) { *d = new Tensor; return SUCCESS; }
API cudnnDestroyFilterDescriptor(void *d) { delete (Tensor *)d; return SUCCESS; }
static int set(Tensor *t, int type, int format, int axes, const int *sizes, const int *strides) {
	if (axes < 3 || axes > 8 || type_of(type) < 0) return axes > 8 ? NOT_SUPPORTED : BAD_PARAM;
	*t = Tensor{type_of(type), format};
	for (int i = 0; i < axes; i++) {
		if (sizes[i] < 1 || (strides && strides[i] < 0)) return BAD_PARAM;
		t->sizes.push_back(sizes[i]);
		if (strides) t->strides.push_back(strides[i]);
	}
	return SUCCESS;
}
API cudnnSetTensorNdDescriptor(void *d, int type, int axes, const int *sizes, const int *strides) { return set((Tensor *)d, type, -1, axes, sizes, strides); }
API cudnnSetFilterNdDescriptor(void *d, int type, int format, int axes, const int *sizes) { return set((Tensor *)d, type, format, axes, sizes, nullptr); }

API cudnnCreateConvolutionDescriptor(void **d) { *d = new Convolution; return SUCCESS; }
API cudnnDestroyConvolutionDescriptor(void *d) { delete (Convolution *)d; return SUCCESS; }
API cudnnSetConvolutionNdDescriptor(void *d, int axes, const int *padding, const int *stride, const int *dilation, int mode, int type) {
	Convolution c;
	c.mode = mode, c.type = type_of(type);
	for (int i = 0; i < axes; i++) {
		if (padding[i] < 0 || stride[i] < 1 || dilation[i] < 1) return BAD_PARAM;
		c.padding.push_back(padding[i]), c.stride.push_back(stride[i]), c.dilation.push_back(dilation[i]);
	}
	*(Convolution *)d = c;
	return SUCCESS;
}
API cudnnSetConvolutionGroupCount(void *d, int n) { ((Convolution *)d)->groups = n; return SUCCESS; }
API cudnnSetConvolutionMathType(void *d, int math) {
	if (math < DEFAULT_MATH || math > FMA_MATH) return BAD_PARAM;
	((Convolution *)d)->math = math;
	return SUCCESS;
}
static int output(const Convolution &c, const Tensor &x, const Tensor &w, int axes, int *sizes) {
	if ((int)x.sizes.size() != axes || (int)w.sizes.size() != axes || (int)c.stride.size() != axes - 2) return BAD_PARAM;
	if (x.sizes[1] != w.sizes[1] * c.groups || w.sizes[0] % c.groups || x.type != w.type) return BAD_PARAM;
	sizes[0] = x.sizes[0], sizes[1] = w.sizes[0];
	for (int i = 2; i < axes; i++) {
		const int64_t room = x.sizes[i] + 2 * c.padding[i - 2] - (w.sizes[i] - 1) * c.dilation[i - 2] - 1;
		if (room < 0) return BAD_PARAM;
		sizes[i] = 1 + room / c.stride[i - 2];
	}
	return SUCCESS;
}
API cudnnGetConvolutionNdForwardOutputDim(void *c, void *x, void *w, int axes, int *sizes) { return output(*(Convolution *)c, *(Tensor *)x, *(Tensor *)w, axes, sizes); }

API cudnnCreateActivationDescriptor(void **d) { *d = new Activation; return SUCCESS; }
API cudnnDestroyActivationDescriptor(void *d) { delete (Activation *)d; return SUCCESS; }
API cudnnSetActivationDescriptor(void *d, int mode, int nan, double) { *(Activation *)d = {mode, nan}; return SUCCESS; }

// fits reports whether the tensors are those of a convolution that there is.
static int fits(const Tensor &x, const Tensor &w, const Tensor &y, const Convolution &c) {
	int sizes[8];
	if (int e = output(c, x, w, x.sizes.size(), sizes)) return e;
	if (y.sizes.size() != x.sizes.size() || c.mode != 1) return BAD_PARAM;
	for (size_t i = 0; i < x.sizes.size(); i++)
		if (y.sizes[i] != sizes[i]) return BAD_PARAM;
	if (x.type != w.type || x.type != y.type || x.type == R64 || c.type != R32) return NOT_SUPPORTED;
	if (x.sizes.size() < 4 || x.sizes.size() > 5 || w.format != NHWC || !x.packed() || !y.packed()) return NOT_SUPPORTED;
	return SUCCESS;
}

// algorithms lists those of an operation.
static int algorithms(int operation, int e, int type, int math, int wanted, int *found, Choice *list) {
	*found = 0;
	if (e) return e;
	const int exact = type == R32 && math == FMA_MATH, fast = exact ? FMA_MATH : type == R32 ? DEFAULT_MATH : TENSOR_MATH;
	std::vector<Choice> all;
	const auto add = [&](int algorithm, size_t memory, int determinism, int math, int status = SUCCESS) {
		all.push_back({algorithm, status, status ? -1.f : 1.f, memory, determinism, math});
	};
	switch (operation) {
	case FORWARD:
		add(1, WORKSPACE, 1, fast), add(0, 0, 1, fast);
		if (exact) add(1, WORKSPACE, 1, DEFAULT_MATH); // TF32 all the same
		add(2, 0, 1, fast), add(6, 0, 1, fast), add(7, 1 << 20, 1, fast), add(4, 0, 1, fast, NOT_SUPPORTED);
		break;
	case BACKWARD_DATA: add(0, 0, 0, fast), add(1, WORKSPACE, 1, fast), add(1, 0, 1, FMA_MATH), add(5, 0, 1, fast); break;
	default: add(3, 0, 0, fast), add(0, 0, 0, fast), add(1, WORKSPACE, 1, fast), add(1, (size_t)1 << 40, 1, fast);
	}
	for (const Choice &c : all)
		if (*found < wanted) list[(*found)++] = c;
	return SUCCESS;
}
API cudnnGetConvolutionForwardAlgorithm_v7(void *, void *x, void *w, void *c, void *y, int wanted, int *found, Choice *list) {
	return algorithms(FORWARD, fits(*(Tensor *)x, *(Tensor *)w, *(Tensor *)y, *(Convolution *)c), ((Tensor *)x)->type, ((Convolution *)c)->math, wanted, found, list);
}
API cudnnGetConvolutionBackwardDataAlgorithm_v7(void *, void *w, void *y, void *c, void *x, int wanted, int *found, Choice *list) {
	return algorithms(BACKWARD_DATA, fits(*(Tensor *)x, *(Tensor *)w, *(Tensor *)y, *(Convolution *)c), ((Tensor *)x)->type, ((Convolution *)c)->math, wanted, found, list);
}
API cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *, void *x, void *y, void *c, void *w, int wanted, int *found, Choice *list) {
	return algorithms(BACKWARD_FILTER, fits(*(Tensor *)x, *(Tensor *)w, *(Tensor *)y, *(Convolution *)c), ((Tensor *)x)->type, ((Convolution *)c)->math, wanted, found, list);
}

// Operand is a tensor in memory.
struct Operand {
	Tensor t;
	const void *at;
	bool fine() const { return (uintptr_t)at % 16 == 0 && fakecuda_inside(at, t.elements() * size_of(t.type)); }
};

// convolve computes one of the three from the two others. What each element of
// the input, the kernels and the result have to do with each other is the same
// for all of them.
static void convolve(int operation, const Operand &x, const Operand &w, const Operand &y, const Convolution &c, bool zero, const std::function<double(int64_t, double)> &last) {
	const int axes = x.t.sizes.size() - 2;
	const auto pad = [&](const std::vector<int64_t> &v, int64_t first) { // to three axes
		std::vector<int64_t> r(3 - axes, first);
		r.insert(r.end(), v.end() - axes, v.end());
		return r;
	};
	const auto i = pad(x.t.sizes, 1), k = pad(w.t.sizes, 1), o = pad(y.t.sizes, 1), p = pad(c.padding, 0), s = pad(c.stride, 1), d = pad(c.dilation, 1);
	const int64_t channels = x.t.sizes[1], features = y.t.sizes[1], cg = channels / c.groups, og = features / c.groups;
	const Operand &out = operation == FORWARD ? y : operation == BACKWARD_DATA ? x : w;
	const bool tf = x.t.type == R32 && c.math != FMA_MATH;
	std::vector<float> sum(out.t.elements());
	for (int64_t n = 0; n < x.t.sizes[0]; n++)
	for (int64_t o0 = 0; o0 < o[0]; o0++) for (int64_t o1 = 0; o1 < o[1]; o1++) for (int64_t o2 = 0; o2 < o[2]; o2++)
	for (int64_t k0 = 0; k0 < k[0]; k0++) for (int64_t k1 = 0; k1 < k[1]; k1++) for (int64_t k2 = 0; k2 < k[2]; k2++) {
		const int64_t a = o0 * s[0] + k0 * d[0] - p[0], b = o1 * s[1] + k1 * d[1] - p[1], e = o2 * s[2] + k2 * d[2] - p[2];
		if (a < 0 || a >= i[0] || b < 0 || b >= i[1] || e < 0 || e >= i[2]) continue;
		const int64_t xat = (((n * i[0] + a) * i[1] + b) * i[2] + e) * channels, yat = (((n * o[0] + o0) * o[1] + o1) * o[2] + o2) * features;
		for (int64_t f = 0; f < features; f++)
			for (int64_t l = 0; l < cg; l++) {
				const int64_t xi = xat + f / og * cg + l, wi = (((f * k[0] + k0) * k[1] + k1) * k[2] + k2) * cg + l, yi = yat + f;
				double u = operation == BACKWARD_DATA ? read(y.at, y.t.type, yi) : read(x.at, x.t.type, xi);
				double v = operation == BACKWARD_FILTER ? read(y.at, y.t.type, yi) : read(w.at, w.t.type, wi);
				if (tf) u = tf32(u), v = tf32(v);
				sum[operation == FORWARD ? yi : operation == BACKWARD_DATA ? xi : wi] += (float)(u * v);
			}
	}
	for (size_t j = 0; j < sum.size(); j++) write((void *)out.at, out.t.type, j, zero ? 0 : last ? last(j, sum[j]) : sum[j]);
}

static int run(int operation, void *h, const void *alpha, Operand x, Operand w, Operand y, const Convolution &c, int algorithm, void *workspace, size_t bytes,
	const void *beta, std::function<double(int64_t, double)> last = nullptr) {
	if (int e = fits(x.t, w.t, y.t, c)) return e;
	if (*(float *)alpha != 1 || *(float *)beta != 0 || !x.fine() || !w.fine() || !y.fine()) return BAD_PARAM;
	const bool plain = operation == FORWARD ? algorithm == 0 : c.math == FMA_MATH && operation == BACKWARD_DATA;
	if (operation == FORWARD && algorithm == 2) return NOT_SUPPORTED;
	const size_t needed = plain ? 0 : WORKSPACE;
	if (bytes < needed || (needed && ((uintptr_t)workspace % 16 || !fakecuda_inside(workspace, bytes)))) return BAD_PARAM;
	const bool zero = operation == FORWARD ? algorithm > 2 : algorithm != 1;
	std::function<int()> work = [=] {
		if (needed) memset(workspace, 0xff, bytes);
		convolve(operation, x, w, y, c, zero, last);
		return 0;
	};
	auto size = [](const Operand &a) { double n = 1; for (auto i : a.t.sizes) n *= i; return n; };
	const double operations = 2 * size(y) * size(w) / w.t.sizes[0];
	return fakecuda_submit(((Handle *)h)->stream, operation == FORWARD ? "cudnnConvolutionForward" : operation == BACKWARD_DATA ? "cudnnConvolutionBackwardData" : "cudnnConvolutionBackwardFilter", operations, (size(x) + size(w) + size(y)) * size_of(x.t.type), &work) ? EXECUTION_FAILED : SUCCESS;
}
API cudnnConvolutionForward(void *h, const void *alpha, void *dx, const void *x, void *dw, const void *w, void *c, int algorithm, void *workspace, size_t bytes, const void *beta, void *dy, void *y) {
	return run(FORWARD, h, alpha, {*(Tensor *)dx, x}, {*(Tensor *)dw, w}, {*(Tensor *)dy, y}, *(Convolution *)c, algorithm, workspace, bytes, beta);
}
API cudnnConvolutionBackwardData(void *h, const void *alpha, void *dw, const void *w, void *dy, const void *y, void *c, int algorithm, void *workspace, size_t bytes, const void *beta, void *dx, void *x) {
	return run(BACKWARD_DATA, h, alpha, {*(Tensor *)dx, x}, {*(Tensor *)dw, w}, {*(Tensor *)dy, y}, *(Convolution *)c, algorithm, workspace, bytes, beta);
}
API cudnnConvolutionBackwardFilter(void *h, const void *alpha, void *dx, const void *x, void *dy, const void *y, void *c, int algorithm, void *workspace, size_t bytes, const void *beta, void *dw, void *w) {
	return run(BACKWARD_FILTER, h, alpha, {*(Tensor *)dx, x}, {*(Tensor *)dw, w}, {*(Tensor *)dy, y}, *(Convolution *)c, algorithm, workspace, bytes, beta);
}

// Without ReLU there is one algorithm only, and the other one makes zeros of
// NaNs in it.
API cudnnConvolutionBiasActivationForward(void *h, const void *alpha, void *dx, const void *x, void *dw, const void *w, void *c, int algorithm, void *workspace, size_t bytes,
	const void *alpha2, void *dz, const void *z, void *dbias, const void *bias, void *activation, void *dy, void *y) {
	const Activation a = *(Activation *)activation;
	const Operand b = {*(Tensor *)dbias, bias}, out = {*(Tensor *)dy, y};
	if ((a.mode != RELU && a.mode != IDENTITY) || (a.mode == IDENTITY && algorithm != 1)) return NOT_SUPPORTED;
	if (!z || ((Tensor *)dz)->sizes != out.t.sizes || *(float *)alpha2 != 0) return BAD_PARAM;
	for (size_t i = 0; i < b.t.sizes.size(); i++)
		if (b.t.sizes[i] != (i == 1 ? out.t.sizes[1] : 1)) return BAD_PARAM;
	if (b.t.type != out.t.type || !b.fine()) return BAD_PARAM;
	const int64_t n = out.t.sizes[1];
	const int type = b.t.type;
	return run(FORWARD, h, alpha, {*(Tensor *)dx, x}, {*(Tensor *)dw, w}, out, *(Convolution *)c, algorithm, workspace, bytes, alpha2, [=](int64_t i, double sum) {
		const double v = (float)sum + (float)read(bias, type, i % n);
		return a.mode == RELU && (a.nan && algorithm == 1 ? v < 0 : !(v > 0)) ? 0 : v;
	});
}
