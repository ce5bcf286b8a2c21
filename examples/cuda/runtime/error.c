/*
 * Errors: names, and the last one of each thread. No call to the driver.
 */
#include "cudart.h"

static _Thread_local cudaError_t last;

static const struct {
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

API const char *cudaGetErrorName(cudaError_t error) {
    for (size_t i = 0; i < sizeof RESULTS / sizeof *RESULTS; i++)
        if (RESULTS[i].code == (int)error) return RESULTS[i].name;
    return "unrecognized error code";
}

API const char *cudaGetErrorString(cudaError_t error) {
    for (size_t i = 0; i < sizeof RESULTS / sizeof *RESULTS; i++)
        if (RESULTS[i].code == (int)error) return RESULTS[i].text;
    return "unrecognized error code";
}
