//go:build cuda

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>

void *mezzo_dnn_load(const char *path) { return dlopen(path, RTLD_NOW | RTLD_GLOBAL); }
void mezzo_dnn_unload(void *library) { dlclose(library); }

const char *mezzo_dnn_open(mezzo_dnn *l, const char *path) {
	l->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!l->library) return dlerror();
#define FIND(member, name) \
	if (!(*(void **)&l->member = dlsym(l->library, name))) { \
		dlclose(l->library); \
		return "it has no " name; \
	}
	FIND(version, "cudnnGetVersion")
	FIND(runtime, "cudnnGetCudartVersion")
	FIND(error, "cudnnGetErrorString")
	FIND(create, "cudnnCreate")
	FIND(destroy, "cudnnDestroy")
	FIND(set_stream, "cudnnSetStream")
	FIND(tensor_create, "cudnnCreateTensorDescriptor")
	FIND(tensor_set, "cudnnSetTensorNdDescriptor")
	FIND(tensor_destroy, "cudnnDestroyTensorDescriptor")
	FIND(filter_create, "cudnnCreateFilterDescriptor")
	FIND(filter_set, "cudnnSetFilterNdDescriptor")
	FIND(filter_destroy, "cudnnDestroyFilterDescriptor")
	FIND(convolution_create, "cudnnCreateConvolutionDescriptor")
	FIND(convolution_set, "cudnnSetConvolutionNdDescriptor")
	FIND(convolution_groups, "cudnnSetConvolutionGroupCount")
	FIND(convolution_math, "cudnnSetConvolutionMathType")
	FIND(convolution_output, "cudnnGetConvolutionNdForwardOutputDim")
	FIND(convolution_destroy, "cudnnDestroyConvolutionDescriptor")
	FIND(activation_create, "cudnnCreateActivationDescriptor")
	FIND(activation_set, "cudnnSetActivationDescriptor")
	FIND(activation_destroy, "cudnnDestroyActivationDescriptor")
	FIND(algorithms[MEZZO_DNN_FORWARD], "cudnnGetConvolutionForwardAlgorithm_v7")
	FIND(algorithms[MEZZO_DNN_BACKWARD_DATA], "cudnnGetConvolutionBackwardDataAlgorithm_v7")
	FIND(algorithms[MEZZO_DNN_BACKWARD_FILTER], "cudnnGetConvolutionBackwardFilterAlgorithm_v7")
	FIND(forward, "cudnnConvolutionForward")
	FIND(fused, "cudnnConvolutionBiasActivationForward")
	FIND(backward_data, "cudnnConvolutionBackwardData")
	FIND(backward_filter, "cudnnConvolutionBackwardFilter")
#undef FIND
	return NULL;
}

size_t mezzo_dnn_version(const mezzo_dnn *l) { return l->version(); }
size_t mezzo_dnn_runtime(const mezzo_dnn *l) { return l->runtime(); }
const char *mezzo_dnn_error(const mezzo_dnn *l, int status) { return l->error(status); }
int mezzo_dnn_create(const mezzo_dnn *l, void **handle) { return l->create(handle); }
int mezzo_dnn_set_stream(const mezzo_dnn *l, void *handle, uintptr_t stream) { return l->set_stream(handle, (void *)stream); }
int mezzo_dnn_destroy(const mezzo_dnn *l, void *handle) { return l->destroy(handle); }

enum { NHWC = 1, CROSS_CORRELATION = 1, FLOAT = 0, RELU = 1, IDENTITY = 5, PROPAGATE_NAN = 1 };

// Strides of channels that are neighbours.
static int set_tensor(const mezzo_dnn *l, void *d, int type, int axes, const int *sizes) {
	int strides[MEZZO_DNN_AXES], n = sizes[1];
	strides[1] = 1;
	for (int i = axes - 1; i >= 2; i--) strides[i] = n, n *= sizes[i];
	strides[0] = n;
	return l->tensor_set(d, type, axes, sizes, strides);
}

