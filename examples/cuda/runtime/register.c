/*
 * What nvcc's code in a program registers before main: device images, and which host function stands for which kernel.
 *
 * Nothing reaches the driver until a kernel is first used (lazy loading): then its image is loaded as a library, and the
 * kernel and its function are asked for by name, once.
 */
#include <pthread.h>
#include <stdlib.h>

#include "cudart.h"

struct image {
    const void *wrapper;
    bool complete; /* all of its functions are registered */
    CUlibrary library;
};
struct kernel {
    struct kernel *next;
    struct image *image;
    const void *host; /* the host function that programs pass to cudaLaunchKernel */
    const char *name; /* mangled */
    CUkernel kernel;
    CUfunction function; /* not NULL once loaded */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel *kernels;

API void **__cudaRegisterFatBinary(void *wrapper) {
    struct image *image = calloc(1, sizeof *image);
    if (image) image->wrapper = wrapper;
    return (void **)image;
}

API void __cudaRegisterFatBinaryEnd(void **handle) {
    struct image *image = (struct image *)handle;
    pthread_mutex_lock(&lock);
    if (image) image->complete = true;
    pthread_mutex_unlock(&lock);
}

static void forget_kernels(const struct image *image) {
    for (struct kernel **at = &kernels; *at;) {
        struct kernel *k = *at;
        if (k->image != image) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        free(k);
    }
}

/* At exit, when the driver may already be gone: its library goes with the process. */
API void __cudaUnregisterFatBinary(void **handle) {
    pthread_mutex_lock(&lock);
    forget_kernels((struct image *)handle);
    pthread_mutex_unlock(&lock);
    free(handle);
}

API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit, void *tid,
                                void *bid, dim3 *block, dim3 *grid, int *warp) {
    (void)device, (void)thread_limit, (void)tid, (void)bid, (void)block, (void)grid, (void)warp;
    struct kernel *k = calloc(1, sizeof *k);
    if (!k || !handle) return;
    pthread_mutex_lock(&lock);
    *k = (struct kernel){.next = kernels, .image = (struct image *)handle, .host = host, .name = name};
    kernels = k;
    pthread_mutex_unlock(&lock);
}

/* `symbol` is a host function, or (from CUDA 13's launches) the handle that __cudaGetKernel gave. */
static struct kernel *find(const void *symbol) {
    struct kernel *k = kernels;
    while (k && k->host != symbol && (!k->kernel || (const void *)k->kernel != symbol)) k = k->next;
    return k;
}

static CUresult load(const struct driver *d, struct kernel *k) {
    struct image *image = k->image;
    CUresult result = image->complete ? CUDA_SUCCESS : (CUresult)cudaErrorInitializationError;
    if (!result && !image->library) result = d->cuLibraryLoadData(&image->library, image->wrapper, NULL, NULL, 0, NULL, NULL, 0);
    if (!result) result = d->cuLibraryGetKernel(&k->kernel, image->library, k->name);
    if (!result) result = d->cuKernelGetFunction(&k->function, k->kernel);
    return result;
}

cudaError_t kernel_of(const struct driver *d, const void *symbol, CUfunction *function, CUkernel *kernel) {
    pthread_mutex_lock(&lock);
    struct kernel *k = symbol ? find(symbol) : NULL;
    CUresult result = k ? CUDA_SUCCESS : (CUresult)cudaErrorInvalidDeviceFunction;
    if (k && !k->function) result = load(d, k);
    if (!result && function) *function = k->function;
    if (!result && kernel) *kernel = k->kernel;
    pthread_mutex_unlock(&lock);
    return (cudaError_t)result;
}
