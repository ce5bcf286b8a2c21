/*
 * Devices and versions.
 */
#include <string.h>

#include "cudart.h"

API cudaError_t cudaGetDeviceCount(int *count) {
    ENTER;
    return finish(d->cuDeviceGetCount(count));
}

API cudaError_t cudaGetDevice(int *device) {
    ENTER;
#if CUDART_MAJOR >= 13
    return finish(d->cuCtxGetDevice(device, NULL));
#else
    return finish(d->cuCtxGetDevice(device));
#endif
}

API cudaError_t cudaSetDevice(int device) {
    return finish((int)choose_device(device));
}

API cudaError_t cudaDeviceSynchronize(void) {
    ENTER;
#if CUDART_MAJOR >= 13
    return finish(d->cuCtxSynchronize(NULL));
#else
    return finish(d->cuCtxSynchronize());
#endif
}

API cudaError_t cudaDeviceReset(void) {
    ENTER;
    return finish(d->cuDevicePrimaryCtxReset(chosen_device()));
}

API cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER;
    return finish(d->cuDeviceGetAttribute(value, attribute, device));
}

API cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    ENTER;
    return finish(d->cuDeviceGetPCIBusId(text, length, device));
}

API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER;
    return finish(d->cuDeviceCanAccessPeer(can, device, peer));
}

API cudaError_t cudaDeviceGetLimit(size_t *value, int limit) {
    ENTER;
    return finish(d->cuCtxGetLimit(value, (unsigned)limit));
}

API cudaError_t cudaDeviceSetLimit(int limit, size_t value) {
    ENTER;
    return finish(d->cuCtxSetLimit((unsigned)limit, value));
}

API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER;
    return finish(d->cuCtxGetStreamPriorityRange(least, greatest));
}

API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    ENTER;
    return finish(d->cuDeviceGetDefaultMemPool(pool, device));
}

API cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    ENTER;
    return finish(d->cuCtxGetFlags(flags));
}

API cudaError_t cudaDriverGetVersion(int *version) {
    ENTER;
    return finish(d->cuDriverGetVersion(version));
}

API cudaError_t cudaRuntimeGetVersion(int *version) {
    if (!version) return finish(cudaErrorInvalidValue);
    *version = CUDART_MAJOR == 12 ? 12090 : 13000;
    return finish(cudaSuccess);
}

/* The head of cudaDeviceProp; the rest of its 1032 (12) or 1008 (13) bytes stays 0. */
struct properties {
    char name[256];
    CUuuid uuid;
    char luid[8];
    unsigned luid_mask;
    size_t total_memory, shared_per_block;
    int registers_per_block, warp;
    size_t pitch;
    int threads_per_block, block[3], grid[3], clock_khz;
    size_t constant_memory;
    int major, minor;
};
enum { PROPERTIES_BYTES = CUDART_MAJOR == 12 ? 1032 : 1008 };
_Static_assert(offsetof(struct properties, total_memory) == 288, "as in cudaDeviceProp");

static cudaError_t properties(const struct driver *d, void *out, int device) {
    struct properties p = {0};
    if (!out) return cudaErrorInvalidValue;
    CUresult result = d->cuDeviceGetName(p.name, sizeof p.name, device);
    if (result) return (cudaError_t)result;
    /* CUdevice_attribute numbers; all of these exist since CUDA 2. */
    const struct { int attribute, *to; } FIELDS[] = {
        {1, &p.threads_per_block}, {2, &p.block[0]}, {3, &p.block[1]}, {4, &p.block[2]}, {5, &p.grid[0]},
        {6, &p.grid[1]}, {7, &p.grid[2]}, {10, &p.warp}, {12, &p.registers_per_block}, {75, &p.major}, {76, &p.minor},
    };
    for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) d->cuDeviceGetAttribute(FIELDS[i].to, FIELDS[i].attribute, device);
    d->cuDeviceGetUuid(&p.uuid, device);
    d->cuDeviceTotalMem(&p.total_memory, device);
    p.shared_per_block = 49152;
    p.constant_memory = 65536;
    memset(out, 0, PROPERTIES_BYTES);
    memcpy(out, &p, sizeof p);
    return cudaSuccess;
}

API cudaError_t cudaGetDeviceProperties(void *out, int device) {
    ENTER;
    return finish((int)properties(d, out, device));
}

#if CUDART_MAJOR == 12
/* What the header of CUDA 12 makes of the plain name. */
API cudaError_t cudaGetDeviceProperties_v2(void *out, int device) {
    ENTER;
    return finish((int)properties(d, out, device));
}

/* Gone in 13. */
API cudaError_t cudaThreadSynchronize(void) {
    ENTER;
    return finish(d->cuCtxSynchronize());
}
#endif

API cudaError_t cudaProfilerStart(void) {
    ENTER;
    return finish(d->cuProfilerStart());
}

API cudaError_t cudaProfilerStop(void) {
    ENTER;
    return finish(d->cuProfilerStop());
}