int mezzo_dnn_describe(const mezzo_dnn *l, const mezzo_dnn_problem *p, mezzo_dnn_description *d, const char **call) {
	int e;
#define TRY(name, expression) \
	if ((e = (expression))) { \
		*call = name; \
		return e; \
	}
	TRY("cudnnCreateTensorDescriptor", l->tensor_create(&d->x))
	TRY("cudnnCreateTensorDescriptor", l->tensor_create(&d->y))
	TRY("cudnnCreateFilterDescriptor", l->filter_create(&d->w))
	TRY("cudnnCreateConvolutionDescriptor", l->convolution_create(&d->convolution))
	TRY("cudnnSetTensorNdDescriptor of the input", set_tensor(l, d->x, p->type, p->axes, p->x))
	TRY("cudnnSetTensorNdDescriptor of the output", set_tensor(l, d->y, p->type, p->axes, p->y))
	TRY("cudnnSetFilterNdDescriptor", l->filter_set(d->w, p->type, NHWC, p->axes, p->w))
	TRY("cudnnSetConvolutionNdDescriptor", l->convolution_set(d->convolution, p->axes - 2, p->padding, p->stride, p->dilation, CROSS_CORRELATION, FLOAT))
	TRY("cudnnSetConvolutionGroupCount", l->convolution_groups(d->convolution, p->groups))
	TRY("cudnnSetConvolutionMathType", l->convolution_math(d->convolution, p->math))
	if (p->bias) {
		int sizes[MEZZO_DNN_AXES] = {1, p->y[1], 1, 1, 1};
		TRY("cudnnCreateTensorDescriptor", l->tensor_create(&d->bias))
		TRY("cudnnSetTensorNdDescriptor of the bias", set_tensor(l, d->bias, p->type, p->axes, sizes))
		TRY("cudnnCreateActivationDescriptor", l->activation_create(&d->activation))
		TRY("cudnnSetActivationDescriptor", l->activation_set(d->activation, p->relu ? RELU : IDENTITY, PROPAGATE_NAN, 0))
	}
#undef TRY
	return 0;
}

void mezzo_dnn_free(const mezzo_dnn *l, mezzo_dnn_description *d) {
	if (d->x) l->tensor_destroy(d->x);
	if (d->y) l->tensor_destroy(d->y);
	if (d->bias) l->tensor_destroy(d->bias);
	if (d->w) l->filter_destroy(d->w);
	if (d->convolution) l->convolution_destroy(d->convolution);
	if (d->activation) l->activation_destroy(d->activation);
	*d = (mezzo_dnn_description){0};
}

int mezzo_dnn_output(const mezzo_dnn *l, const mezzo_dnn_description *d, int axes, int *sizes) {
	return l->convolution_output(d->convolution, d->x, d->w, axes, sizes);
}

// The operands of an operation in the order of mezzo_dnn_run.
static void operands(int operation, const mezzo_dnn_description *d, void **a, void **b, void **out) {
	*a = operation == MEZZO_DNN_BACKWARD_DATA ? d->y : d->x;
	*b = operation == MEZZO_DNN_BACKWARD_FILTER ? d->y : d->w;
	*out = operation == MEZZO_DNN_FORWARD ? d->y : operation == MEZZO_DNN_BACKWARD_DATA ? d->x : d->w;
}

int mezzo_dnn_algorithms(const mezzo_dnn *l, void *handle, int operation, const mezzo_dnn_description *d, int n, int *found, mezzo_dnn_choice *list) {
	void *a, *b, *out;
	operands(operation, d, &a, &b, &out);
	if (operation == MEZZO_DNN_BACKWARD_DATA) { // has the filter first
		void *t = a;
		a = b, b = t;
	}
	return l->algorithms[operation](handle, a, b, d->convolution, out, n, found, list);
}

int mezzo_dnn_choose(const mezzo_dnn *l, const mezzo_dnn_description *d, const mezzo_dnn_choice *c) { return l->convolution_math(d->convolution, c->math); }

int mezzo_dnn_run(const mezzo_dnn *l, void *handle, int operation, const mezzo_dnn_description *d, const mezzo_dnn_choice *c, uint64_t a, uint64_t b, uint64_t bias, uint64_t out, uint64_t workspace) {
	static const float one = 1, zero = 0;
	void *da, *db, *to;
	operands(operation, d, &da, &db, &to);
	const void *pa = (const void *)a, *pb = (const void *)b;
	void *result = (void *)out, *w = c->memory ? (void *)workspace : NULL;
	switch (operation) {
	case MEZZO_DNN_BACKWARD_DATA: return l->backward_data(handle, &one, db, pb, da, pa, d->convolution, c->algorithm, w, c->memory, &zero, to, result);
	case MEZZO_DNN_BACKWARD_FILTER: return l->backward_filter(handle, &one, da, pa, db, pb, d->convolution, c->algorithm, w, c->memory, &zero, to, result);
	}
	if (d->bias) // nothing is added but the bias: z is not read
		return l->fused(handle, &one, da, pa, db, pb, d->convolution, c->algorithm, w, c->memory, &zero, to, result, d->bias, (const void *)bias, d->activation, to, result);
	return l->forward(handle, &one, da, pa, db, pb, d->convolution, c->algorithm, w, c->memory, &zero, to, result);
}
