/*
 * What programs do that somebody then looks for with a tracer: one planted habit for each word of the command line, on the
 * driver API. It runs unchanged on the simulation and on a real GPU.
 *
 *     workload_habits leaks churn        # in this order; without words all but the last of the table HABITS
 *
 * `--pause=300` sets the pauses of `gaps` in milliseconds: more than a slow machine has of its own.
 *
 * For each it prints what a tracer should find:
 *
 *     planted leaks device_bytes 70000
 *
 * A step that fails where it must not ends the program with status 1.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../include/cuda_driver.h"
#include "ptx.h"

#define EXPORTED(declaration) CUresult declaration
EXPORTED(cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device));
EXPORTED(cuCtxDestroy_v2(CUcontext context));
EXPORTED(cuDevicePrimaryCtxReset_v2(CUdevice device));
EXPORTED(cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags));
EXPORTED(cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice where, CUstream stream));
EXPORTED(cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned element));
EXPORTED(cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags));
EXPORTED(cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream));
EXPORTED(cuMemFreeAsync(CUdeviceptr pointer, CUstream stream));
EXPORTED(cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape));
EXPORTED(cuStreamBeginCapture_v2(CUstream stream, int mode));
EXPORTED(cuStreamEndCapture(CUstream stream, CUgraph *graph));
EXPORTED(cuGraphCreate(CUgraph *graph, unsigned flags));
EXPORTED(cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *params));
EXPORTED(cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, const void *edges, size_t count,
                           CUgraphNodeParams *params));
EXPORTED(cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                  CUgraph child));
EXPORTED(cuGraphClone(CUgraph *clone, CUgraph graph));
EXPORTED(cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params));
EXPORTED(cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params));
EXPORTED(cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, void *told));
EXPORTED(cuGraphUpload(CUgraphExec exec, CUstream stream));
EXPORTED(cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags));
EXPORTED(cuGraphLaunch(CUgraphExec exec, CUstream stream));
EXPORTED(cuGraphExecDestroy(CUgraphExec exec));
EXPORTED(cuGraphDestroy(CUgraph graph));
EXPORTED(cuLibraryLoadData(CUlibrary *library, const void *code, void *jit_keys, void **jit_values, unsigned jit_count,
                           void *library_keys, void **library_values, unsigned library_count));
EXPORTED(cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name));
EXPORTED(cuLibraryUnload(CUlibrary library));
EXPORTED(cuMemCreate(unsigned long long *handle, size_t bytes, const void *properties, unsigned long long flags));
EXPORTED(cuMemRelease(unsigned long long handle));
EXPORTED(cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags));
EXPORTED(cuMemAddressFree(CUdeviceptr pointer, size_t bytes));
EXPORTED(cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags));
EXPORTED(cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const void *access, size_t count));
EXPORTED(cuMemUnmap(CUdeviceptr pointer, size_t bytes));
EXPORTED(cuMemPoolCreate(CUmemoryPool *pool, const void *properties));
EXPORTED(cuMemPoolDestroy(CUmemoryPool pool));
EXPORTED(cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream));
EXPORTED(cuMipmappedArrayCreate(void **mipmap, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels));
EXPORTED(cuMipmappedArrayDestroy(void *mipmap));
EXPORTED(cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, void *attributes, size_t *attribute_of,
                               size_t attribute_count, CUstream stream));
EXPORTED(cuStreamQuery(CUstream stream));
EXPORTED(cuLaunchHostFunc(CUstream stream, void (*function)(void *), void *data));
EXPORTED(cuEventQuery(CUevent event));

enum { CU_MEM_ATTACH_GLOBAL = 1, CU_STREAM_CAPTURE_MODE_RELAXED = 2, CU_AD_FORMAT_FLOAT = 0x20 };

static CUcontext context;
static CUmodule module;
static CUfunction fill, scale;
static CUdeviceptr scratch;

static void must(CUresult result, const char *what) {
    if (result == CUDA_SUCCESS) return;
    fprintf(stderr, "workload_habits: %s: result %d\n", what, (int)result);
    exit(1);
}
#define MUST(call) must(call, #call)

/* A call that is there to fail. */
static void must_fail(CUresult result, const char *what) {
    if (result != CUDA_SUCCESS) return;
    fprintf(stderr, "workload_habits: %s was to fail\n", what);
    exit(1);
}
#define MUST_FAIL(call) must_fail(call, #call)

