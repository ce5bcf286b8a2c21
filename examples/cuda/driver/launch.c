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
    *out = (struct kernel_launch){.function = f->function, .shared = shared};
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
                       CUstream stream, void **params, void **extra, bool cooperative) {
    struct context *context;
    struct work work = {.kind = WORK_KERNEL};
    TRY(need_context(&context));
    spend_ns(NS_LAUNCH);
    TRY(launch_prepare(&work.kernel, handle, grid, block, shared, params, extra));
    work.kernel.cooperative = cooperative;
    return stream_submit(stream, &work, false);
}

/* The forms for the stream of the thread do the same here, under numbers of their own. */
#define LAUNCH_KERNEL(name, number)                                                                                         \
    CUresult SIM(name)(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,          \
                       unsigned shared, CUstream stream, void **params, void **extra) {                                     \
        unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};                                                             \
        OBSERVED(number, launch(f, grid, block, shared, stream, params, extra, false));                                     \
    }
#define LAUNCH_COOPERATIVE(name, number)                                                                                    \
    CUresult SIM(name)(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,          \
                       unsigned shared, CUstream stream, void **params) {                                                   \
        unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};                                                             \
        OBSERVED(number, launch(f, grid, block, shared, stream, params, NULL, true));                                       \
    }
/* Attributes (clusters, priorities) change where a kernel runs, not what it computes. */
#define LAUNCH_EX(name, number)                                                                                             \
    CUresult SIM(name)(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {                                \
        if (!c) return CUDA_ERROR_INVALID_VALUE;                                                                            \
        unsigned grid[] = {c->gridDimX, c->gridDimY, c->gridDimZ}, block[] = {c->blockDimX, c->blockDimY, c->blockDimZ};    \
        OBSERVED(number, launch(f, grid, block, c->sharedMemBytes, c->hStream, params, extra, false));                      \
    }

LAUNCH_KERNEL(cuLaunchKernel, 307)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, 442)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, 477)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, 478)
LAUNCH_EX(cuLaunchKernelEx, 652)
LAUNCH_EX(cuLaunchKernelEx_ptsz, 653)
