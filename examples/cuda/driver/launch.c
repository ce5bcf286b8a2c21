/*
 * Launches: every cuLaunch* checks the shape, collects the arguments at the call (the program may change them after) and
 * submits one piece of work.
 */
#include <string.h>

#include "sim.h"

static bool shape_ok(const unsigned grid[3], const unsigned block[3]) {
    for (int i = 0; i < 3; i++)
        if (!grid[i] || !block[i]) return false;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    return threads <= 1024 && block[2] <= 64 && grid[1] <= 65535 && grid[2] <= 65535;
}

/* `extra`: keys and values, the arguments packed one after the other at their natural alignment. */
static CUresult unpack(const struct builtin *body, void **extra, uint64_t *args) {
    const char *buffer = NULL;
    size_t size = 0, at = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *(size_t *)extra[1];
        else return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < body->arguments; i++) {
        size_t bytes = body->bytes[i];
        at = (at + bytes - 1) / bytes * bytes;
        if (!buffer || at + bytes > size) return CUDA_ERROR_INVALID_VALUE;
        memcpy(&args[i], buffer + at, bytes);
        at += bytes;
    }
    return CUDA_SUCCESS;
}

CUresult launch_prepare(struct kernel_launch *out, const void *handle, const unsigned grid[3], const unsigned block[3],
                        unsigned shared, void **params, void **extra) {
    struct function *f;
    TRY(function_of(handle, &f));
    if (!shape_ok(grid, block) || (params && extra) || (int)shared > f->max_dynamic_shared) return CUDA_ERROR_INVALID_VALUE;
    *out = (struct kernel_launch){.function = f->function};
    memcpy(out->grid, grid, sizeof out->grid);
    memcpy(out->block, block, sizeof out->block);
    const struct builtin *body = f->body;
    if (!body) return CUDA_SUCCESS;
    if (extra) return unpack(body, extra, out->args);
    if (!params) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < body->arguments; i++) memcpy(&out->args[i], params[i], body->bytes[i]);
    return CUDA_SUCCESS;
}

static CUresult launch(const void *handle, const unsigned grid[3], const unsigned block[3], unsigned shared,
                       CUstream stream, void **params, void **extra) {
    struct context *context;
    struct work work = {.kind = WORK_KERNEL};
    TRY(need_context(&context));
    spend_ns(NS_LAUNCH);
    TRY(launch_prepare(&work.kernel, handle, grid, block, shared, params, extra));
    return stream_submit(stream, &work, false);
}

CUresult SIM(cuLaunchKernel)(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, CUstream stream, void **params, void **extra) {
    return launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, stream, params, extra);
}

CUresult SIM(cuLaunchCooperativeKernel)(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                        unsigned bz, unsigned shared, CUstream stream, void **params) {
    return launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, stream, params, NULL);
}

/* Attributes (clusters, priorities) change where a kernel runs, not what it computes. */
CUresult SIM(cuLaunchKernelEx)(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
    if (!c) return CUDA_ERROR_INVALID_VALUE;
    unsigned grid[] = {c->gridDimX, c->gridDimY, c->gridDimZ}, block[] = {c->blockDimX, c->blockDimY, c->blockDimZ};
    return launch(f, grid, block, c->sharedMemBytes, c->hStream, params, extra);
}