/* Functions of their own, so that they show in stacks. */
#define SITE __attribute__((noinline)) static

static void planted(const char *habit, const char *what, long long value) {
    printf("planted %s %s %lld\n", habit, what, value);
}

/* ---- memory of each kind that is never freed, and memory that is freed with its context ---- */

SITE void leak_weights(void) {
    CUdeviceptr pointer;
    for (int i = 0; i < 7; i++) MUST(cuMemAlloc_v2(&pointer, 10000));
}

SITE void leak_staging(void) {
    void *pointer;
    for (int i = 0; i < 3; i++) MUST(cuMemHostAlloc(&pointer, 4096, 0));
}

SITE void leak_others(void) {
    CUdeviceptr pointer;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR shape = {64, 32, CU_AD_FORMAT_FLOAT, 1};
    MUST(cuMemAllocManaged(&pointer, 5000, CU_MEM_ATTACH_GLOBAL));
    MUST(cuMemAllocAsync(&pointer, 6000, NULL));
    MUST(cuArrayCreate_v2(&array, &shape));
}

SITE void freed_with_context(void) {
    CUcontext other;
    CUdeviceptr pointer;
    MUST(cuCtxCreate_v2(&other, 0, 0));
    for (int i = 0; i < 2; i++) MUST(cuMemAlloc_v2(&pointer, 8192));
    MUST(cuCtxDestroy_v2(other));
    MUST(cuCtxSetCurrent(context));
}

SITE void freed_in_order(void) {
    CUdeviceptr device, pool;
    MUST(cuMemAlloc_v2(&device, 300));
    MUST(cuMemAllocAsync(&pool, 400, NULL));
    MUST(cuMemFreeAsync(pool, NULL));
    MUST(cuMemFree_v2(device));
    MUST(cuMemFree_v2(0)); /* legal */
}

static void leaks(void) {
    leak_weights();
    leak_staging();
    leak_others();
    freed_with_context();
    freed_in_order();
    planted("leaks", "device_bytes", 70000);
    planted("leaks", "pinned_bytes", 12288);
    planted("leaks", "managed_bytes", 5000);
    planted("leaks", "pool_bytes", 6000);
    planted("leaks", "array_bytes", 8192);
    planted("leaks", "context_bytes", 16384);
}

static void nap_ms(long ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* ---- frees that are wrong ---- */

SITE void double_free(void) {
    CUdeviceptr pointer;
    MUST(cuMemAlloc_v2(&pointer, 2048));
    MUST(cuMemFree_v2(pointer));
    MUST_FAIL(cuMemFree_v2(pointer));
    MUST_FAIL(cuMemFree_v2(0xdead000)); /* never allocated */
    planted("frees", "twice", 1);
    planted("frees", "unknown", 1);
}

/* ---- the buffer that is allocated anew in every batch ---- */

SITE void batch(size_t bytes) {
    CUdeviceptr pointer;
    MUST(cuMemAlloc_v2(&pointer, bytes));
    MUST(cuMemFree_v2(pointer));
}

SITE void churn(void) {
    for (int i = 0; i < 200; i++) batch(1 << 20);
    for (int i = 0; i < 50; i++) batch(1 << 16);
    planted("churn", "pairs_1048576", 200);
    planted("churn", "pairs_65536", 50);
}

/* ---- graphs: one captured, one made by hand ---- */

static void launch(CUfunction kernel, CUstream stream) {
    float value = 1;
    int n = 64;
    void *params[] = {&scratch, &value, &n};
    MUST(cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, stream, params, NULL));
}

