/*
 * Streams. Work runs at once on the submitting thread; what a stream keeps is the moment when a GPU would be done with it.
 *
 * So results are never late, order within a thread is program order, and a query or a wait sees the time that the work
 * would take. The default stream waits for the others and they for it, unless they were made non-blocking. The `_ptsz`
 * forms share the legacy default stream here: they differ only in what stream 0 means.
 */
#include <pthread.h>
#include <string.h>

#include "sim.h"

void stream_init(struct stream *stream, struct context *context, unsigned flags, int priority) {
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
}

CUresult stream_of(CUstream handle, struct stream **out) {
    struct context *context;
    TRY(need_context(&context));
    switch ((uintptr_t)handle) {
    case 0:
    case 1: *out = &context->legacy; return CUDA_SUCCESS;
    case 2: *out = &context->per_thread; return CUDA_SUCCESS;
    default: *out = (struct stream *)handle; return object_is(handle, STREAM) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
}

static void raise_to(_Atomic uint64_t *at, uint64_t value) {
    uint64_t seen = atomic_load(at);
    while (seen < value && !atomic_compare_exchange_weak(at, &seen, value)) continue;
}

/* When the stream could begin something new. */
static uint64_t begins_at(const struct stream *s) {
    uint64_t ready = atomic_load(&s->ready_at), now = now_ns();
    bool blocking = !(s->flags & CU_STREAM_NON_BLOCKING);
    uint64_t other = s == &s->context->legacy ? s->context->ready_at : blocking ? s->context->legacy.ready_at : 0;
    if (ready < other) ready = other;
    return ready < now ? now : ready;
}

static void account(struct stream *s, uint64_t cost) {
    if (!cost) return;
    uint64_t done = begins_at(s) + cost;
    raise_to(&s->ready_at, done);
    raise_to(&s->context->ready_at, done);
}

CUresult stream_submit(CUstream handle, const struct work *work, bool wait) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (s->capture) return wait ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : graph_append(s->capture, work, NULL);
    CUresult result = work_run(work);
    account(s, work_cost_ns(work));
    if (result) atomic_store(&s->context->broken, result); /* reported by the next call, as for a real kernel */
    if (wait) wait_until_ns(s->ready_at);
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamCreateWithPriority)(CUstream *out, unsigned flags, int priority) {
    struct context *context;
    TRY(need_context(&context));
    if (!out || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    struct stream *s = object_new(STREAM);
    if (!s) return CUDA_ERROR_OUT_OF_MEMORY;
    stream_init(s, context, flags, priority);
    spend_ns(NS_CREATE);
    *out = (CUstream)s;
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamCreate)(CUstream *out, unsigned flags) {
    return SIM(cuStreamCreateWithPriority)(out, flags, 0);
}

static CUresult own_stream(CUstream handle, struct stream **out) {
    TRY(stream_of(handle, out));
    return (uintptr_t)handle <= 2 ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult SIM(cuStreamDestroy_v2)(CUstream handle) {
    struct stream *s;
    TRY(own_stream(handle, &s));
    object_delete(s);
    linger();
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamSynchronize)(CUstream handle) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    wait_until_ns(s == &s->context->legacy ? s->context->ready_at : s->ready_at);
    return atomic_load(&s->context->broken);
}

CUresult SIM(cuStreamQuery)(CUstream handle) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    return s->ready_at > now_ns() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult SIM(cuStreamGetFlags)(CUstream handle, unsigned *out) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = s->flags;
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamGetPriority)(CUstream handle, int *out) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = s->priority;
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamGetCtx)(CUstream handle, CUcontext *out) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUcontext)s->context;
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamGetDevice)(CUstream handle, CUdevice *out) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamGetId)(CUstream handle, unsigned long long *out) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = s->head.serial;
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamAttachMemAsync)(CUstream handle, CUdeviceptr pointer, size_t bytes, unsigned flags) {
    (void)bytes, (void)flags;
    if (!device_range(pointer, 1)) return CUDA_ERROR_INVALID_VALUE;
    return stream_submit(handle, &(struct work){.kind = WORK_NOTHING}, false);
}

CUresult SIM(cuLaunchHostFunc)(CUstream handle, CUhostFn function, void *data) {
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    struct work work = {.kind = WORK_HOST, .host = {.function = function, .data = data}};
    return stream_submit(handle, &work, false);
}

CUresult SIM(cuStreamAddCallback)(CUstream handle, CUstreamCallback callback, void *data, unsigned flags) {
    if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
    struct work work = {.kind = WORK_HOST, .host = {.callback = callback, .stream = handle, .data = data}};
    return stream_submit(handle, &work, false);
}

CUresult SIM(cuStreamBeginCapture_v2)(CUstream handle, int mode) {
    static _Atomic unsigned long long captures;
    struct stream *s;
    (void)mode;
    TRY(stream_of(handle, &s));
    if (s == &s->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    struct graph *graph = graph_new();
    if (!graph) return CUDA_ERROR_OUT_OF_MEMORY;
    s->capture_id = ++captures;
    s->capture = graph;
    return CUDA_SUCCESS;
}

void capture_join(struct stream *origin, struct stream *stream) {
    if (stream->capture) return;
    stream->capture = origin->capture;
    stream->capture_id = origin->capture_id;
    stream->joined = origin->joined;
    origin->joined = stream;
}

void capture_end(struct stream *origin) {
    for (struct stream *s = origin, *next; s; s = next) {
        next = s->joined;
        s->capture = NULL;
        s->joined = NULL;
    }
}

CUresult SIM(cuStreamEndCapture)(CUstream handle, CUgraph *out) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    *out = (CUgraph)s->capture;
    capture_end(s);
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamIsCapturing)(CUstream handle, int *out) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = s->capture != NULL;
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamGetCaptureInfo)(CUstream handle, int *status, unsigned long long *id) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    *status = s->capture != NULL;
    if (id && s->capture) *id = s->capture_id;
    return CUDA_SUCCESS;
}
