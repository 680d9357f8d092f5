// The functions of cuDNN that Mezzo calls, found in a library that is loaded.
// Numbers and signatures are those of cudnn.h 8 and 9, which agree in all that
// is used here.
#ifndef MEZZO_CUDNN_SHIM_H
#define MEZZO_CUDNN_SHIM_H

#include <stddef.h>
#include <stdint.h>

// The most axes of a tensor: images, channels, and three in space.
#define MEZZO_DNN_AXES 5

enum { MEZZO_DNN_FORWARD, MEZZO_DNN_BACKWARD_DATA, MEZZO_DNN_BACKWARD_FILTER };

typedef struct { // cudnnConvolutionFwdAlgoPerf_t, and those of the gradients
	int algorithm, status;
	float time;
	size_t memory;
	int determinism, math;
	int reserved[3];
} mezzo_dnn_choice;

// The problem: sizes are those of images, channels, and what is in space. In
// memory channels are neighbours.
typedef struct {
	int operation, type, math, axes, groups;
	int x[MEZZO_DNN_AXES], w[MEZZO_DNN_AXES], y[MEZZO_DNN_AXES];
	int padding[MEZZO_DNN_AXES - 2], stride[MEZZO_DNN_AXES - 2], dilation[MEZZO_DNN_AXES - 2];
	int bias, relu;
} mezzo_dnn_problem;

// What describes it to the library.
typedef struct { void *x, *w, *y, *convolution, *bias, *activation; } mezzo_dnn_description;

typedef struct {
	void *library;
	size_t (*version)(void);
	size_t (*runtime)(void);
	const char *(*error)(int);
	int (*create)(void **);
	int (*destroy)(void *);
	int (*set_stream)(void *, void *stream);
	int (*tensor_create)(void **);
	int (*tensor_set)(void *, int type, int axes, const int *sizes, const int *strides);
	int (*tensor_destroy)(void *);
	int (*filter_create)(void **);
	int (*filter_set)(void *, int type, int format, int axes, const int *sizes);
	int (*filter_destroy)(void *);
	int (*convolution_create)(void **);
	int (*convolution_set)(void *, int axes, const int *padding, const int *stride, const int *dilation, int mode, int type);
	int (*convolution_groups)(void *, int);
	int (*convolution_math)(void *, int);
	int (*convolution_output)(void *, void *x, void *w, int axes, int *sizes);
	int (*convolution_destroy)(void *);
	int (*activation_create)(void **);
	int (*activation_set)(void *, int mode, int nan, double);
	int (*activation_destroy)(void *);
	// Of the forward convolution and its two gradients: the first two tensors
	// are the operands, the last one is the result.
	int (*algorithms[3])(void *handle, void *a, void *b, void *convolution, void *out, int, int *, mezzo_dnn_choice *);
	int (*forward)(void *handle, const void *alpha, void *dx, const void *x, void *dw, const void *w, void *convolution, int algorithm,
		void *workspace, size_t, const void *beta, void *dy, void *y);
	int (*fused)(void *handle, const void *alpha, void *dx, const void *x, void *dw, const void *w, void *convolution, int algorithm,
		void *workspace, size_t, const void *alpha2, void *dz, const void *z, void *dbias, const void *bias, void *activation, void *dy, void *y);
	int (*backward_data)(void *handle, const void *alpha, void *dw, const void *w, void *dy, const void *y, void *convolution, int algorithm,
		void *workspace, size_t, const void *beta, void *dx, void *x);
	int (*backward_filter)(void *handle, const void *alpha, void *dx, const void *x, void *dy, const void *y, void *convolution, int algorithm,
		void *workspace, size_t, const void *beta, void *dw, void *w);
} mezzo_dnn;

// mezzo_dnn_open loads a library. It returns NULL, or what is wrong with it.
const char *mezzo_dnn_open(mezzo_dnn *, const char *path);

// mezzo_dnn_load loads a library that others depend on, or returns NULL;
// mezzo_dnn_unload undoes it.
void *mezzo_dnn_load(const char *path);
void mezzo_dnn_unload(void *library);

size_t mezzo_dnn_version(const mezzo_dnn *);
size_t mezzo_dnn_runtime(const mezzo_dnn *);
const char *mezzo_dnn_error(const mezzo_dnn *, int status);
int mezzo_dnn_create(const mezzo_dnn *, void **handle);
int mezzo_dnn_set_stream(const mezzo_dnn *, void *handle, uintptr_t stream);
int mezzo_dnn_destroy(const mezzo_dnn *, void *handle);

// mezzo_dnn_describe describes a problem. On failure *call is the function that
// failed; the description is to be freed all the same.
int mezzo_dnn_describe(const mezzo_dnn *, const mezzo_dnn_problem *, mezzo_dnn_description *, const char **call);
void mezzo_dnn_free(const mezzo_dnn *, mezzo_dnn_description *);

// mezzo_dnn_output is the sizes of a convolution's result.
int mezzo_dnn_output(const mezzo_dnn *, const mezzo_dnn_description *, int axes, int *sizes);

// mezzo_dnn_algorithms asks for at most n algorithms, the best one first.
int mezzo_dnn_algorithms(const mezzo_dnn *, void *handle, int operation, const mezzo_dnn_description *, int n, int *found, mezzo_dnn_choice *);

// mezzo_dnn_choose sets what an algorithm multiplies with.
int mezzo_dnn_choose(const mezzo_dnn *, const mezzo_dnn_description *, const mezzo_dnn_choice *);

// mezzo_dnn_run computes the result of two operands, which are x and w, y and w,
// or x and y; bias is 0 for none.
int mezzo_dnn_run(const mezzo_dnn *, void *handle, int operation, const mezzo_dnn_description *, const mezzo_dnn_choice *, uint64_t a, uint64_t b, uint64_t bias, uint64_t out, uint64_t workspace);

#endif