SITE void captured_graph(CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(fill, stream);
    launch(scale, stream);
    launch(scale, stream);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 10; i++) MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

SITE void built_graph(CUstream stream) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    float value = 2;
    int n = 64;
    void *params[] = {&scratch, &value, &n};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = fill, 1, 1, 1, 64, 1, 1, 0, params, NULL, NULL, NULL};
    MUST(cuGraphCreate(&graph, 0));
    MUST(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &kernel));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 4; i++) MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(graph));
}

static void graphs(void) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    captured_graph(stream);
    built_graph(stream);
    MUST(cuStreamDestroy_v2(stream));
    planted("graphs", "launches", 14);
    planted("graphs", "kernels", 34);
}

/* ---- graphs that are captured over two streams, updated, cloned, changed, and parts of others ---- */

/* fill on one stream, then scale on another; a launch elsewhere in the meantime is no part of it. */
SITE CUgraph forked_capture(const CUstream stream[3], const CUevent event[2]) {
    CUgraph graph;
    MUST(cuStreamBeginCapture_v2(stream[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(fill, stream[0]);
    MUST(cuEventRecord(event[0], stream[0]));
    MUST(cuStreamWaitEvent(stream[1], event[0], 0));
    launch(scale, stream[1]);
    launch(fill, stream[2]);
    MUST(cuEventRecord(event[1], stream[1]));
    MUST(cuStreamWaitEvent(stream[0], event[1], 0));
    MUST(cuStreamEndCapture(stream[0], &graph));
    launch(fill, stream[1]); /* captured no longer */
    return graph;
}

static void run(CUgraphExec exec, CUstream stream, int times) {
    MUST(cuGraphUpload(exec, stream));
    for (int i = 0; i < times; i++) MUST(cuGraphLaunch(exec, stream));
    MUST(cuStreamSynchronize(stream));
}

static CUgraphNode add(CUgraph graph, CUfunction kernel) {
    static float value = 2;
    static int n = 64;
    static void *arguments[] = {&scratch, &value, &n};
    CUgraphNode node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL,
                                .kernel = {kernel, 1, 1, 1, 64, 1, 1, 0, arguments, NULL, NULL, NULL}};
    MUST(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
    return node;
}

SITE void updated_graph(const CUstream stream[3], const CUevent event[2]) {
    CUgraph first = forked_capture(stream, event), second = forked_capture(stream, event);
    CUgraphExec exec;
    struct { int result, reserved; void *node, *other; } told;
    MUST(cuGraphInstantiateWithFlags(&exec, first, 0));
    run(exec, stream[0], 3);
    MUST(cuGraphExecUpdate_v2(exec, second, &told));
    run(exec, stream[0], 5);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(first));
    MUST(cuGraphDestroy(second));
}

SITE void cloned_graph(CUstream stream) {
    float value = 3;
    int n = 64;
    void *arguments[] = {&scratch, &value, &n};
    CUDA_KERNEL_NODE_PARAMS other = {fill, 1, 1, 1, 64, 1, 1, 0, arguments, NULL, NULL, NULL};
    CUgraph graph, clone, parent;
    CUgraphNode node;
    CUgraphExec exec;
    MUST(cuGraphCreate(&graph, 0));
    add(graph, fill);
    add(graph, scale);
    MUST(cuGraphClone(&clone, graph)); /* fill, scale */
    node = add(clone, scale);
    add(clone, scale);
    MUST(cuGraphKernelNodeSetParams_v2(node, &other)); /* 2 fill, 2 scale */
    MUST(cuGraphInstantiateWithFlags(&exec, clone, 0));
    MUST(cuGraphExecKernelNodeSetParams_v2(exec, node, &other));
    run(exec, stream, 2);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphCreate(&parent, 0));
    MUST(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph)); /* fill, scale */
    add(parent, fill);
    MUST(cuGraphInstantiateWithFlags(&exec, parent, 0));
    run(exec, stream, 1);
    MUST(cuGraphExecDestroy(exec));
    MUST(cuGraphDestroy(parent));
    MUST(cuGraphDestroy(clone));
    MUST(cuGraphDestroy(graph));
}

