/*
 * The types of the CUDA runtime API that this directory needs: names, order and numbers are CUDA's, for x86-64.
 *
 * For programs that are built without NVIDIA's compiler; nvcc brings its own.
 */
#ifndef RUNTIME_TYPES_H
#define RUNTIME_TYPES_H

#include <stddef.h>

typedef enum {
#define RESULT(code, name, text) name = code,
#include "runtime_results.def"
#undef RESULT
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUkern_st *cudaKernel_t;
typedef struct CUfunc_st *cudaFunction_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUmemPoolHandle_st *cudaMemPool_t;
typedef void (*cudaHostFn_t)(void *user_data);

typedef struct dim3 {
    unsigned x, y, z;
} dim3;

typedef struct {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    void *attrs;
    unsigned numAttrs;
} cudaLaunchConfig_t;

struct cudaPointerAttributes {
    int type; /* cudaMemoryType: unregistered 0, host 1, device 2, managed 3 */
    int device;
    void *devicePointer, *hostPointer;
    long reserved[8]; /* 13.0 added these */
};

/* What nvcc puts around the device code of a program. */
struct fatbin_wrapper {
    int magic, version; /* FATBIN_WRAPPER_MAGIC, 1 */
    const void *data;
    void *unused;
};
#define FATBIN_WRAPPER_MAGIC 0x466243b1

#endif
