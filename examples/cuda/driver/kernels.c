/*
 * The kernels that the simulated GPU can run, on host memory. They are known by the plain name inside the mangled one.
 *
 * One thread per element, as their PTX has it (workload/kernels.ptx): a grid too small leaves elements untouched.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static float as_float(uint64_t argument) {
    float f;
    uint32_t low = (uint32_t)argument;
    memcpy(&f, &low, sizeof f);
    return f;
}

static uint64_t elements(uint64_t argument, uint64_t threads) {
    int n = (int)argument;
    uint64_t wanted = n > 0 ? (uint64_t)n : 0;
    return wanted < threads ? wanted : threads;
}

/* A pointer argument of `n` floats; NULL if a GPU would fault on it. */
static float *floats(uint64_t argument, uint64_t n) {
    static float none; /* what an empty range may point to: never read */
    if (!n) return &none;
    return device_range(argument, n * sizeof(float)) ? (float *)(uintptr_t)argument : NULL;
}

static CUresult vector_add(const uint64_t *args, uint64_t threads) {
    uint64_t n = elements(args[3], threads);
    const float *a = floats(args[0], n), *b = floats(args[1], n);
    float *c = floats(args[2], n);
    if (!a || !b || !c) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t i = 0; i < n; i++) c[i] = a[i] + b[i];
    return CUDA_SUCCESS;
}

static CUresult saxpy(const uint64_t *args, uint64_t threads) {
    uint64_t n = elements(args[3], threads);
    float a = as_float(args[0]);
    const float *x = floats(args[1], n);
    float *y = floats(args[2], n);
    if (!x || !y) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t i = 0; i < n; i++) y[i] = a * x[i] + y[i];
    return CUDA_SUCCESS;
}

static CUresult fill(const uint64_t *args, uint64_t threads) {
    uint64_t n = elements(args[2], threads);
    float *p = floats(args[0], n), value = as_float(args[1]);
    if (!p) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t i = 0; i < n; i++) p[i] = value;
    return CUDA_SUCCESS;
}

static CUresult scale(const uint64_t *args, uint64_t threads) {
    uint64_t n = elements(args[2], threads);
    float *p = floats(args[0], n), factor = as_float(args[1]);
    if (!p) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t i = 0; i < n; i++) p[i] *= factor;
    return CUDA_SUCCESS;
}

static CUresult reduce_sum(const uint64_t *args, uint64_t threads) {
    uint64_t n = elements(args[2], threads);
    const float *in = floats(args[0], n);
    float *out = floats(args[1], 1);
    if (!in || !out) return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (uint64_t i = 0; i < n; i++) *out += in[i];
    return CUDA_SUCCESS;
}

static const struct builtin BUILTINS[] = {
    {"vector_add", 4, {8, 8, 8, 4}, vector_add},
    {"saxpy", 4, {4, 8, 8, 4}, saxpy},
    {"fill", 3, {8, 4, 4}, fill},
    {"scale", 3, {8, 4, 4}, scale},
    {"reduce_sum", 3, {8, 8, 4}, reduce_sum},
};

/* `_Z10vector_addPKfS0_Pfi` and `vector_add` both name vector_add. */
const struct builtin *builtin_find(const char *mangled) {
    const char *name = mangled;
    size_t length = strlen(mangled);
    if (!strncmp(mangled, "_Z", 2)) {
        char *rest;
        unsigned long written = strtoul(mangled + 2, &rest, 10);
        if (written && written <= strlen(rest)) name = rest, length = written;
    }
    for (size_t i = 0; i < sizeof BUILTINS / sizeof *BUILTINS; i++)
        if (strlen(BUILTINS[i].name) == length && !memcmp(BUILTINS[i].name, name, length)) return &BUILTINS[i];
    return NULL;
}