static void nodes(void) {
    CUstream stream[3];
    CUevent event[2];
    for (int i = 0; i < 3; i++) MUST(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) MUST(cuEventCreate(&event[i], CU_EVENT_DISABLE_TIMING));
    updated_graph(stream, event);
    cloned_graph(stream[0]);
    for (int i = 0; i < 2; i++) MUST(cuEventDestroy_v2(event[i]));
    for (int i = 0; i < 3; i++) MUST(cuStreamDestroy_v2(stream[i]));
    planted("nodes", "launches", 11);
    planted("nodes", "fill", 3 + 5 + 2 * 2 + 2);
    planted("nodes", "scale", 3 + 5 + 2 * 2 + 1);
}

/* ---- an address or a handle that is given to another thread before the call that gives it back has returned ---- */

static void *freeing(void *pointer) {
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemFree_v2((CUdeviceptr)(uintptr_t)pointer));
    return NULL;
}

struct giver {
    void *(*give_back)(void *);
    const void *what;
    _Atomic pid_t tid;
};

static void *giving(void *context) {
    struct giver *giver = context;
    void *(*give_back)(void *) = giver->give_back;
    void *what = (void *)giver->what;
    giver->tid = gettid(); /* `giver` may end from here on */
    return give_back(what);
}

/* Whether a thread sleeps, as calls do with CUDASIM_LINGER, or has ended. */
static int lingers(pid_t tid) {
    char path[64], now[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    FILE *file = fopen(path, "r");
    if (!file) return 1;
    int is_read = fgets(now, sizeof now, file) != NULL;
    fclose(file);
    return !is_read || strtol(now, NULL, 10) == SYS_clock_nanosleep;
}

/* Lets another thread give something back: done, but not returned. */
static pthread_t begin(void *give_back(void *), const void *what) {
    struct giver giver = {give_back, what, 0};
    pthread_t thread;
    pthread_create(&thread, NULL, giving, &giver);
    while (!giver.tid || !lingers(giver.tid)) nap_ms(1);
    return thread;
}

/* Needs CUDASIM_LINGER; the second block is never freed. */
SITE void reuse(void) {
    CUdeviceptr first, second;
    MUST(cuMemAlloc_v2(&first, 3000));
    pthread_t thread = begin(freeing, (void *)(uintptr_t)first);
    MUST(cuMemAlloc_v2(&second, 3000));
    pthread_join(thread, NULL);
    planted("reuse", "addresses", first == second);
    planted("reuse", "bytes", 3000);
}

/* Both blocks are freed; the second is not at first, for want of a context, and then once too often. */
SITE void pass_on(size_t first_bytes, size_t second_bytes) {
    CUdeviceptr first, second;
    MUST(cuMemAlloc_v2(&first, first_bytes));
    pthread_t thread = begin(freeing, (void *)(uintptr_t)first);
    MUST(cuMemAlloc_v2(&second, second_bytes));
    pthread_join(thread, NULL);
    planted("relay", "addresses", first == second);
    MUST(cuCtxSetCurrent(NULL));
    MUST_FAIL(cuMemFree_v2(second));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemFree_v2(second));
    MUST_FAIL(cuMemFree_v2(second));
}

static void relay(void) {
    pass_on(5000, 5000);
    pass_on(8000, 7000);
}

static void *destroying_stream(void *stream) {
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamDestroy_v2(stream));
    return NULL;
}

static void *destroying_graph(void *graph) {
    MUST(cuGraphDestroy(graph));
    return NULL;
}

static void *destroying_exec(void *exec) {
    MUST(cuGraphExecDestroy(exec));
    return NULL;
}

