/*
 * Initialisation and contexts: who is current on a thread, the primary context and its count of holders.
 *
 * CUDASIM_DEVICES devices (default 1), all alike and with one memory: when the last context goes, all of it goes.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim.h"

enum { MAX_DEPTH = 16, PRIORITY_LOW = 0, PRIORITY_HIGH = -5 };
enum { LEGACY_ID = 7, PER_THREAD_ID = 8 }; /* of streams; those that programs create have larger ones */

static atomic_bool initialised, shut_down;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *primaries[MAX_DEVICES];
static unsigned primary_flags[MAX_DEVICES], live_contexts;

static _Thread_local struct {
    struct context *at[MAX_DEPTH];
    int depth;
} current;

CUresult need_init(void) {
    if (atomic_load_explicit(&shut_down, memory_order_relaxed)) return CUDA_ERROR_DEINITIALIZED;
    return atomic_load_explicit(&initialised, memory_order_relaxed) ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static int devices;

static void count_devices(void) {
    uint64_t wanted = env_bytes("CUDASIM_DEVICES", 1);
    devices = wanted < 1 ? 1 : wanted > MAX_DEVICES ? MAX_DEVICES : (int)wanted;
}

int device_count(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, count_devices);
    return devices;
}

CUresult need_device(CUdevice device) {
    TRY(need_init());
    return device >= 0 && device < device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

struct context *context_current(void) {
    return current.depth ? current.at[current.depth - 1] : NULL;
}

CUresult need_context(struct context **out) {
    TRY(need_init());
    *out = context_current();
    if (!*out) return CUDA_ERROR_INVALID_CONTEXT;
    if (!object_is(*out, CONTEXT)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return atomic_load_explicit(&(*out)->broken, memory_order_relaxed);
}

void context_wait(struct context *context) {
    gpu_wait(atomic_load(&context->ready_at));
}

static CUresult context_new(struct context **out, CUdevice device, unsigned flags, unsigned version) {
    struct context *context = object_new(CONTEXT);
    if (!context) return CUDA_ERROR_OUT_OF_MEMORY;
    context->device = device;
    context->flags = flags;
    context->version = version;
    stream_init(&context->legacy, context, CU_STREAM_DEFAULT, PRIORITY_LOW);
    stream_init(&context->per_thread, context, CU_STREAM_DEFAULT, PRIORITY_LOW);
    context->legacy.id = LEGACY_ID;
    context->per_thread.id = PER_THREAD_ID;
    live_contexts++;
    kernel_driver_new_context(context);
    spend_ns(NS_CONTEXT);
    *out = context;
    return CUDA_SUCCESS;
}

static void context_delete(struct context *context) {
    context_wait(context);
    if (--live_contexts == 0) memory_reset();
    kernel_driver_delete_context(context);
    object_delete(context);
}

/* Puts `context` on top of this thread's stack, in place of the top or above it. */
static CUresult make_current(struct context *context, bool push) {
    if (push && current.depth == MAX_DEPTH) return CUDA_ERROR_INVALID_CONTEXT;
    if (push || current.depth == 0) current.depth++;
    current.at[current.depth - 1] = context;
    return CUDA_SUCCESS;
}

static CUresult context_of(CUcontext handle, struct context **out) {
    TRY(need_init());
    *out = (struct context *)handle;
    if (!handle) return need_context(out);
    return object_is(handle, CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static void shut_down_driver(void) {
    atomic_store(&shut_down, true);
}

/* As in the real driver: destructors that run after this handler find it shut down. */
CUresult SIM(cuInit)(unsigned flags) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    pthread_once(&once, kernel_driver_open);
    if (atomic_exchange(&initialised, true)) return need_init();
    atexit(shut_down_driver);
    spend_ns(NS_CONTEXT);
    usleep(1000 * (useconds_t)env_bytes("CUDASIM_INIT_MS", 0));
    inject();
    return CUDA_SUCCESS;
}

CUresult SIM(cuDevicePrimaryCtxRetain)(CUcontext *out, CUdevice device) {
    TRY(need_device(device));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    struct context **primary = &primaries[device];
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!*primary) result = context_new(primary, device, primary_flags[device], 3020);
    if (!result) {
        (*primary)->primary = true;
        (*primary)->retained++;
        *out = (CUcontext)*primary;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult SIM(cuDevicePrimaryCtxRelease_v2)(CUdevice device) {
    TRY(need_device(device));
    struct context **primary = &primaries[device];
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!*primary) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--(*primary)->retained == 0) {
        context_delete(*primary);
        *primary = NULL;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult SIM(cuDevicePrimaryCtxReset_v2)(CUdevice device) {
    TRY(need_device(device));
    struct context *primary = primaries[device];
    pthread_mutex_lock(&lock);
    if (primary) {
        context_wait(primary);
        atomic_store(&primary->broken, CUDA_SUCCESS);
        memory_reset();
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult SIM(cuDevicePrimaryCtxGetState)(CUdevice device, unsigned *flags, int *active) {
    TRY(need_device(device));
    if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
    *flags = primaries[device] ? primaries[device]->flags : primary_flags[device];
    *active = primaries[device] != NULL;
    return CUDA_SUCCESS;
}

CUresult SIM(cuDevicePrimaryCtxSetFlags_v2)(CUdevice device, unsigned flags) {
    TRY(need_device(device));
    primary_flags[device] = flags;
    if (primaries[device]) primaries[device]->flags = flags;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice device, unsigned version) {
    TRY(need_device(device));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    struct context *context;
    pthread_mutex_lock(&lock);
    CUresult result = context_new(&context, device, flags, version);
    pthread_mutex_unlock(&lock);
    TRY(result);
    *out = (CUcontext)context;
    return make_current(context, true);
}

CUresult SIM(cuCtxCreate_v2)(CUcontext *out, unsigned flags, CUdevice device) {
    return create(out, flags, device, 3020);
}

CUresult SIM(cuCtxCreate_v3)(CUcontext *out, void *affinity, int count, unsigned flags, CUdevice device) {
    if (affinity && count) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return create(out, flags, device, 11040);
}

CUresult SIM(cuCtxCreate_v4)(CUcontext *out, void *params, unsigned flags, CUdevice device) {
    if (params) return CUDA_ERROR_NOT_SUPPORTED;
    return create(out, flags, device, 12050);
}

CUresult SIM(cuCtxDestroy_v2)(CUcontext handle) {
    struct context *context;
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    TRY(context_of(handle, &context));
    if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (context_current() == context) current.depth--;
    pthread_mutex_lock(&lock);
    context_delete(context);
    pthread_mutex_unlock(&lock);
    linger();
    return CUDA_SUCCESS;
}

CUresult SIM(cuCtxPushCurrent_v2)(CUcontext handle) {
    struct context *context;
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    TRY(context_of(handle, &context));
    return make_current(context, true);
}

CUresult SIM(cuCtxPopCurrent_v2)(CUcontext *out) {
    TRY(need_init());
    if (!current.depth) return CUDA_ERROR_INVALID_CONTEXT;
    if (out) *out = (CUcontext)context_current();
    current.depth--;
    return CUDA_SUCCESS;
}

CUresult SIM(cuCtxSetCurrent)(CUcontext handle) {
    struct context *context;
    TRY(need_init());
    if (!handle) {
        if (current.depth) current.depth--;
        return CUDA_SUCCESS;
    }
    TRY(context_of(handle, &context));
    return make_current(context, false);
}

CUresult SIM(cuCtxGetCurrent)(CUcontext *out) {
    TRY(need_init());
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUcontext)context_current();
    return CUDA_SUCCESS;
}

CUresult SIM(cuCtxGetDevice_v2)(CUdevice *out, CUcontext handle) {
    struct context *context;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(context_of(handle, &context));
    *out = context->device;
    return CUDA_SUCCESS;
}

CUresult SIM(cuCtxGetDevice)(CUdevice *out) {
    return SIM(cuCtxGetDevice_v2)(out, NULL);
}

CUresult SIM(cuCtxGetFlags)(unsigned *out) {
    struct context *context;
    TRY(need_context(&context));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = context->flags;
    return CUDA_SUCCESS;
}

CUresult SIM(cuCtxGetApiVersion)(CUcontext handle, unsigned *out) {
    struct context *context;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(context_of(handle, &context));
    *out = context->version;
    return CUDA_SUCCESS;
}

CUresult SIM(cuCtxGetId)(CUcontext handle, unsigned long long *out) {
    struct context *context;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(context_of(handle, &context));
    *out = context->head.serial;
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUcontext handle) {
    struct context *context;
    TRY(context_of(handle, &context));
    uint64_t start = watched_now_ns();
    context_wait(context);
    struct span span = {start, start ? now_ns() : 0};
    if (start) observe_wait(WAIT_CONTEXT, context, (uint32_t)OBSERVED_NONE, (uint32_t)OBSERVED_NONE, span);
    return atomic_load(&context->broken);
}

CUresult SIM(cuCtxSynchronize_v2)(CUcontext handle) {
    OBSERVED(800, synchronize(handle));
}

CUresult SIM(cuCtxSynchronize)(void) {
    OBSERVED(17, synchronize(NULL));
}

CUresult SIM(cuCtxGetStreamPriorityRange)(int *least, int *greatest) {
    struct context *context;
    TRY(need_context(&context));
    if (least) *least = PRIORITY_LOW;
    if (greatest) *greatest = PRIORITY_HIGH;
    return CUDA_SUCCESS;
}

/* Limits in the order of CUlimit: stack, printf buffer, malloc heap; the rest are not kept. */
enum { LIMITS = 3 };
static _Atomic size_t limits[LIMITS] = {1024, 1 << 20, 8 << 20};

CUresult SIM(cuCtxGetLimit)(size_t *out, unsigned limit) {
    struct context *context;
    TRY(need_context(&context));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (limit >= LIMITS) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *out = limits[limit];
    return CUDA_SUCCESS;
}

CUresult SIM(cuCtxSetLimit)(unsigned limit, size_t value) {
    struct context *context;
    TRY(need_context(&context));
    if (limit >= LIMITS) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult SIM(cuCtxGetCacheConfig)(int *out) {
    struct context *context;
    TRY(need_context(&context));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return CUDA_SUCCESS;
}

/* A preference; real devices may ignore it and this one does. */
CUresult SIM(cuCtxSetCacheConfig)(int config) {
    struct context *context;
    (void)config;
    return need_context(&context);
}
