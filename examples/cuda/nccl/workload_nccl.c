/*
 * Collectives of known sizes on one rank, with the simulated libnccl.so.2 or a real one (buffers are then missing, so do not).
 * `workload_nccl gpu` has a GPU: kernels of its own run beside the reductions, and nothing beside the other collectives.
 *
 *     planted allreduce_bytes 4194304
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../include/cuda_driver.h"

enum { ncclInt8 = 0, ncclFloat32 = 7, ncclBfloat16 = 9 };

int ncclCommInitAll(void **comm, int devices, const int *list);
int ncclCommDestroy(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, void *comm, CUstream stream);
int ncclAllGather(const void *send, void *receive, size_t count, int type, void *comm, CUstream stream);
int ncclBcast(void *buffer, size_t count, int type, int root, void *comm, CUstream stream);
int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, void *comm, CUstream stream);

static void must(int result, const char *what) {
    if (!result) return;
    fprintf(stderr, "workload_nccl: %s: result %d\n", what, result);
    exit(1);
}
#define MUST(call) must(call, #call)

static struct {
    CUcontext context;
    CUstream streams[2]; /* of collectives, and of the program's kernels */
    CUfunction kernel;
} gpu;

static void gpu_open(void) {
    CUmodule module;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&gpu.context, 0));
    MUST(cuCtxSetCurrent(gpu.context));
    for (int i = 0; i < 2; i++) MUST(cuStreamCreate(&gpu.streams[i], 1));
    MUST(cuModuleLoadData(&module, ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry _Z7computev() { ret; }\n"));
    MUST(cuModuleGetFunction(&gpu.kernel, module, "_Z7computev"));
}

/* A kernel that begins before the next collective and ends after it. */
static void compute(void) {
    if (gpu.kernel) MUST(cuLaunchKernel(gpu.kernel, 1 << 20, 1, 1, 512, 1, 1, 0, gpu.streams[1], NULL, NULL));
}

static void wait_for_all(void) {
    if (gpu.kernel) MUST(cuCtxSynchronize());
}

int main(int argc, char **argv) {
    void *comm;
    if (argc > 1 && !strcmp(argv[1], "gpu")) gpu_open();
    printf("== counts ==\npid %d\n", (int)getpid());
    MUST(ncclCommInitAll(&comm, 1, NULL));
    for (int i = 0; i < 16; i++) {
        compute();
        MUST(ncclAllReduce(NULL, NULL, 1 << 16, ncclFloat32, 0, comm, gpu.streams[0]));
        wait_for_all();
    }
    for (int i = 0; i < 3; i++) {
        MUST(ncclGroupStart());
        for (int j = 0; j < 4; j++) MUST(ncclAllGather(NULL, NULL, 1000, ncclBfloat16, comm, gpu.streams[0]));
        MUST(ncclGroupEnd());
    }
    MUST(ncclBcast(NULL, 77, ncclInt8, 0, comm, gpu.streams[0])); /* calls ncclBroadcast, as NVIDIA's does */
    if (ncclBroadcast(NULL, NULL, 77, ncclInt8, 5, comm, gpu.streams[0]) == 0) return 1; /* there is no rank 5 */
    MUST(ncclCommDestroy(comm));
    printf("planted ncclAllReduce %d\nplanted ncclAllGather %d\nplanted ncclBroadcast %d\n== end ==\n", 16 << 18, 12 * 2000, 77);
    return 0;
}
