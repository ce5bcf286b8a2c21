/*
 * Streams. Work runs at once on the submitting thread; what a stream keeps is the moment when a GPU would be done with it.
 *
 * So results are never late, order within a thread is program order, and a query or a wait sees the time that the work
 * would take. Work in one stream never overlaps. With CUDASIM_FAST=1 there is a time line only while something observes it,
 * and no query or wait sees it. The default stream waits for the others and they for it, unless they were made non-blocking.
 * The `_ptsz` forms share the legacy default stream here: they differ only in what stream 0 means.
 */
#include <pthread.h>
#include <string.h>

#include "sim.h"

enum { FIRST_ID = 13 };

void stream_init(struct stream *stream, struct context *context, unsigned flags, int priority) {
    static atomic_uint last = FIRST_ID - 1;
    stream->id = atomic_fetch_add(&last, 1) + 1;
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

/* When the stream could begin something new, not before `soonest`. */
static uint64_t begins_at(const struct stream *s, uint64_t ready, uint64_t soonest) {
    bool blocking = !(s->flags & CU_STREAM_NON_BLOCKING);
    uint64_t other = s == &s->context->legacy ? s->context->ready_at : blocking ? s->context->legacy.ready_at : 0;
    if (ready < other) ready = other;
    return ready < soonest ? soonest : ready;
}

/* The stream's next `cost` nanoseconds, not before `soonest`. */
static struct span occupy(struct stream *s, uint64_t cost, uint64_t soonest) {
    uint64_t ready = atomic_load(&s->ready_at), start;
    do start = begins_at(s, ready, soonest);
    while (!atomic_compare_exchange_weak(&s->ready_at, &ready, start + cost));
    raise_to(&s->context->ready_at, start + cost);
    return (struct span){start, start + cost};
}

/* `soonest`: when the GPU may begin, or 0: soon after this call. */
static struct span run(struct stream *s, const struct work *work, bool is_async, const struct node_id *node,
                       uint64_t soonest) {
    struct span span = {0, 0};
    CUresult result = work_run(work);
    bool watched = gpu_is_watched();
    uint64_t cost = sim_is_fast() && !watched ? 0 : work_cost_ns(work);
    if (cost) span = occupy(s, cost, soonest ? soonest : now_ns() + NS_START);
    if (watched) observe_work(s, work, span, is_async, node);
    if (result) atomic_store(&s->context->broken, result); /* reported by the next call, as for a real kernel */
    return span;
}

CUresult stream_submit(CUstream handle, const struct work *work, bool wait) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (s->capture) return wait ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : graph_append(s->capture, work, NULL);
    run(s, work, !wait, NULL, 0);
    if (wait) gpu_wait(s->ready_at);
    return CUDA_SUCCESS;
}

CUresult stream_submit_node(CUstream handle, const struct work *work, const struct node_id *node, uint64_t soonest,
                            struct span *span) {
    struct stream *s;
    *span = (struct span){0, 0};
    TRY(stream_of(handle, &s));
    if (s->capture) return graph_append(s->capture, work, NULL);
    *span = run(s, work, true, node, soonest);
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

static CUresult stream_wait(CUstream handle) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    uint64_t start = watched_now_ns();
    gpu_wait(s == &s->context->legacy ? s->context->ready_at : s->ready_at);
    if (start) observe_wait(WAIT_STREAM, s->context, s->id, (uint32_t)OBSERVED_NONE, (struct span){start, now_ns()});
    return atomic_load(&s->context->broken);
}

CUresult SIM(cuStreamSynchronize)(CUstream handle) {
    OBSERVED(126, stream_wait(handle));
}

CUresult SIM(cuStreamQuery)(CUstream handle) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    return gpu_is_done(s->ready_at) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
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
    *out = s->id;
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

static CUresult capture_begin(CUstream handle, int mode) {
    static _Atomic unsigned long long captures;
    struct stream *s;
    /* CU_STREAM_CAPTURE_MODE_GLOBAL to CU_STREAM_CAPTURE_MODE_RELAXED */
    if (mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_of(handle, &s));
    if (s == &s->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    struct graph *graph = graph_new();
    if (!graph) return CUDA_ERROR_OUT_OF_MEMORY;
    s->capture_id = ++captures;
    s->capture = graph;
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamBeginCapture_v2)(CUstream handle, int mode) {
    OBSERVED(539, capture_begin(handle, mode));
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

static CUresult capture_finish(CUstream handle, CUgraph *out) {
    struct stream *s;
    TRY(stream_of(handle, &s));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
    *out = (CUgraph)s->capture;
    capture_end(s);
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamEndCapture)(CUstream handle, CUgraph *out) {
    OBSERVED(497, capture_finish(handle, out));
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