SITE void handles(void) {
    CUstream first, second;
    CUgraph graph, other;
    CUgraphExec exec, again;
    MUST(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    pthread_t thread = begin(destroying_stream, first);
    MUST(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING)); /* is left */
    pthread_join(thread, NULL);
    planted("handles", "streams", first == second);

    MUST(cuGraphCreate(&graph, 0));
    thread = begin(destroying_graph, graph);
    MUST(cuGraphCreate(&other, 0));
    pthread_join(thread, NULL);
    planted("handles", "graphs", graph == other);
    add(other, fill);

    MUST(cuGraphInstantiateWithFlags(&exec, other, 0));
    thread = begin(destroying_exec, exec);
    MUST(cuGraphInstantiateWithFlags(&again, other, 0));
    pthread_join(thread, NULL);
    planted("handles", "instances", exec == again);
    run(again, second, 3);
}

/* ---- launches with a pause between them ---- */

static long pause_ms = 3; /* --pause=MS */

SITE void gaps(void) {
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 40; i++) {
        launch(fill, stream);
        if (i % 4 == 3) nap_ms(pause_ms);
    }
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamDestroy_v2(stream));
    planted("gaps", "launches", 40);
    planted("gaps", "pauses", 9); /* the tenth is after the last launch */
}

/* ---- streams and events ---- */

