/*
 * Streams, events and graphs: each function is one call of the driver.
 */
#include "cudart.h"

API cudaError_t cudaStreamCreate(cudaStream_t *out) {
    ENTER;
    return finish(d->cuStreamCreate(out, CU_STREAM_DEFAULT));
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    ENTER;
    return finish(d->cuStreamCreate(out, flags));
}

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    ENTER;
    return finish(d->cuStreamCreateWithPriority(out, flags, priority));
}

API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    ENTER;
    return finish(d->cuStreamDestroy(stream));
}

/* One driver call with the same arguments, in both flavours. */
#define STREAM_CALL(name, parameters, function, ...)       \
    API cudaError_t name parameters {                      \
        ENTER_AS(false);                                   \
        return finish((int)d->function(__VA_ARGS__));      \
    }                                                      \
    API cudaError_t name##_ptsz parameters {               \
        ENTER_AS(true);                                    \
        return finish((int)d->function(__VA_ARGS__));      \
    }

STREAM_CALL(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize, stream)
STREAM_CALL(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery, stream)
STREAM_CALL(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags), cuStreamWaitEvent, stream, event, flags)
STREAM_CALL(cudaStreamGetFlags, (cudaStream_t stream, unsigned *out), cuStreamGetFlags, stream, out)
STREAM_CALL(cudaStreamGetPriority, (cudaStream_t stream, int *out), cuStreamGetPriority, stream, out)
STREAM_CALL(cudaStreamBeginCapture, (cudaStream_t stream, int mode), cuStreamBeginCapture, stream, mode)
STREAM_CALL(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *out), cuStreamEndCapture, stream, out)
STREAM_CALL(cudaStreamIsCapturing, (cudaStream_t stream, int *out), cuStreamIsCapturing, stream, out)
STREAM_CALL(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t function, void *data), cuLaunchHostFunc, stream, function, data)
STREAM_CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord, event, stream)
STREAM_CALL(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned flags), cuEventRecordWithFlags, event,
            stream, flags)
STREAM_CALL(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), cuGraphLaunch, exec, stream)

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    ENTER;
    return finish(d->cuEventCreate(out, flags));
}

API cudaError_t cudaEventCreate(cudaEvent_t *out) {
    ENTER;
    return finish(d->cuEventCreate(out, CU_EVENT_DEFAULT));
}

API cudaError_t cudaEventDestroy(cudaEvent_t event) {
    ENTER;
    return finish(d->cuEventDestroy(event));
}

API cudaError_t cudaEventQuery(cudaEvent_t event) {
    ENTER;
    return finish(d->cuEventQuery(event));
}

API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    ENTER;
    return finish(d->cuEventSynchronize(event));
}

API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    ENTER;
    return finish(d->cuEventElapsedTime(ms, start, end));
}

API cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned flags) {
    ENTER;
    return finish(d->cuGraphCreate(out, flags));
}

API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    ENTER;
    return finish(d->cuGraphDestroy(graph));
}

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    ENTER;
    return finish(d->cuGraphInstantiateWithFlags(out, graph, flags));
}

API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    ENTER;
    return finish(d->cuGraphExecDestroy(exec));
}
