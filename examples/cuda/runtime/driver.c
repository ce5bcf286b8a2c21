/*
 * Finds the driver and its functions, once, and makes the primary context of the thread's device current.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "cudart.h"

enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };

static struct driver legacy, per_thread;
static pthread_once_t opened = PTHREAD_ONCE_INIT;
static pthread_mutex_t retaining = PTHREAD_MUTEX_INITIALIZER;
static cudaError_t open_result;

enum { MAX_DEVICES = 8 };
static CUcontext primaries[MAX_DEVICES];
static _Thread_local int chosen;             /* by cudaSetDevice */
static _Thread_local int current_plus_1;     /* the device whose context was made current, plus 1 */

typedef CUresult (*lookup_fn)(const char *name, void **out, int version, uint64_t flags, int *status);

/* A driver that lacks a function is too old for this runtime, whatever the function. */
static cudaError_t fill(struct driver *d, lookup_fn lookup, uint64_t flags) {
    int status;
#define LOOK_UP(name, version, parameters) \
    if (lookup(#name, (void **)&d->name, version, flags, &status)) return cudaErrorInsufficientDriver;
    DRIVER_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return cudaSuccess;
}

static void open_once(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    lookup_fn lookup = library ? (lookup_fn)dlsym(library, "cuGetProcAddress_v2") : NULL;
    open_result = lookup ? fill(&legacy, lookup, LEGACY_STREAM) : cudaErrorInsufficientDriver;
    if (!open_result) open_result = fill(&per_thread, lookup, PER_THREAD_STREAM);
    if (!open_result) open_result = (cudaError_t)legacy.cuInit(0);
}

static cudaError_t retain(int device) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&retaining);
    if (!primaries[device]) result = legacy.cuDevicePrimaryCtxRetain(&primaries[device], device);
    pthread_mutex_unlock(&retaining);
    return (cudaError_t)result;
}

cudaError_t open_driver(void) {
    pthread_once(&opened, open_once);
    return open_result;
}

cudaError_t enter(bool own_stream, const struct driver **out) {
    cudaError_t result = open_driver();
    *out = own_stream ? &per_thread : &legacy;
    if (result || current_plus_1 == chosen + 1) return result;
    result = retain(chosen);
    if (!result) result = (cudaError_t)legacy.cuCtxSetCurrent(primaries[chosen]);
    if (!result) current_plus_1 = chosen + 1;
    return result;
}

/* Since CUDA 12 the device is initialised at once. */
cudaError_t choose_device(int device) {
    const struct driver *d;
    CUdevice found;
    cudaError_t result = open_driver();
    if (!result) result = (cudaError_t)legacy.cuDeviceGet(&found, device);
    if (result) return result;
    chosen = device;
    return enter(false, &d);
}

int chosen_device(void) {
    return chosen;
}
