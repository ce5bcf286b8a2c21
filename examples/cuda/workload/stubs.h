/*
 * What nvcc would put into a program for its kernels: an image that registers itself before main, a host function for
 * each kernel under the kernel's own mangled name, and the launch sequence of CUDA 12 or 13 inside it.
 */
#ifndef STUBS_H
#define STUBS_H

#include "ptx.h"

static struct fatbin_wrapper image = {FATBIN_WRAPPER_MAGIC, 1, kernels_ptx, NULL};
static void **image_handle;

#define LAUNCH_FROM_STUB(host, args)                              \
    do {                                                          \
        dim3 grid, block;                                         \
        size_t shared;                                            \
        cudaStream_t stream;                                      \
        if (CALL(__cudaPopCallConfiguration, &grid, &block, &shared, &stream)) return; \
        LAUNCH_BY_MAJOR(host, args);                              \
    } while (0)

#if CUDART_MAJOR >= 13
/* A handle for each stub, asked for when it first runs; the lock is what C++ does for a static of a function. */
static inline void kernel_handle(cudaKernel_t *handle, const void *host) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&once);
    if (!*handle) CALL(__cudaGetKernel, handle, host);
    pthread_mutex_unlock(&once);
}
/* __cudaLaunchKernel enters through cudaLaunchKernel: both happen. */
#define LAUNCH_BY_MAJOR(host, args)                                                                      \
    static cudaKernel_t handle;                                                                          \
    kernel_handle(&handle, (const void *)host);                                                          \
    tallied(CALL_cudaLaunchKernel, CALL(__cudaLaunchKernel, handle, grid, block, args, shared, stream))
#else
#define LAUNCH_BY_MAJOR(host, args) CALL(cudaLaunchKernel, (const void *)host, grid, block, args, shared, stream)
#endif

void _Z10vector_addPKfS0_Pfi(const float *a, const float *b, float *c, int n) {
    void *args[] = {&a, &b, &c, &n};
    LAUNCH_FROM_STUB(_Z10vector_addPKfS0_Pfi, args);
}

void _Z5saxpyfPKfPfi(float a, const float *x, float *y, int n) {
    void *args[] = {&a, &x, &y, &n};
    LAUNCH_FROM_STUB(_Z5saxpyfPKfPfi, args);
}

void _Z4fillPffi(float *p, float value, int n) {
    void *args[] = {&p, &value, &n};
    LAUNCH_FROM_STUB(_Z4fillPffi, args);
}

void _Z5scalePffi(float *p, float factor, int n) {
    void *args[] = {&p, &factor, &n};
    LAUNCH_FROM_STUB(_Z5scalePffi, args);
}

void _Z10reduce_sumPKfPfi(const float *in, float *out, int n) {
    void *args[] = {&in, &out, &n};
    LAUNCH_FROM_STUB(_Z10reduce_sumPKfPfi, args);
}

/* The source names, as `kernel<<<...>>>` would use them. */
#define vector_add _Z10vector_addPKfS0_Pfi
#define saxpy _Z5saxpyfPKfPfi
#define fill _Z4fillPffi
#define scale _Z5scalePffi
#define reduce_sum _Z10reduce_sumPKfPfi
#define RUN(kernel, grid, block, stream, ...)                                                                  \
    do {                                                                                                       \
        dim3 grid_ = {(unsigned)(grid), 1, 1}, block_ = {(unsigned)(block), 1, 1};                             \
        if (!CALL(__cudaPushCallConfiguration, grid_, block_, 0, stream)) kernel(__VA_ARGS__);                 \
    } while (0)

static void register_one(const void *host, const char *name) {
    mine.calls[CALL___cudaRegisterFunction]++;
    __cudaRegisterFunction(image_handle, (const char *)host, (char *)(uintptr_t)name, name, -1, NULL, NULL, NULL, NULL, NULL);
}

__attribute__((constructor)) static void register_kernels(void) {
    mine.calls[CALL___cudaRegisterFatBinary]++;
    image_handle = __cudaRegisterFatBinary(&image);
    register_one((const void *)vector_add, "_Z10vector_addPKfS0_Pfi");
    register_one((const void *)saxpy, "_Z5saxpyfPKfPfi");
    register_one((const void *)fill, "_Z4fillPffi");
    register_one((const void *)scale, "_Z5scalePffi");
    register_one((const void *)reduce_sum, "_Z10reduce_sumPKfPfi");
    mine.calls[CALL___cudaRegisterFatBinaryEnd]++;
    __cudaRegisterFatBinaryEnd(image_handle);
}

/* After main, and so after the counts are printed. */
__attribute__((destructor)) static void unregister_kernels(void) {
    __cudaUnregisterFatBinary(image_handle);
}

#endif
