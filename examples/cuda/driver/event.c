/*
 * Events: the moment at which the work queued before them is done.
 */
#include "sim.h"

struct event {
    struct object head;
    unsigned flags;
    _Atomic uint64_t at; /* 0: never recorded */
    struct stream *captured; /* recorded there while it was capturing */
};

static CUresult event_of(CUevent handle, struct event **out) {
    TRY(need_init());
    *out = (struct event *)handle;
    return object_is(handle, EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult SIM(cuEventCreate)(CUevent *out, unsigned flags) {
    struct context *context;
    TRY(need_context(&context));
    if (!out || flags > 7) return CUDA_ERROR_INVALID_VALUE;
    struct event *event = object_new(EVENT);
    if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
    event->flags = flags;
    *out = (CUevent)event;
    return CUDA_SUCCESS;
}

CUresult SIM(cuEventDestroy_v2)(CUevent handle) {
    struct event *event;
    TRY(event_of(handle, &event));
    object_delete(event);
    return CUDA_SUCCESS;
}

CUresult SIM(cuEventRecordWithFlags)(CUevent handle, CUstream on, unsigned flags) {
    struct event *event;
    struct stream *stream;
    TRY(event_of(handle, &event));
    TRY(stream_of(on, &stream));
    if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
    event->captured = stream->capture ? stream : NULL;
    if (event->captured) return CUDA_SUCCESS;
    uint64_t now = now_ns(), ready = stream->ready_at;
    event->at = ready > now ? ready : now;
    return CUDA_SUCCESS;
}

CUresult SIM(cuEventRecord)(CUevent handle, CUstream on) {
    return SIM(cuEventRecordWithFlags)(handle, on, 0);
}

CUresult SIM(cuEventQuery)(CUevent handle) {
    struct event *event;
    TRY(event_of(handle, &event));
    return gpu_is_done(event->at) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_wait(CUevent handle) {
    struct event *event;
    TRY(event_of(handle, &event));
    uint64_t start = watched_now_ns();
    gpu_wait(event->at);
    struct span span = {start, start ? now_ns() : 0};
    if (start) observe_wait(WAIT_EVENT, context_current(), (uint32_t)OBSERVED_NONE, event->head.serial, span);
    return CUDA_SUCCESS;
}

CUresult SIM(cuEventSynchronize)(CUevent handle) {
    OBSERVED(121, event_wait(handle));
}

CUresult SIM(cuEventElapsedTime_v2)(float *ms, CUevent start, CUevent end) {
    struct event *from, *to;
    TRY(event_of(start, &from));
    TRY(event_of(end, &to));
    if (!ms) return CUDA_ERROR_INVALID_VALUE;
    if (!from->at || !to->at || ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_HANDLE;
    if (!gpu_is_done(to->at)) return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(to->at - from->at) / 1e6);
    return CUDA_SUCCESS;
}

static CUresult stream_wait_for_event(CUstream handle, CUevent on, unsigned flags) {
    struct event *event;
    struct stream *stream;
    TRY(stream_of(handle, &stream));
    TRY(event_of(on, &event));
    if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
    if (event->captured) {
        if (!event->captured->capture) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        capture_join(event->captured, stream);
        return CUDA_SUCCESS;
    }
    uint64_t start = watched_now_ns();
    uint64_t at = event->at, seen = atomic_load(&stream->ready_at);
    while (seen < at && !atomic_compare_exchange_weak(&stream->ready_at, &seen, at)) continue;
    if (start) observe_wait(WAIT_STREAM_FOR_EVENT, stream->context, stream->id, event->head.serial, (struct span){start, now_ns()});
    return CUDA_SUCCESS;
}

CUresult SIM(cuStreamWaitEvent)(CUstream handle, CUevent on, unsigned flags) {
    OBSERVED(295, stream_wait_for_event(handle, on, flags));
}