SITE void streams(void) {
    CUstream stream[3];
    CUevent event[2];
    CUresult state;
    for (int i = 0; i < 3; i++) MUST(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) MUST(cuEventCreate(&event[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 5; i++) {
        launch(fill, stream[0]);
        MUST(cuEventRecord(event[0], stream[0]));
        MUST(cuStreamWaitEvent(stream[1], event[0], 0));
        launch(scale, stream[1]);
        MUST(cuEventRecord(event[1], stream[1]));
    }
    do state = cuEventQuery(event[1]);
    while (state == CUDA_ERROR_NOT_READY);
    MUST(state);
    MUST(cuEventSynchronize(event[1]));
    for (int i = 0; i < 2; i++) MUST(cuEventDestroy_v2(event[i]));
    for (int i = 0; i < 2; i++) MUST(cuStreamDestroy_v2(stream[i])); /* the third is left */
    planted("streams", "created", 3);
    planted("streams", "left", 1);
    planted("streams", "records", 10);
    planted("streams", "waits", 5);
}

/* ---- code that is loaded again and again ---- */

SITE void modules(void) {
    for (int i = 0; i < 3; i++) {
        CUmodule again;
        CUfunction f;
        MUST(cuModuleLoadData(&again, kernels_ptx));
        MUST(cuModuleGetFunction(&f, again, "_Z4fillPffi"));
        MUST(cuModuleUnload(again));
    }
    CUlibrary library;
    CUkernel kernel;
    MUST(cuLibraryLoadData(&library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    MUST(cuLibraryGetKernel(&kernel, library, "_Z5scalePffi"));
    MUST(cuLibraryUnload(library));
    planted("modules", "module_loads", 3);
    planted("modules", "library_loads", 1);
    planted("modules", "functions", 4);
}

/* ---- out of memory ---- */

static CUdeviceptr held[3];

SITE void hold_activations(void) {
    for (int i = 0; i < 3; i++) MUST(cuMemAlloc_v2(&held[i], 1 << 20));
}

SITE void ask_too_much(void) {
    size_t unused, all;
    CUdeviceptr pointer;
    MUST(cuMemGetInfo_v2(&unused, &all));
    MUST_FAIL(cuMemAlloc_v2(&pointer, 2 * all));
    planted("oom", "asked", (long long)(2 * all));
}

static void oom(void) {
    hold_activations();
    ask_too_much();
    planted("oom", "held", 3 << 20);
    for (int i = 0; i < 3; i++) MUST(cuMemFree_v2(held[i]));
}

/* ---- physical memory, mapped ---- */

/* CUmemAllocationProp and CUmemAccessDesc: pinned memory of the device 0, for it to read and write. */
static const struct {
    int type, handle_types, location[2];
    void *windows;
    unsigned char flags[8];
} DEVICE_MEMORY = {.type = 1, .location = {1, 0}};
static const struct {
    int location[2], flags;
} READ_WRITE = {{1, 0}, 3};

enum { CHUNK = 2 << 20 };

SITE unsigned long long map_chunk(CUdeviceptr at) {
    unsigned long long handle;
    MUST(cuMemCreate(&handle, CHUNK, &DEVICE_MEMORY, 0));
    MUST(cuMemMap(at, CHUNK, 0, handle, 0));
    MUST(cuMemSetAccess(at, CHUNK, &READ_WRITE, 1));
    return handle;
}

/* Three chunks side by side: two are given back, the handle of one of them at once; the third is left. */
SITE void vmm(void) {
    CUdeviceptr start;
    char text[64] = "mapped";
    MUST(cuMemAddressReserve(&start, 4 * CHUNK, 0, 0, 0));
    MUST(cuMemRelease(map_chunk(start)));
    unsigned long long second = map_chunk(start + CHUNK);
    map_chunk(start + 2 * CHUNK);
    MUST(cuMemcpyHtoD_v2(start + CHUNK + 100, text, sizeof text));
    MUST(cuMemUnmap(start, 2 * CHUNK));
    MUST(cuMemRelease(second));
    planted("vmm", "left", CHUNK);
}

/* ---- arrays with mipmaps: 64 x 32 floats and their halves ---- */

SITE void mipmaps(void) {
    void *kept, *freed;
    CUDA_ARRAY3D_DESCRIPTOR shape = {64, 32, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    MUST(cuMipmappedArrayCreate(&kept, &shape, 3));
    MUST(cuMipmappedArrayCreate(&freed, &shape, 1));
    MUST(cuMipmappedArrayDestroy(freed));
    planted("mipmaps", "left", (64 * 32 + 32 * 16 + 16 * 8) * 4);
}

/* ---- copies, many at once ---- */

SITE void batches(void) {
    static char host[3][512];
    CUdeviceptr device;
    CUstream stream;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&device, 4096));
    CUdeviceptr to[3] = {device, device + 1024, device + 2048};
    CUdeviceptr from[3] = {(CUdeviceptr)(size_t)host[0], (CUdeviceptr)(size_t)host[1], (CUdeviceptr)(size_t)host[2]};
    size_t bytes[3] = {100, 200, 512}, attribute_of[1] = {0};
    int attributes[6] = {1}; /* in the stream's order */
    for (int i = 0; i < 2; i++) MUST(cuMemcpyBatchAsync_v2(to, from, bytes, 3, attributes, attribute_of, 1, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemFree_v2(device));
    MUST(cuStreamDestroy_v2(stream));
    planted("batches", "bytes", 2 * 812);
}

/* ---- pools: one is destroyed while a block of it is in use, one is left ---- */

SITE void pools(void) {
    CUmemoryPool destroyed, left;
    CUdeviceptr block, other;
    /* CUmemPoolProps: as for physical memory, and zeros. */
    struct {
        int type, handle_types, location[2];
        char rest[72];
    } properties = {.type = 1, .location = {1, 0}};
    MUST(cuMemPoolCreate(&destroyed, &properties));
    MUST(cuMemPoolCreate(&left, &properties));
    MUST(cuMemAllocFromPoolAsync(&block, 7000, destroyed, NULL));
    MUST(cuMemAllocFromPoolAsync(&other, 500, destroyed, NULL));
    MUST(cuMemFreeAsync(other, NULL));
    MUST(cuMemPoolDestroy(destroyed));
    planted("pools", "in_use", 7000);
}

/* ---- the primary context's last holder lets go, and it is made anew ---- */

SITE void release(void) {
    CUdeviceptr pointer;
    for (int i = 0; i < 2; i++) MUST(cuMemAlloc_v2(&pointer, 600));
    planted("release", "bytes", 1200 + 256);
    MUST(cuDevicePrimaryCtxRelease_v2(0));
    scratch = 0;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAlloc_v2(&pointer, 70));
    planted("release", "left", 70);
}

/* ---- the device is reset; what was allocated goes with it ---- */

SITE void reset(void) {
    CUdeviceptr pointer;
    for (int i = 0; i < 4; i++) MUST(cuMemAlloc_v2(&pointer, 1000));
    planted("reset", "bytes", 4000 + 256);
    MUST(cuDevicePrimaryCtxReset_v2(0));
    scratch = 0;
}

/* ---- a kernel writes where it may not: its launch works, what comes after it fails ---- */

SITE void wild(void) {
    CUdeviceptr nowhere = 1ull << 46, pointer;
    float value = 1;
    int n = 64;
    void *params[] = {&nowhere, &value, &n};
    MUST(cuLaunchKernel(fill, 1, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
    MUST_FAIL(cuCtxSynchronize());
    for (int i = 0; i < 2; i++) MUST_FAIL(cuMemAlloc_v2(&pointer, 1000));
    scratch = 0;
    planted("wild", "failed", 3);
}

/* ---- managed memory goes back and forth. The numbers are those of the simulation, on the stand-in for the kernel driver ---- */

SITE void managed(void) {
    enum { PAGE = 4096, PAGES = 16 };
    CUdeviceptr pointer;
    float value = 1;
    int n = PAGES * PAGE / sizeof(float);
    void *params[] = {&pointer, &value, &n};
    MUST(cuMemAllocManaged(&pointer, PAGES * PAGE, CU_MEM_ATTACH_GLOBAL));
    volatile float *floats = (float *)(uintptr_t)pointer;
    for (int i = 0; i < n; i += PAGE / sizeof(float)) floats[i] = 2;
    MUST(cuLaunchKernel(fill, (unsigned)n / 64, 1, 1, 64, 1, 1, 0, NULL, params, NULL));
    MUST(cuCtxSynchronize());
    for (int i = 0; i < n; i += PAGE / sizeof(float)) must(floats[i] != 1, "what the kernel wrote");
    MUST(cuMemPrefetchAsync(pointer, PAGES * PAGE, 0, NULL));
    MUST(cuCtxSynchronize());
    must(floats[0] != 1, "what was moved");
    MUST(cuMemFree_v2(pointer));
    planted("managed", "cpu_faults", 2 * PAGES + 1);
    planted("managed", "bytes_to_gpu", 2 * PAGES * PAGE);
    planted("managed", "bytes_to_cpu", (PAGES + 1) * PAGE);
}

/* ---- a library gives back what it holds when the driver has shut down, as PyTorch's do at the end of each run ---- */

static int unloads_at_exit;
static CUlibrary library_at_exit;

__attribute__((destructor)) static void unload_at_exit(void) {
    if (!unloads_at_exit) return;
    cuLibraryUnload(library_at_exit);
    cuModuleUnload(module);
    cuMemFree_v2(scratch);
    cuDevicePrimaryCtxRelease_v2(0);
}

SITE void at_exit(void) {
    MUST(cuLibraryLoadData(&library_at_exit, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
    unloads_at_exit = 1;
    planted("at_exit", "calls", 4);
}

/* ---- calls that leave the CPU: the simulation runs functions of the host in the call that launches them ---- */

enum { ASLEEP_MS = 20, PREEMPTED = 3 };
static int door[2];

static void *wakes(void *unused) {
    (void)unused;
    pthread_setname_np(pthread_self(), "the_waker");
    nap_ms(ASLEEP_MS);
    if (write(door[1], "", 1) != 1) exit(1);
    return NULL;
}

static void spins_ms(long ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long long end = t.tv_sec * 1000000000ll + t.tv_nsec + ms * 1000000ll;
    while (t.tv_sec * 1000000000ll + t.tv_nsec < end) clock_gettime(CLOCK_MONOTONIC, &t);
}

/* Asleep for half of its time. */
static void sleeps(void *unused) {
    (void)unused;
    pthread_t waker;
    char byte;
    if (pthread_create(&waker, NULL, wakes, NULL) || read(door[0], &byte, 1) != 1) exit(1);
    pthread_join(waker, NULL);
    spins_ms(ASLEEP_MS);
}

/* The kernel waits for the child, and takes no signal meanwhile. */
static void waits_for_child(void *unused) {
    (void)unused;
    pid_t child = vfork();
    if (child == 0) {
        struct timespec pause = {0, ASLEEP_MS * 1000000};
        syscall(SYS_nanosleep, &pause, NULL);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static atomic_bool competes;

static void *competitor(void *unused) {
    (void)unused;
    while (competes) continue;
    return NULL;
}

/* Another thread wants the same CPU. */
static void is_preempted(void *unused) {
    (void)unused;
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_t thread;
    competes = true;
    if (pthread_create(&thread, NULL, competitor, NULL)) exit(1);
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    for (long end = usage.ru_nivcsw + PREEMPTED; usage.ru_nivcsw < end;) getrusage(RUSAGE_THREAD, &usage);
    competes = false;
    sched_setaffinity(0, sizeof all, &all);
    pthread_join(thread, NULL);
}

SITE void asleep(void) {
    if (pipe(door)) exit(1);
    MUST(cuLaunchHostFunc(NULL, sleeps, NULL));
    MUST(cuLaunchHostFunc(NULL, waits_for_child, NULL));
    MUST(cuLaunchHostFunc(NULL, is_preempted, NULL));
    planted("asleep", "ms", ASLEEP_MS);
}

static const struct habit {
    const char *word;
    void (*run)(void);
} HABITS[] = {
    {"leaks", leaks},     {"frees", double_free}, {"churn", churn}, {"graphs", graphs}, {"gaps", gaps},
    {"streams", streams}, {"modules", modules},   {"oom", oom},
    {"vmm", vmm},         {"mipmaps", mipmaps},   {"batches", batches}, {"pools", pools},
    {"nodes", nodes},
    {"reset", reset}, /* these two end the context: one of them, and last */
    {"release", release}, {"wild", wild},
    {"managed", managed},
    {"reuse", reuse},     {"relay", relay},       {"handles", handles}, /* need CUDASIM_LINGER */
    {"at_exit", at_exit}, {"asleep", asleep},
};
enum { HABIT_COUNT = sizeof HABITS / sizeof *HABITS, WITHOUT_WORDS = HABIT_COUNT - 8 };

static void set_up(void) {
    CUdevice device;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    MUST(cuModuleLoadData(&module, kernels_ptx));
    MUST(cuModuleGetFunction(&fill, module, "_Z4fillPffi"));
    MUST(cuModuleGetFunction(&scale, module, "_Z5scalePffi"));
    MUST(cuMemAlloc_v2(&scratch, 256));
}

static const struct habit *find(const char *word) {
    for (int i = 0; i < HABIT_COUNT; i++)
        if (!strcmp(HABITS[i].word, word)) return &HABITS[i];
    fprintf(stderr, "usage: workload_habits [--pause=MS] [WORD...], of");
    for (int i = 0; i < HABIT_COUNT; i++) fprintf(stderr, " %s", HABITS[i].word);
    fprintf(stderr, "\n");
    exit(2);
}

int main(int argc, char **argv) {
    if (argc > 1 && sscanf(argv[1], "--pause=%ld", &pause_ms) == 1) argc--, argv++;
    for (int i = 1; i < argc; i++) find(argv[i]);
    set_up();
    printf("== counts ==\npid %d\n", (int)getpid());
    for (int i = 1; i < argc; i++) find(argv[i])->run();
    for (int i = 0; argc == 1 && i < WITHOUT_WORDS; i++) HABITS[i].run();
    printf("== end ==\n");
    if (scratch && !unloads_at_exit) MUST(cuMemFree_v2(scratch));
    return 0;
}
