/*
 * Errors: names, and the last one of each thread. No call to the driver.
 */
#include "cudart.h"

static _Thread_local cudaError_t last;

static const struct result {
    int code;
    const char *name, *text;
} RESULTS[] = {
#define RESULT(code, name, text) {code, #name, text},
#include "../include/runtime_results.def"
#undef RESULT
};

/* Driver codes are runtime codes. "Not ready" is an answer, no error. */
cudaError_t finish(int code) {
    if (code && code != cudaErrorNotReady) last = (cudaError_t)code;
    return (cudaError_t)code;
}

API cudaError_t cudaGetLastError(void) {
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

API cudaError_t cudaPeekAtLastError(void) {
    return last;
}

/* Out of line, so that the two exported functions have a frame and begin as all others do. */
__attribute__((noinline)) static const struct result *find(int code) {
    static const struct result UNKNOWN = {0, "unrecognized error code", "unrecognized error code"};
    for (size_t i = 0; i < sizeof RESULTS / sizeof *RESULTS; i++)
        if (RESULTS[i].code == code) return &RESULTS[i];
    return &UNKNOWN;
}

API const char *cudaGetErrorName(cudaError_t error) {
    return find((int)error)->name;
}

API const char *cudaGetErrorString(cudaError_t error) {
    return find((int)error)->text;
}
