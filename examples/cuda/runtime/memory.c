/*
 * Allocation, copies and fills.
 */
#include "cudart.h"

API cudaError_t cudaMalloc(void **out, size_t bytes) {
    CUdeviceptr pointer = 0;
    ENTER;
    if (!out) return finish(cudaErrorInvalidValue);
    CUresult result = bytes ? d->cuMemAlloc(&pointer, bytes) : CUDA_SUCCESS; /* of nothing: NULL */
    if (!result) *out = (void *)(uintptr_t)pointer;
    return finish(result);
}

API cudaError_t cudaFree(void *pointer) {
    ENTER;
    return finish(pointer ? d->cuMemFree(ADDRESS(pointer)) : CUDA_SUCCESS);
}

API cudaError_t cudaMallocManaged(void **out, size_t bytes, unsigned flags) {
    CUdeviceptr pointer;
    ENTER;
    if (!out) return finish(cudaErrorInvalidValue);
    CUresult result = d->cuMemAllocManaged(&pointer, bytes, flags);
    if (!result) *out = (void *)(uintptr_t)pointer;
    return finish(result);
}

API cudaError_t cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
    CUdeviceptr pointer;
    ENTER;
    if (!out) return finish(cudaErrorInvalidValue);
    CUresult result = d->cuMemAllocPitch(&pointer, pitch, width, height, 4);
    if (!result) *out = (void *)(uintptr_t)pointer;
    return finish(result);
}

API cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    ENTER;
    return finish(d->cuMemHostAlloc(out, bytes, flags));
}

API cudaError_t cudaMallocHost(void **out, size_t bytes) {
    ENTER;
    return finish(d->cuMemHostAlloc(out, bytes, 0));
}

API cudaError_t cudaFreeHost(void *pointer) {
    ENTER;
    return finish(d->cuMemFreeHost(pointer));
}

API cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
    ENTER;
    return finish(d->cuMemHostRegister(pointer, bytes, flags));
}

API cudaError_t cudaHostUnregister(void *pointer) {
    ENTER;
    return finish(d->cuMemHostUnregister(pointer));
}

API cudaError_t cudaHostGetDevicePointer(void **out, void *pointer, unsigned flags) {
    CUdeviceptr found;
    ENTER;
    if (!out) return finish(cudaErrorInvalidValue);
    CUresult result = d->cuMemHostGetDevicePointer(&found, pointer, flags);
    if (!result) *out = (void *)(uintptr_t)found;
    return finish(result);
}

API cudaError_t cudaHostGetFlags(unsigned *out, void *pointer) {
    ENTER;
    return finish(d->cuMemHostGetFlags(out, pointer));
}

API cudaError_t cudaMemGetInfo(size_t *unused, size_t *total) {
    ENTER;
    return finish(d->cuMemGetInfo(unused, total));
}

/* Memory that CUDA has not seen is no error: its type is 0, unregistered. */
API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *pointer) {
    enum { MEMORY_TYPE = 2, IS_MANAGED = 8 };
    unsigned type = 0, managed = 0;
    ENTER;
    if (!out) return finish(cudaErrorInvalidValue);
    d->cuPointerGetAttribute(&type, MEMORY_TYPE, ADDRESS(pointer));
    d->cuPointerGetAttribute(&managed, IS_MANAGED, ADDRESS(pointer));
    out->type = managed ? 3 : (int)type;
    out->device = type ? 0 : -2;
    out->devicePointer = type ? (void *)(uintptr_t)pointer : NULL;
    out->hostPointer = type == CU_MEMORYTYPE_DEVICE && !managed ? NULL : (void *)(uintptr_t)pointer;
    return finish(cudaSuccess);
}

/* ---- in stream order ---- */

static CUresult malloc_async(const struct driver *d, void **out, size_t bytes, CUstream stream) {
    CUdeviceptr pointer;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = d->cuMemAllocAsync(&pointer, bytes, stream);
    if (!result) *out = (void *)(uintptr_t)pointer;
    return result;
}
FLAVOURS(cudaMallocAsync, _ptsz, (void **out, size_t bytes, cudaStream_t stream), malloc_async, out, bytes, stream)

