/*
 * A workload on the runtime API. For a real GPU: `nvcc -x cu workload_runtime.c`, kernels and launches as anybody writes
 * them. Without nvcc: a C compiler, and stubs.h for what nvcc would add; it then runs on the simulated runtime.
 *
 * It checks its results (exit status 1 if one is wrong) and prints what it called: see tally.h. What nvcc calls on its own
 * (`__cuda*`) is counted where stubs.h does it. From CUDA 13 on a launch is __cudaLaunchKernel and, from inside the
 * runtime, cudaLaunchKernel.
 */
#ifdef __CUDACC__
#include <cuda_runtime.h>
#define SIMULATED_CALLS(F)
#else
#include "../include/cuda_runtime_mini.h"
#define SIMULATED_CALLS(F)                                                                                  \
    F(__cudaRegisterFatBinary) F(__cudaRegisterFatBinaryEnd) F(__cudaRegisterFunction)                      \
    F(__cudaPushCallConfiguration) F(__cudaPopCallConfiguration) F(__cudaGetKernel) F(__cudaLaunchKernel)
#endif
#include "options.h"

#define CALLS(F)                                                                                            \
    F(cudaGetDeviceCount) F(cudaSetDevice) F(cudaGetDevice) F(cudaMemGetInfo) F(cudaDeviceSynchronize)      \
    F(cudaMalloc) F(cudaFree) F(cudaMallocHost) F(cudaFreeHost) F(cudaMemcpy) F(cudaMemcpyAsync)            \
    F(cudaMemset) F(cudaMemsetAsync) F(cudaStreamCreate) F(cudaStreamDestroy) F(cudaStreamSynchronize)      \
    F(cudaEventCreate) F(cudaEventRecord) F(cudaEventSynchronize) F(cudaEventElapsedTime)                   \
    F(cudaEventDestroy) F(cudaGetLastError) F(cudaPeekAtLastError) F(cudaLaunchKernel) SIMULATED_CALLS(F)
#define RESULTS_FILE "../include/runtime_results.def"
#include "tally.h"

#ifdef __CUDACC__
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

__global__ void vector_add(const float *a, const float *b, float *c, int n) {
    int i = INDEX;
    if (i < n) c[i] = a[i] + b[i];
}
__global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = INDEX;
    if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void fill(float *p, float value, int n) {
    int i = INDEX;
    if (i < n) p[i] = value;
}
__global__ void scale(float *p, float factor, int n) {
    int i = INDEX;
    if (i < n) p[i] *= factor;
}
__global__ void reduce_sum(const float *in, float *out, int n) {
    int i = INDEX;
    if (i < n) atomicAdd(out, in[i]);
}
#define RUN(kernel, grid, block, stream, ...)               \
    do {                                                    \
        mine.calls[CALL_cudaLaunchKernel]++;                \
        kernel<<<grid, block, 0, stream>>>(__VA_ARGS__);    \
    } while (0)
#else
#include "stubs.h"
#endif

enum { BLOCK = 256 };
static struct options options;

