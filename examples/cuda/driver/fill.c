/*
 * cuMemset*: one function per element size, in one and two dimensions, each with and without a stream.
 */
#include "sim.h"

static CUresult fill(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
                     CUstream stream) {
    struct context *context;
    TRY(need_context(&context));
    if (!width || !height) return CUDA_SUCCESS;
    size_t row = width * element;
    if (height > 1 && pitch < row) return CUDA_ERROR_INVALID_VALUE;
    if (to % element || !device_range(to, (height - 1) * pitch + row)) return CUDA_ERROR_INVALID_VALUE;
    struct region region = {(char *)(uintptr_t)to, pitch, 0};
    struct work work = {.kind = WORK_FILL, .fill = {region, width, height, value, element}};
    spend_ns(NS_SUBMIT);
    return stream_submit(stream, &work, false);
}

/* With CUPTI's numbers of the four functions. */
#define FILLS(bits, type, row, row_async, rows, rows_async)                                                        \
    CUresult SIM(cuMemsetD##bits##_v2)(CUdeviceptr to, type value, size_t count) {                                 \
        OBSERVED(row, fill(to, 0, value, sizeof(type), count, 1, NULL));                                           \
    }                                                                                                              \
    CUresult SIM(cuMemsetD##bits##Async)(CUdeviceptr to, type value, size_t count, CUstream stream) {              \
        OBSERVED(row_async, fill(to, 0, value, sizeof(type), count, 1, stream));                                   \
    }                                                                                                              \
    CUresult SIM(cuMemsetD2D##bits##_v2)(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height) {  \
        OBSERVED(rows, fill(to, pitch, value, sizeof(type), width, height, NULL));                                 \
    }                                                                                                              \
    CUresult SIM(cuMemsetD2D##bits##Async)(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,  \
                                           CUstream stream) {                                                      \
        OBSERVED(rows_async, fill(to, pitch, value, sizeof(type), width, height, stream));                         \
    }

FILLS(8, unsigned char, 249, 216, 252, 222)
FILLS(16, unsigned short, 250, 218, 253, 224)
FILLS(32, unsigned, 251, 220, 254, 226)
