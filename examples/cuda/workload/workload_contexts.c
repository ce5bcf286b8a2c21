/*
 * workload_contexts [ROUNDS [LAUNCHES [CHILDREN]]]: each round (10) makes a context, launches kernels there (500), waits for them, and
 * destroys the context at once. Before the first one it forks CHILDREN (0) that do the same and wait a second before and after it.
 */
#include <sys/wait.h>

#include "../include/cuda_driver.h"
#include "ptx.h"

#define CALLS(F)                                                                                                      \
    F(cuInit) F(cuDeviceGet) F(cuCtxCreate_v2) F(cuCtxDestroy_v2) F(cuCtxSynchronize) F(cuMemAlloc_v2) F(cuMemFree_v2) \
    F(cuModuleLoadData) F(cuModuleGetFunction) F(cuModuleUnload) F(cuLaunchKernel)
#define RESULTS_FILE "../include/driver_results.def"
#include "tally.h"

enum { N = 4096 };

static void launch(CUfunction fill, CUdeviceptr at) {
    float one = 1;
    int n = N;
    void *params[] = {&at, &one, &n};
    MUST(cuLaunchKernel, fill, N / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL);
    mine.launches[KERNEL_fill]++;
}

static void use_a_context(CUdevice device, long launches) {
    CUcontext context;
    CUmodule module;
    CUfunction fill;
    CUdeviceptr at;
    MUST(cuCtxCreate_v2, &context, 0, device);
    MUST(cuModuleLoadData, &module, kernels_ptx);
    MUST(cuModuleGetFunction, &fill, module, "_Z4fillPffi");
    MUST(cuMemAlloc_v2, &at, N * sizeof(float));
    mine.bytes[BYTES_allocated] += N * sizeof(float);
    for (long i = 0; i < launches; i++) launch(fill, at);
    MUST(cuCtxSynchronize);
    MUST(cuMemFree_v2, at);
    mine.bytes[BYTES_freed] += N * sizeof(float);
    MUST(cuModuleUnload, module);
    MUST(cuCtxDestroy_v2, context);
}

static void use_contexts(long rounds, long launches) {
    CUdevice device;
    MUST(cuInit, 0);
    MUST(cuDeviceGet, &device, 0);
    for (long i = 0; i < rounds; i++) use_a_context(device, launches);
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10, launches = argc > 2 ? atol(argv[2]) : 500;
    long children = argc > 3 ? atol(argv[3]) : 0, failed = 0;
    int status;
    for (long i = 0; i < children; i++) {
        if (fork()) continue;
        sleep(1);
        use_contexts(rounds, launches);
        sleep(1);
        _exit(0);
    }
    use_contexts(rounds, launches);
    while (wait(&status) > 0) failed += status != 0;
    tally_merge();
    tally_print();
    return failed != 0;
}