/* Launches and checks the result. */
#define LAUNCH(kernel, n, stream, ...)                                              \
    do {                                                                            \
        RUN(kernel, ((n) + BLOCK - 1) / BLOCK, BLOCK, stream, __VA_ARGS__);         \
        int launched_ = CALL(cudaPeekAtLastError);                                  \
        if (launched_) fail("launch of " #kernel, launched_);                       \
    } while (0)

static float *allocate(size_t bytes) {
    void *pointer;
    MUST(cudaMalloc, &pointer, bytes);
    mine.bytes[BYTES_allocated] += bytes;
    return (float *)pointer;
}

static void release(float *pointer, size_t bytes) {
    MUST(cudaFree, pointer);
    mine.bytes[BYTES_freed] += bytes;
}

/* What a thread keeps for its rounds. */
struct lane {
    cudaStream_t stream;
    cudaEvent_t start, end;
    float *host;
};

static void lane_open(struct lane *l, int room) {
    void *host;
    MUST(cudaStreamCreate, &l->stream);
    MUST(cudaEventCreate, &l->start);
    MUST(cudaEventCreate, &l->end);
    MUST(cudaMallocHost, &host, (size_t)room * sizeof(float));
    l->host = (float *)host;
}

static void lane_close(struct lane *l) {
    MUST(cudaFreeHost, l->host);
    MUST(cudaEventDestroy, l->end);
    MUST(cudaEventDestroy, l->start);
    MUST(cudaStreamDestroy, l->stream);
}

static void upload(struct lane *l, float *to, int n, float value) {
    size_t bytes = (size_t)n * sizeof(float);
    MUST(cudaStreamSynchronize, l->stream); /* the staging buffer may be on its way */
    for (int i = 0; i < n; i++) l->host[i] = value;
    MUST(cudaMemcpyAsync, to, l->host, bytes, cudaMemcpyHostToDevice, l->stream);
    mine.bytes[BYTES_h2d] += bytes;
}

static void download(struct lane *l, const float *from, int n) {
    size_t bytes = (size_t)n * sizeof(float);
    MUST(cudaMemcpyAsync, l->host, from, bytes, cudaMemcpyDeviceToHost, l->stream);
    MUST(cudaStreamSynchronize, l->stream);
    mine.bytes[BYTES_d2h] += bytes;
}

/* a = 1, b = 2; c = a + b; c = 3 a + c; c *= 2: 12 everywhere, and 12 n in all. */
static void compute(struct lane *l, float *a, float *b, float *c, float *sum, int n) {
    LAUNCH(vector_add, n, l->stream, a, b, c, n);
    LAUNCH(saxpy, n, l->stream, 3.0f, a, c, n);
    LAUNCH(scale, n, l->stream, c, 2.0f, n);
    MUST(cudaMemsetAsync, sum, 0, sizeof(float), l->stream);
    LAUNCH(reduce_sum, n, l->stream, c, sum, n);
    mine.bytes[BYTES_set] += sizeof(float);
    mine.launches[KERNEL_vector_add]++;
    mine.launches[KERNEL_saxpy]++;
    mine.launches[KERNEL_scale]++;
    mine.launches[KERNEL_reduce_sum]++;
}

static void check(struct lane *l, float *c, float *copy, float *sum, int n) {
    float all;
    size_t bytes = (size_t)n * sizeof(float);
    download(l, c, n);
    expect(l->host, n, 12, "vector_add, saxpy, scale");
    MUST(cudaMemcpy, &all, sum, sizeof all, cudaMemcpyDeviceToHost);
    mine.bytes[BYTES_d2h] += sizeof all;
    expect(&all, 1, 12.0f * (float)n, "reduce_sum");
    MUST(cudaMemcpyAsync, copy, c, bytes, cudaMemcpyDeviceToDevice, l->stream);
    mine.bytes[BYTES_d2d] += bytes;
    download(l, copy, n);
    expect(l->host, n, 12, "copy on the device");
    LAUNCH(fill, n, l->stream, copy, 7.0f, n);
    mine.launches[KERNEL_fill]++;
    download(l, copy, n);
    expect(l->host, n, 7, "fill");
}

static void round_of(struct lane *l, int n) {
    size_t bytes = (size_t)n * sizeof(float);
    float *a = allocate(bytes), *b = allocate(bytes), *c = allocate(bytes), *sum = allocate(sizeof(float));
    float ms;
    MUST(cudaEventRecord, l->start, l->stream);
    upload(l, a, n, 1);
    upload(l, b, n, 2);
    compute(l, a, b, c, sum, n);
    MUST(cudaEventRecord, l->end, l->stream);
    MUST(cudaEventSynchronize, l->end);
    MUST(cudaEventElapsedTime, &ms, l->start, l->end);
    check(l, c, a, sum, n);
    release(sum, sizeof(float));
    release(c, bytes);
    release(b, bytes);
    release(a, bytes);
}

/* Calls of one function in a tight loop. */
static void one_call(float *scratch) {
    size_t unused, all;
    int device;
    switch (options.call[0]) {
    case 'd': MUST(cudaGetDevice, &device); break;
    case 'm': MUST(cudaMemGetInfo, &unused, &all); break;
    case 'a': release(allocate(256), 256); break;
    case 'l':
        LAUNCH(fill, 1, 0, scratch, 1.0f, 1);
        mine.launches[KERNEL_fill]++;
        break;
    }
}

static void tight_loop(void) {
    float *scratch = allocate(256);
    uint64_t start = clock_ns();
    for (long i = 0; i < options.calls; i++) one_call(scratch);
    double each = (double)(clock_ns() - start) / (double)options.calls;
    MUST(cudaDeviceSynchronize);
    release(scratch, 256);
    printf("loop %s %ld calls %.1f ns each\n", options.call, options.calls, each);
}

static void *thread_main(void *number) {
    enum { SMALLEST = 1 << 10, SIZES = 6 };
    struct lane lane;
    MUST(cudaSetDevice, 0);
    lane_open(&lane, SMALLEST << (SIZES - 1));
    for (long i = 0; i < options.iterations; i++) round_of(&lane, SMALLEST << ((i + (long)(intptr_t)number) % SIZES));
    lane_close(&lane);
    if (options.calls) tight_loop();
    tally_merge();
    return NULL;
}

/* Failures as programs meet them. None of them breaks the context. */
static void provoke(void) {
    void *pointer;
    size_t unused, all;
    float byte = 0;
    MUST(cudaMemGetInfo, &unused, &all);
    MUST_FAIL(cudaErrorMemoryAllocation, cudaMalloc, &pointer, 2 * all);
    MUST_FAIL(cudaErrorMemoryAllocation, cudaGetLastError);
    float *block = allocate(4096);
    release(block, 4096);
    MUST_FAIL(cudaErrorInvalidValue, cudaFree, block); /* freed twice */
    MUST_FAIL(cudaErrorInvalidValue, cudaGetLastError);
    block = allocate(4096);
    MUST_FAIL(cudaErrorInvalidMemcpyDirection, cudaMemcpy, block, &byte, 4, (enum cudaMemcpyKind)42);
    MUST_FAIL(cudaErrorInvalidMemcpyDirection, cudaGetLastError);
    RUN(fill, 1, 4096, 0, block, 1.0f, 1); /* more threads in a block than a device allows */
    MUST_FAIL(cudaErrorInvalidValue, cudaGetLastError);
    release(block, 4096);
}

/* Failures that are not checked: a copy whose result is thrown away, and a launch, which has none. */
static void fail_in_silence(void) {
    float *block = allocate(4096);
    float byte = 0;
    for (long i = 0; i < options.silent; i++) {
        CALL(cudaMemcpy, block, &byte, 4, (enum cudaMemcpyKind)42);
        RUN(fill, 1, 4096, 0, block, 1.0f, 1);
    }
    release(block, 4096);
}

/* In a few pieces, none of which is freed. */
static void leak(void) {
    enum { PIECES = 4 };
    for (int i = 0; i < PIECES; i++) {
        unsigned long long bytes = options.leak / PIECES + (i == 0 ? options.leak % PIECES : 0);
        if (bytes) allocate(bytes);
    }
}

/* Of a library that is unloaded when the driver has shut down. */
__attribute__((destructor)) static void free_at_exit(void) {
    for (long i = 0; i < options.at_exit; i++) cudaFree((void *)16);
}

int main(int argc, char **argv) {
    int count;
    options = parse_options(argc, argv);
    MUST(cudaGetDeviceCount, &count);
    pthread_t *threads = (pthread_t *)calloc((size_t)options.threads, sizeof *threads);
    uint64_t start = clock_ns();
    for (long i = 0; i < options.threads; i++)
        if (pthread_create(&threads[i], NULL, thread_main, (void *)(intptr_t)i)) return 1;
    for (long i = 0; i < options.threads; i++) pthread_join(threads[i], NULL);
    printf("threads %ld done in %.1f ms\n", options.threads, (double)(clock_ns() - start) / 1e6);
    free(threads);
    if (options.errors) provoke();
    if (options.silent) fail_in_silence();
    leak();
    linger(options.linger);
    MUST(cudaDeviceSynchronize);
    tally_merge();
    tally_print();
    return 0;
}
