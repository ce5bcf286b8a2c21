/*
 * Two devices and two threads that change between them, by the runtime and by the driver: which device allocates how much.
 *
 *     workload_devices [--rounds N] [--ask] [--leak BYTES]
 *
 * N rounds (4). `--ask`: queries the device before each allocation, as frameworks do. `--leak`: the second thread leaks
 * that many bytes on the first device, the first thread one byte more on the second.
 *
 * With one device, as without CUDASIM_DEVICES=2 on the simulation, all is on that one. It prints what each device was given:
 *
 *     device 0 bytes 40960
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../include/cuda_driver.h"
#include "../include/cuda_runtime_mini.h"

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device);
cudaError_t cudaGetDeviceProperties(void *properties, int device);

enum { MAX_DEVICES = 8, PROPERTIES_BYTES = 2048 };
static long bytes[MAX_DEVICES];
static int devices, rounds = 4;
static bool asks;
static size_t leak;

#define MUST(call)                                                                     \
    do {                                                                               \
        int result_ = (int)(call);                                                     \
        if (result_) fprintf(stderr, "%s: result %d\n", #call, result_), exit(1);      \
    } while (0)

/* Allocates by the runtime, on a device that the thread has chosen. */
static void by_runtime(int device, size_t size) {
    void *pointer;
    int current = device;
    if (asks) MUST(cudaGetDevice(&current));
    if (current != device) exit(1);
    MUST(cudaMalloc(&pointer, size));
    __atomic_add_fetch(&bytes[device], (long)size, __ATOMIC_RELAXED);
    MUST(cudaFree(pointer));
}

static void by_driver(int device, size_t size) {
    CUdeviceptr pointer;
    MUST(cuMemAlloc_v2(&pointer, size));
    __atomic_add_fetch(&bytes[device], (long)size, __ATOMIC_RELAXED);
    MUST(cuMemFree_v2(pointer));
}

/* A thread of the runtime: first on its own device, then on the other, and back. The second thread does twice as much. */
static void *runtime_thread(void *argument) {
    int first = *(int *)argument, second = (first + 1) % devices;
    size_t size = 1000 * (1 + (size_t)first);
    MUST(cudaSetDevice(first));
    for (int i = 0; i < rounds; i++) {
        by_runtime(first, size);
        MUST(cudaSetDevice(second));
        by_runtime(second, 300);
        MUST(cudaSetDevice(first));
    }
    void *left;
    MUST(cudaSetDevice(second));
    if (leak) MUST(cudaMalloc(&left, leak + (size_t)second));
    return NULL;
}

/* A stack of contexts: of its own and the device's, left in order. */
static void *driver_thread(void *argument) {
    int first = *(int *)argument, second = (first + 1) % devices;
    CUcontext own, primary;
    MUST(cuCtxCreate_v2(&own, 0, first));
    by_driver(first, 7000);
    MUST(cuDevicePrimaryCtxRetain(&primary, second));
    MUST(cuCtxPushCurrent_v2(primary));
    by_driver(second, 5000);
    MUST(cuCtxPushCurrent_v2(primary));
    MUST(cuCtxPopCurrent_v2(NULL));
    by_driver(second, 500);
    MUST(cuCtxPopCurrent_v2(NULL));
    by_driver(first, 70);
    MUST(cuCtxDestroy_v2(own));
    MUST(cuCtxSetCurrent(primary));
    by_driver(second, 11);
    MUST(cuDevicePrimaryCtxRelease_v2(second));
    return NULL;
}

static void in_threads(void *(*run)(void *)) {
    pthread_t threads[2];
    int first[2] = {0, devices - 1};
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run, &first[i]);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static void introduce(int device) {
    static char properties[PROPERTIES_BYTES];
    char name[64], id[32];
    CUuuid uuid;
    MUST(cudaGetDeviceProperties(properties, device));
    MUST(cuDeviceGetName(name, sizeof name, device));
    MUST(cuDeviceGetUuid_v2(&uuid, device));
    MUST(cuDeviceGetPCIBusId(id, sizeof id, device));
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--ask")) asks = true;
        else if (!strcmp(argv[i], "--rounds") && i + 1 < argc) rounds = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--leak") && i + 1 < argc) leak = (size_t)atol(argv[++i]);
        else return fprintf(stderr, "usage: workload_devices [--rounds N] [--ask] [--leak BYTES]\n"), 2;
    }
    MUST(cuInit(0));
    MUST(cudaGetDeviceCount(&devices));
    if (devices > 2) devices = 2;
    for (int i = 0; i < devices; i++) introduce(i);
    in_threads(driver_thread);
    in_threads(runtime_thread);
    printf("== counts ==\npid %d\n", (int)getpid());
    for (int i = 0; i < devices; i++) printf("device %d bytes %ld\n", i, bytes[i]);
    printf("== end ==\n");
    return 0;
}