static CUresult malloc_from_pool(const struct driver *d, void **out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    CUdeviceptr pointer;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = d->cuMemAllocFromPoolAsync(&pointer, bytes, pool, stream);
    if (!result) *out = (void *)(uintptr_t)pointer;
    return result;
}
FLAVOURS(cudaMallocFromPoolAsync, _ptsz, (void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
         malloc_from_pool, out, bytes, pool, stream)

static CUresult free_async(const struct driver *d, void *pointer, CUstream stream) {
    return d->cuMemFreeAsync(ADDRESS(pointer), stream);
}
FLAVOURS(cudaFreeAsync, _ptsz, (void *pointer, cudaStream_t stream), free_async, pointer, stream)

/* ---- copies: the kind chooses the driver's function ---- */

static CUresult copy(const struct driver *d, void *to, const void *from, size_t bytes, int kind) {
    switch (kind) {
    case cudaMemcpyHostToDevice: return d->cuMemcpyHtoD(ADDRESS(to), from, bytes);
    case cudaMemcpyDeviceToHost: return d->cuMemcpyDtoH(to, ADDRESS(from), bytes);
    case cudaMemcpyDeviceToDevice: return d->cuMemcpyDtoD(ADDRESS(to), ADDRESS(from), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return d->cuMemcpy(ADDRESS(to), ADDRESS(from), bytes);
    default: return (CUresult)cudaErrorInvalidMemcpyDirection;
    }
}
FLAVOURS(cudaMemcpy, _ptds, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind), copy, to, from, bytes,
         (int)kind)

static CUresult copy_async(const struct driver *d, void *to, const void *from, size_t bytes, int kind, CUstream stream) {
    switch (kind) {
    case cudaMemcpyHostToDevice: return d->cuMemcpyHtoDAsync(ADDRESS(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost: return d->cuMemcpyDtoHAsync(to, ADDRESS(from), bytes, stream);
    case cudaMemcpyDeviceToDevice: return d->cuMemcpyDtoDAsync(ADDRESS(to), ADDRESS(from), bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return d->cuMemcpyAsync(ADDRESS(to), ADDRESS(from), bytes, stream);
    default: return (CUresult)cudaErrorInvalidMemcpyDirection;
    }
}
FLAVOURS(cudaMemcpyAsync, _ptsz, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
         copy_async, to, from, bytes, (int)kind, stream)

/* Which memory each side of a 2-D copy is in, by kind. */
static bool sides(int kind, unsigned *to, unsigned *from) {
    static const unsigned TYPES[][2] = {
        [cudaMemcpyHostToHost] = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST},
        [cudaMemcpyHostToDevice] = {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST},
        [cudaMemcpyDeviceToHost] = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE},
        [cudaMemcpyDeviceToDevice] = {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE},
        [cudaMemcpyDefault] = {CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_UNIFIED},
    };
    if (kind < 0 || kind > cudaMemcpyDefault) return false;
    *to = TYPES[kind][0];
    *from = TYPES[kind][1];
    return true;
}

struct rectangle {
    void *to;
    size_t to_pitch;
    const void *from;
    size_t from_pitch, width, height;
};

static CUresult describe(const struct rectangle *r, int kind, CUDA_MEMCPY2D *out) {
    *out = (CUDA_MEMCPY2D){
        .srcHost = r->from, .srcDevice = ADDRESS(r->from), .srcPitch = r->from_pitch,
        .dstHost = r->to, .dstDevice = ADDRESS(r->to), .dstPitch = r->to_pitch,
        .WidthInBytes = r->width, .Height = r->height,
    };
    if (!sides(kind, &out->dstMemoryType, &out->srcMemoryType)) return (CUresult)cudaErrorInvalidMemcpyDirection;
    return r->width > r->to_pitch || r->width > r->from_pitch ? (CUresult)cudaErrorInvalidPitchValue : CUDA_SUCCESS;
}

static CUresult copy_2d(const struct driver *d, struct rectangle r, int kind) {
    CUDA_MEMCPY2D p;
    CUresult result = describe(&r, kind, &p);
    return result ? result : d->cuMemcpy2DUnaligned(&p);
}

static CUresult copy_2d_async(const struct driver *d, struct rectangle r, int kind, CUstream stream) {
    CUDA_MEMCPY2D p;
    CUresult result = describe(&r, kind, &p);
    return result ? result : d->cuMemcpy2DAsync(&p, stream);
}

#define RECTANGLE ((struct rectangle){to, to_pitch, from, from_pitch, width, height})
FLAVOURS(cudaMemcpy2D, _ptds,
         (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, enum cudaMemcpyKind kind),
         copy_2d, RECTANGLE, (int)kind)
FLAVOURS(cudaMemcpy2DAsync, _ptsz,
         (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, enum cudaMemcpyKind kind,
          cudaStream_t stream),
         copy_2d_async, RECTANGLE, (int)kind, stream)

/* ---- fills ---- */

static CUresult fill(const struct driver *d, void *to, int value, size_t bytes) {
    return d->cuMemsetD8(ADDRESS(to), (unsigned char)value, bytes);
}
FLAVOURS(cudaMemset, _ptds, (void *to, int value, size_t bytes), fill, to, value, bytes)

static CUresult fill_async(const struct driver *d, void *to, int value, size_t bytes, CUstream stream) {
    return d->cuMemsetD8Async(ADDRESS(to), (unsigned char)value, bytes, stream);
}
FLAVOURS(cudaMemsetAsync, _ptsz, (void *to, int value, size_t bytes, cudaStream_t stream), fill_async, to, value, bytes, stream)

static CUresult fill_2d(const struct driver *d, void *to, size_t pitch, int value, size_t width, size_t height) {
    return d->cuMemsetD2D8(ADDRESS(to), pitch, (unsigned char)value, width, height);
}
FLAVOURS(cudaMemset2D, _ptds, (void *to, size_t pitch, int value, size_t width, size_t height), fill_2d, to, pitch, value,
         width, height)

static CUresult fill_2d_async(const struct driver *d, void *to, size_t pitch, int value, size_t width, size_t height,
                              CUstream stream) {
    return d->cuMemsetD2D8Async(ADDRESS(to), pitch, (unsigned char)value, width, height, stream);
}
FLAVOURS(cudaMemset2DAsync, _ptsz, (void *to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
         fill_2d_async, to, pitch, value, width, height, stream)
