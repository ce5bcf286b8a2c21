/*
 * Launches. Before CUDA 13 a program passes its host function to cudaLaunchKernel; from 13 on it asks __cudaGetKernel for a
 * handle once, and __cudaLaunchKernel enters through cudaLaunchKernel with that handle.
 */
#include "cudart.h"

/* ---- the launch configuration between `<<<` and the stub ---- */

enum { MAX_NESTED = 8 };
static _Thread_local struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} pushed[MAX_NESTED];
static _Thread_local int depth;

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    if (depth == MAX_NESTED) return 1;
    pushed[depth++] = (struct configuration){grid, block, shared, stream};
    return 0;
}

API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth) return finish(cudaErrorMissingConfiguration);
    const struct configuration *c = &pushed[--depth];
    *grid = c->grid;
    *block = c->block;
    *shared = c->shared;
    *(cudaStream_t *)stream = c->stream;
    return cudaSuccess;
}

/* ---- launches ---- */

static CUresult launch(const struct driver *d, const void *symbol, dim3 g, dim3 b, void **args, size_t shared, CUstream stream) {
    CUfunction f;
    cudaError_t result = kernel_of(d, symbol, &f, NULL);
    if (result) return (CUresult)result;
    return d->cuLaunchKernel(f, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, stream, args, NULL);
}
FLAVOURS(cudaLaunchKernel, _ptsz, (const void *symbol, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream),
         launch, symbol, grid, block, args, shared, stream)

static CUresult launch_cooperative(const struct driver *d, const void *symbol, dim3 g, dim3 b, void **args, size_t shared,
                                   CUstream stream) {
    CUfunction f;
    cudaError_t result = kernel_of(d, symbol, &f, NULL);
    if (result) return (CUresult)result;
    return d->cuLaunchCooperativeKernel(f, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, stream, args);
}
FLAVOURS(cudaLaunchCooperativeKernel, _ptsz,
         (const void *symbol, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream), launch_cooperative, symbol,
         grid, block, args, shared, stream)

static CUresult launch_ex(const struct driver *d, const cudaLaunchConfig_t *c, const void *symbol, void **args) {
    CUfunction f;
    if (!c) return CUDA_ERROR_INVALID_VALUE;
    cudaError_t result = kernel_of(d, symbol, &f, NULL);
    if (result) return (CUresult)result;
    CUlaunchConfig config = {
        c->gridDim.x,  c->gridDim.y,  c->gridDim.z, c->blockDim.x, c->blockDim.y,
        c->blockDim.z, (unsigned)c->dynamicSmemBytes, c->stream, c->attrs, c->numAttrs,
    };
    return d->cuLaunchKernelEx(&config, f, args, NULL);
}
FLAVOURS(cudaLaunchKernelExC, _ptsz, (const cudaLaunchConfig_t *config, const void *symbol, void **args), launch_ex, config,
         symbol, args)

/* Since 12.9 in the shared library, whether a program uses them or not. Not through a flattened copy of cudaLaunchKernel:
 * a probe there must see these launches too. */
API cudaError_t __cudaGetKernel(cudaKernel_t *out, const void *symbol) {
    ENTER;
    if (!out) return finish(cudaErrorInvalidValue);
    return finish((int)kernel_of(d, symbol, NULL, out));
}

API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

API cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t stream) {
    return cudaLaunchKernel_ptsz(kernel, grid, block, args, shared, stream);
}

API cudaError_t cudaGetKernel(cudaKernel_t *out, const void *symbol) {
    return __cudaGetKernel(out, symbol);
}

API cudaError_t cudaGetFuncBySymbol(cudaFunction_t *out, const void *symbol) {
    ENTER;
    if (!out) return finish(cudaErrorInvalidValue);
    return finish((int)kernel_of(d, symbol, out, NULL));
}

/* ---- properties of kernels ---- */

API cudaError_t cudaFuncSetAttribute(const void *symbol, int attribute, int value) {
    CUfunction f;
    ENTER;
    cudaError_t result = kernel_of(d, symbol, &f, NULL);
    return finish(result ? (int)result : (int)d->cuFuncSetAttribute(f, attribute, value));
}

API cudaError_t cudaFuncSetCacheConfig(const void *symbol, int config) {
    CUfunction f;
    ENTER;
    cudaError_t result = kernel_of(d, symbol, &f, NULL);
    return finish(result ? (int)result : (int)d->cuFuncSetCacheConfig(f, config));
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *symbol, int block, size_t shared) {
    CUfunction f;
    ENTER;
    cudaError_t result = kernel_of(d, symbol, &f, NULL);
    return finish(result ? (int)result : (int)d->cuOccupancyMaxActiveBlocksPerMultiprocessor(out, f, block, shared));
}
