/*
 * Stream-ordered allocation. Memory comes straight from the device; a pool keeps attributes and counts, no cache.
 *
 * Freeing takes effect at the call: later work of the same stream cannot legally use the memory, and earlier work has
 * already run (see stream.c).
 */
#include <pthread.h>

#include "sim.h"

struct pool {
    struct object head;
    _Atomic uint64_t threshold; /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD */
};

static struct pool *default_pool, *chosen_pool;

static void make_default(void) {
    default_pool = chosen_pool = object_new(POOL);
}

static CUresult pool_of(CUmemoryPool handle, struct pool **out) {
    *out = (struct pool *)handle;
    return object_is(handle, POOL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult answer(CUmemoryPool *out, CUdevice device, bool chosen) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    TRY(need_device(device));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&once, make_default);
    *out = (CUmemoryPool)(chosen ? chosen_pool : default_pool);
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceGetDefaultMemPool)(CUmemoryPool *out, CUdevice device) {
    return answer(out, device, false);
}

CUresult SIM(cuDeviceGetMemPool)(CUmemoryPool *out, CUdevice device) {
    return answer(out, device, true);
}

CUresult SIM(cuDeviceSetMemPool)(CUdevice device, CUmemoryPool handle) {
    struct pool *pool;
    CUmemoryPool unused;
    TRY(answer(&unused, device, true));
    TRY(pool_of(handle, &pool));
    chosen_pool = pool;
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemPoolCreate)(CUmemoryPool *out, const void *properties) {
    TRY(need_init());
    if (!out || !properties) return CUDA_ERROR_INVALID_VALUE;
    *out = object_new(POOL);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult SIM(cuMemPoolDestroy)(CUmemoryPool handle) {
    struct pool *pool;
    TRY(pool_of(handle, &pool));
    if (pool == default_pool) return CUDA_ERROR_INVALID_VALUE;
    if (pool == chosen_pool) chosen_pool = default_pool;
    object_delete(pool);
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemPoolTrimTo)(CUmemoryPool handle, size_t keep) {
    struct pool *pool;
    (void)keep; /* nothing is cached */
    return pool_of(handle, &pool);
}

enum { ATTRIBUTE_RELEASE_THRESHOLD = 4 };

CUresult SIM(cuMemPoolSetAttribute)(CUmemoryPool handle, int attribute, void *value) {
    struct pool *pool;
    TRY(pool_of(handle, &pool));
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == ATTRIBUTE_RELEASE_THRESHOLD) pool->threshold = *(uint64_t *)value;
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemPoolGetAttribute)(CUmemoryPool handle, int attribute, void *value) {
    struct pool *pool;
    TRY(pool_of(handle, &pool));
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    if (attribute != ATTRIBUTE_RELEASE_THRESHOLD) return CUDA_ERROR_NOT_SUPPORTED;
    *(uint64_t *)value = pool->threshold;
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemAllocAsync)(CUdeviceptr *out, size_t bytes, CUstream stream) {
    TRY(device_alloc(out, bytes, TAG_POOL));
    return stream_submit(stream, &(struct work){.kind = WORK_NOTHING}, false);
}

CUresult SIM(cuMemAllocFromPoolAsync)(CUdeviceptr *out, size_t bytes, CUmemoryPool handle, CUstream stream) {
    struct pool *pool;
    TRY(pool_of(handle, &pool));
    return SIM(cuMemAllocAsync)(out, bytes, stream);
}

CUresult SIM(cuMemFreeAsync)(CUdeviceptr pointer, CUstream stream) {
    TRY(stream_submit(stream, &(struct work){.kind = WORK_NOTHING}, false));
    if (!pointer) return CUDA_SUCCESS;
    return device_free((void *)(uintptr_t)pointer, -1) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
