/*
 * A workload on the driver API: threads that allocate, copy, launch, check and free, some calls that must fail, and a
 * tight loop on demand. The same binary source runs on the simulated driver and on a real one.
 *
 * It checks its results (exit status 1 if one is wrong) and prints what it called: see tally.h.
 */
#include "../include/cuda_driver.h"
#include "options.h"
#include "ptx.h"

#define CALLS(F)                                                                                                    \
    F(cuInit) F(cuDriverGetVersion) F(cuDeviceGetCount) F(cuDeviceGet) F(cuDeviceGetName)                           \
    F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxRelease_v2) F(cuCtxSetCurrent) F(cuCtxGetDevice)                \
    F(cuCtxSynchronize) F(cuMemGetInfo_v2) F(cuMemAlloc_v2) F(cuMemFree_v2) F(cuMemAllocHost_v2) F(cuMemFreeHost)   \
    F(cuMemcpyHtoD_v2) F(cuMemcpyDtoH_v2) F(cuMemcpyHtoDAsync_v2) F(cuMemcpyDtoHAsync_v2) F(cuMemcpyDtoDAsync_v2)   \
    F(cuMemsetD8Async) F(cuStreamCreate) F(cuStreamDestroy_v2) F(cuStreamSynchronize) F(cuStreamWaitEvent)          \
    F(cuEventCreate) F(cuEventRecord) F(cuEventSynchronize) F(cuEventElapsedTime) F(cuEventDestroy_v2)              \
    F(cuModuleLoadData) F(cuModuleGetFunction) F(cuModuleUnload) F(cuLaunchKernel)
#define RESULTS_FILE "../include/driver_results.def"
#include "tally.h"

enum { BLOCK = 256 };

static struct options options;
static CUcontext context;
static CUmodule module;
static CUfunction kernels[KERNEL_COUNT];
static const char *const MANGLED[KERNEL_COUNT] = {
    "_Z10vector_addPKfS0_Pfi", "_Z5saxpyfPKfPfi", "_Z4fillPffi", "_Z5scalePffi", "_Z10reduce_sumPKfPfi",
};

static CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr pointer;
    MUST(cuMemAlloc_v2, &pointer, bytes);
    mine.bytes[BYTES_allocated] += bytes;
    return pointer;
}

static void release(CUdeviceptr pointer, size_t bytes) {
    MUST(cuMemFree_v2, pointer);
    mine.bytes[BYTES_freed] += bytes;
}

static void launch(int kernel, int n, CUstream stream, void **params) {
    unsigned blocks = (unsigned)(n + BLOCK - 1) / BLOCK;
    MUST(cuLaunchKernel, kernels[kernel], blocks, 1, 1, BLOCK, 1, 1, 0, stream, params, NULL);
    mine.launches[kernel]++;
}

/* What a thread keeps for its rounds. */
struct lane {
    CUstream first, second;
    CUevent start, handover, end;
    float *host;
    int room;
};

static void lane_open(struct lane *l, int room) {
    void *host;
    MUST(cuStreamCreate, &l->first, CU_STREAM_NON_BLOCKING);
    MUST(cuStreamCreate, &l->second, CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &l->start, CU_EVENT_DEFAULT);
    MUST(cuEventCreate, &l->handover, CU_EVENT_DISABLE_TIMING);
    MUST(cuEventCreate, &l->end, CU_EVENT_DEFAULT);
    MUST(cuMemAllocHost_v2, &host, (size_t)room * sizeof(float));
    l->host = host;
    l->room = room;
}

static void lane_close(struct lane *l) {
    MUST(cuMemFreeHost, l->host);
    MUST(cuEventDestroy_v2, l->end);
    MUST(cuEventDestroy_v2, l->handover);
    MUST(cuEventDestroy_v2, l->start);
    MUST(cuStreamDestroy_v2, l->second);
    MUST(cuStreamDestroy_v2, l->first);
}

static void upload(struct lane *l, CUdeviceptr to, int n, float value) {
    MUST(cuStreamSynchronize, l->first); /* the staging buffer may be on its way */
    for (int i = 0; i < n; i++) l->host[i] = value;
    MUST(cuMemcpyHtoDAsync_v2, to, l->host, (size_t)n * sizeof(float), l->first);
    mine.bytes[BYTES_h2d] += (size_t)n * sizeof(float);
}

static void download(struct lane *l, CUdeviceptr from, int n) {
    MUST(cuMemcpyDtoHAsync_v2, l->host, from, (size_t)n * sizeof(float), l->second);
    MUST(cuStreamSynchronize, l->second);
    mine.bytes[BYTES_d2h] += (size_t)n * sizeof(float);
}

/* a = 1, b = 2; c = a + b; c = 3 a + c; c *= 2: 12 everywhere, and 12 n in all. */
static void compute(struct lane *l, CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, CUdeviceptr sum, int n) {
    float three = 3, two = 2;
    launch(KERNEL_vector_add, n, l->first, (void *[]){&a, &b, &c, &n});
    launch(KERNEL_saxpy, n, l->first, (void *[]){&three, &a, &c, &n});
    MUST(cuEventRecord, l->handover, l->first);
    MUST(cuStreamWaitEvent, l->second, l->handover, 0);
    launch(KERNEL_scale, n, l->second, (void *[]){&c, &two, &n});
    MUST(cuMemsetD8Async, sum, 0, sizeof(float), l->second);
    mine.bytes[BYTES_set] += sizeof(float);
    launch(KERNEL_reduce_sum, n, l->second, (void *[]){&c, &sum, &n});
}

