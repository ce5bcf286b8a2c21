/*
 * Finds the driver and its functions, once, and makes the primary context current on each thread that calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "cudart.h"

enum { LEGACY_STREAM = 1, PER_THREAD_STREAM = 2 };

static struct driver legacy, per_thread;
static pthread_once_t opened = PTHREAD_ONCE_INIT, retained = PTHREAD_ONCE_INIT;
static cudaError_t open_result, context_result;
static CUcontext primary;

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

static void retain_once(void) {
    context_result = (cudaError_t)legacy.cuDevicePrimaryCtxRetain(&primary, 0);
}

cudaError_t open_driver(void) {
    pthread_once(&opened, open_once);
    return open_result;
}

cudaError_t enter(bool own_stream, const struct driver **out) {
    static _Thread_local bool current;
    cudaError_t result = open_driver();
    *out = own_stream ? &per_thread : &legacy;
    if (result || current) return result;
    pthread_once(&retained, retain_once);
    if (context_result) return context_result;
    result = (cudaError_t)legacy.cuCtxSetCurrent(primary);
    current = result == cudaSuccess;
    return result;
}