static void check(struct lane *l, CUdeviceptr c, CUdeviceptr copy, CUdeviceptr sum, int n) {
    float all, seven = 7;
    download(l, c, n);
    expect(l->host, n, 12, "vector_add, saxpy, scale");
    MUST(cuMemcpyDtoH_v2, &all, sum, sizeof all);
    mine.bytes[BYTES_d2h] += sizeof all;
    expect(&all, 1, 12.0f * (float)n, "reduce_sum");
    MUST(cuMemcpyDtoDAsync_v2, copy, c, (size_t)n * sizeof(float), l->second);
    mine.bytes[BYTES_d2d] += (size_t)n * sizeof(float);
    download(l, copy, n);
    expect(l->host, n, 12, "copy on the device");
    launch(KERNEL_fill, n, l->second, (void *[]){&copy, &seven, &n});
    download(l, copy, n);
    expect(l->host, n, 7, "fill");
}

static void round_of(struct lane *l, int n) {
    size_t bytes = (size_t)n * sizeof(float);
    CUdeviceptr a = allocate(bytes), b = allocate(bytes), c = allocate(bytes), sum = allocate(sizeof(float));
    float ms;
    MUST(cuEventRecord, l->start, l->first);
    upload(l, a, n, 1);
    upload(l, b, n, 2);
    compute(l, a, b, c, sum, n);
    MUST(cuEventRecord, l->end, l->second);
    MUST(cuEventSynchronize, l->end);
    MUST(cuEventElapsedTime, &ms, l->start, l->end);
    check(l, c, a, sum, n);
    release(sum, sizeof(float));
    release(c, bytes);
    release(b, bytes);
    release(a, bytes);
}

/* Calls of one function in a tight loop. */
static void one_call(CUdeviceptr scratch) {
    size_t unused, all;
    CUdevice device;
    float one = 1;
    int n = 1;
    switch (options.call[0]) {
    case 'd': MUST(cuCtxGetDevice, &device); break;
    case 'm': MUST(cuMemGetInfo_v2, &unused, &all); break;
    case 'a': release(allocate(256), 256); break;
    case 'l': launch(KERNEL_fill, n, NULL, (void *[]){&scratch, &one, &n}); break;
    }
}

static void tight_loop(void) {
    CUdeviceptr scratch = allocate(256);
    uint64_t start = clock_ns();
    for (long i = 0; i < options.calls; i++) one_call(scratch);
    double each = (double)(clock_ns() - start) / (double)options.calls;
    MUST(cuCtxSynchronize);
    release(scratch, 256);
    printf("loop %s %ld calls %.1f ns each\n", options.call, options.calls, each);
}

static void *thread_main(void *number) {
    enum { SMALLEST = 1 << 10, SIZES = 6 };
    struct lane lane;
    MUST(cuCtxSetCurrent, context);
    lane_open(&lane, SMALLEST << (SIZES - 1));
    for (long i = 0; i < options.iterations; i++) round_of(&lane, SMALLEST << ((i + (long)(intptr_t)number) % SIZES));
    lane_close(&lane);
    if (options.calls) tight_loop();
    tally_merge();
    return NULL;
}

/* Failures as programs meet them. None of them breaks the context. */
static void provoke(void) {
    CUdeviceptr pointer;
    CUfunction f;
    size_t unused, all;
    int n = 1;
    float one = 1;
    MUST(cuMemGetInfo_v2, &unused, &all);
    MUST_FAIL(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &pointer, 2 * all);
    MUST_FAIL(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2, &pointer, 0);
    pointer = allocate(4096);
    release(pointer, 4096);
    MUST_FAIL(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, pointer); /* freed twice */
    MUST_FAIL(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &f, module, "no_such_kernel");
    pointer = allocate(4096);
    MUST_FAIL(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel, kernels[KERNEL_fill], 1, 1, 1, 4096, 1, 1, 0, NULL,
              (void *[]){&pointer, &one, &n}, NULL); /* more threads in a block than a device allows */
    release(pointer, 4096);
}

/* In a few pieces, none of which is freed. */
static void leak(void) {
    enum { PIECES = 4 };
    for (int i = 0; i < PIECES; i++) {
        unsigned long long bytes = options.leak / PIECES + (i == 0 ? options.leak % PIECES : 0);
        if (bytes) allocate(bytes);
    }
}

static void set_up(void) {
    CUdevice device;
    char name[128];
    int version, count;
    MUST(cuInit, 0);
    MUST(cuDriverGetVersion, &version);
    MUST(cuDeviceGetCount, &count);
    MUST(cuDeviceGet, &device, 0);
    MUST(cuDeviceGetName, name, sizeof name, device);
    MUST(cuDevicePrimaryCtxRetain, &context, device);
    MUST(cuCtxSetCurrent, context);
    MUST(cuModuleLoadData, &module, kernels_ptx);
    for (int i = 0; i < KERNEL_COUNT; i++) MUST(cuModuleGetFunction, &kernels[i], module, MANGLED[i]);
    printf("device %s, driver %d.%d\n", name, version / 1000, version % 1000 / 10);
}

static void tear_down(void) {
    MUST(cuCtxSynchronize);
    MUST(cuModuleUnload, module);
    MUST(cuDevicePrimaryCtxRelease_v2, 0);
}

int main(int argc, char **argv) {
    options = parse_options(argc, argv);
    set_up();
    pthread_t *threads = calloc((size_t)options.threads, sizeof *threads);
    uint64_t start = clock_ns();
    for (long i = 0; i < options.threads; i++)
        if (pthread_create(&threads[i], NULL, thread_main, (void *)(intptr_t)i)) return 1;
    for (long i = 0; i < options.threads; i++) pthread_join(threads[i], NULL);
    printf("threads %ld done in %.1f ms\n", options.threads, (double)(clock_ns() - start) / 1e6);
    free(threads);
    if (options.errors) provoke();
    leak();
    linger(options.linger);
    tear_down();
    tally_merge();
    tally_print();
    return 0;
}
