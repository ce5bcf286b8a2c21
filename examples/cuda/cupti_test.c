/*
 * Tests of the simulated libcupti, as a tool in the process would use it. Run by check.sh.
 *
 *     cupti_test             runs every case in a process of its own, with its library and environment
 *     cupti_test CASE        runs one case here, on libcupti.so.$CUPTI_MAJOR; `totals` prints what its records add up to
 *
 * The sizes of records are written down here a second time, on purpose.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cupti/cupti.h"
#include "include/cuda_driver.h"

static int failures;

#define EXPECT(condition)                                                            \
    do {                                                                             \
        if (!(condition)) {                                                          \
            failures++;                                                              \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
        }                                                                            \
    } while (0)
#define OK(call) EXPECT((call) == 0)
#define FAILS(code, call) EXPECT((int)(call) == (int)(code))

/* ---- the libraries ---- */

#define FUNCTIONS(F)                                                                                                          \
    F(cuptiGetVersion) F(cuptiGetResultString) F(cuptiGetTimestamp) F(cuptiSubscribe) F(cuptiUnsubscribe)                     \
    F(cuptiEnableCallback) F(cuptiEnableDomain) F(cuptiFinalize) F(cuptiActivityEnable) F(cuptiActivityDisable)               \
    F(cuptiActivityRegisterCallbacks) F(cuptiActivityGetNextRecord) F(cuptiActivityGetNumDroppedRecords)                      \
    F(cuptiActivityFlushAll) F(cuptiActivityFlushPeriod) F(cuptiActivityGetAttribute) F(cuptiActivitySetAttribute)
#define DECLARE(name) static __typeof__(name) *p_##name;
FUNCTIONS(DECLARE)
static __typeof__(cuptiSubscribe_v2) *p_cuptiSubscribe_v2;
#define CUPTI(name) p_##name

static int major;
static void *driver;
#define DRIVER(name, ...) ((CUresult (*)(__VA_ARGS__))dlsym(driver, #name))

static void load(void) {
    char name[32];
    major = atoi(getenv("CUPTI_MAJOR"));
    snprintf(name, sizeof name, "libcupti.so.%d", major);
    void *library = dlopen(name, RTLD_NOW);
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || !driver) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define LOAD(name) EXPECT(p_##name = (__typeof__(name) *)dlsym(library, #name));
    FUNCTIONS(LOAD)
    p_cuptiSubscribe_v2 = (__typeof__(cuptiSubscribe_v2) *)dlsym(library, "cuptiSubscribe_v2");
    EXPECT((p_cuptiSubscribe_v2 != NULL) == (major == 13));
}

/* ---- what a tool does ---- */

enum { BUFFER = 1 << 20 };
struct record {
    uint32_t kind, correlation, stream, graph;
    uint64_t start, end, bytes, node;
    size_t size; /* distance to the next one */
    const char *name;
};
static struct record *records;
static size_t record_count, record_room;
static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int requests, refuse;
static size_t most_records;

static uint32_t u32(const uint8_t *record, size_t at) {
    uint32_t value;
    memcpy(&value, record + at, sizeof value);
    return value;
}
static uint64_t u64(const uint8_t *record, size_t at) {
    uint64_t value;
    memcpy(&value, record + at, sizeof value);
    return value;
}

static void on_request(uint8_t **buffer, size_t *size, size_t *most) {
    requests++;
    FAILS(CUPTI_ERROR_INVALID_OPERATION, CUPTI(cuptiActivityFlushAll)(0));
    *buffer = refuse ? NULL : aligned_alloc(8, BUFFER);
    *size = BUFFER;
    *most = most_records;
    if (*buffer) memset(*buffer, 0xaa, BUFFER); /* the library has to clear it */
}

static struct record parse(const uint8_t *r) {
    struct record out = {.kind = u32(r, 0)};
    switch (out.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        out.start = u64(r, 16), out.end = u64(r, 24), out.stream = u32(r, 48), out.correlation = u32(r, 92);
        out.name = (const char *)u64(r, 104), out.node = u64(r, 144), out.graph = u32(r, 156);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
    case CUPTI_ACTIVITY_KIND_MEMSET:
        out.bytes = u64(r, 8), out.start = u64(r, 16), out.end = u64(r, 24), out.stream = u32(r, 40);
        out.correlation = u32(r, 44), out.node = u64(r, 64), out.graph = u32(r, 72);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        out.bytes = u64(r, 8), out.start = u64(r, 16), out.end = u64(r, 24), out.correlation = u32(r, 60);
        break;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
        out.correlation = u32(r, 4), out.start = u64(r, 8), out.end = u64(r, 16), out.graph = u32(r, 28), out.stream = u32(r, 36);
        break;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        out.bytes = u32(r, 4), out.start = u64(r, 8), out.end = u64(r, 16), out.stream = u32(r, 32);
        break;
    case CUPTI_ACTIVITY_KIND_OVERHEAD: out.start = u64(r, 24), out.end = u64(r, 32); break;
    default: EXPECT(!"a known kind");
    }
    return out;
}

/* The last whole record of each kind, for a look at its fields. */
static uint8_t last_of[64][256];

static void keep(const uint8_t *r, size_t size) {
    if (record_count == record_room) records = realloc(records, (record_room = record_room ? 2 * record_room : 1024) * sizeof *records);
    records[record_count] = parse(r);
    records[record_count++].size = size;
    memcpy(last_of[u32(r, 0)], r, size < 256 ? size : 256);
}

static void on_complete(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    void *at = NULL;
    uint8_t *before = NULL;
    (void)context, (void)stream;
    EXPECT(size == BUFFER && valid <= size);
    pthread_mutex_lock(&records_lock);
    while (!CUPTI(cuptiActivityGetNextRecord)(buffer, valid, &at)) {
        if (before) keep(before, (size_t)((uint8_t *)at - before));
        before = at;
    }
    FAILS(CUPTI_ERROR_MAX_LIMIT_REACHED, CUPTI(cuptiActivityGetNextRecord)(buffer, valid, &at));
    if (before) keep(before, (size_t)(buffer + valid - before));
    pthread_mutex_unlock(&records_lock);
    free(buffer);
}

static void trace(const unsigned *kinds) {
    OK(CUPTI(cuptiActivityRegisterCallbacks)(on_request, on_complete));
    for (; *kinds; kinds++) OK(CUPTI(cuptiActivityEnable)(*kinds));
}
#define TRACE(...) trace((const unsigned[]){__VA_ARGS__, 0})

static void flush(unsigned flag) {
    OK(CUPTI(cuptiActivityFlushAll)(flag));
}

static size_t count(uint32_t kind) {
    size_t found = 0;
    pthread_mutex_lock(&records_lock); /* the worker may be adding some */
    for (size_t i = 0; i < record_count; i++) found += records[i].kind == kind;
    pthread_mutex_unlock(&records_lock);
    return found;
}

static const struct record *find(uint32_t kind) {
    for (size_t i = 0; i < record_count; i++)
        if (records[i].kind == kind) return &records[i];
    static const struct record none;
    EXPECT(!"a record of the kind");
    return &none;
}

/* ---- what a program does ---- */

static CUcontext context;
static CUfunction fast_kernel, slow_kernel;
static CUstream streams[3];
static const char PTX[] = ".version 6.4\n.entry one(.param .u64 p)\n{ ret; }\n.entry two(.param .u64 p)\n{ ret; }\n";

static void begin(void) {
    CUmodule module;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, PTX));
    OK(cuModuleGetFunction(&fast_kernel, module, "one"));
    OK(cuModuleGetFunction(&slow_kernel, module, "two"));
    for (int i = 0; i < 3; i++) OK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

static void launch(CUfunction f, unsigned blocks, CUstream stream) {
    OK(cuLaunchKernel(f, blocks, 2, 1, 32, 4, 1, 100, stream, NULL, NULL));
}

/* 2^20 threads a 1/32 ns, and more: about 4 ms. */
static void launch_slow(CUstream stream) {
    launch(slow_kernel, 500000, stream);
}

enum { NODES = 3 };
static CUgraphExec graph_of_kernels(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 64));
    OK(DRIVER(cuStreamBeginCapture_v2, CUstream, int)(streams[0], 0));
    for (int i = 0; i < NODES; i++) launch(i ? fast_kernel : slow_kernel, 100, streams[0]);
    OK(cuMemsetD8Async(p, 7, 64, streams[0]));
    OK(DRIVER(cuStreamEndCapture, CUstream, CUgraph *)(streams[0], &graph));
    OK(DRIVER(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long)(&exec, graph, 0));
    return exec;
}
static void graph_launch(CUgraphExec exec) {
    OK(DRIVER(cuGraphLaunch, CUgraphExec, CUstream)(exec, streams[0]));
}

static void copy_to_peer(CUdeviceptr p) {
    OK(DRIVER(cuMemcpyPeerAsync, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)(p, context, p + 128, context, 128, streams[0]));
}

/* Something of every kind. */
static void everything(void) {
    CUdeviceptr p;
    CUevent event;
    void *host;
    char pageable[200] = {0};
    OK(cuMemAlloc_v2(&p, 1 << 20));
    OK(cuMemAllocHost_v2(&host, 1 << 20));
    OK(cuEventCreate(&event, 0));
    launch(fast_kernel, 7, streams[1]);
    OK(cuMemcpyHtoD_v2(p, pageable, sizeof pageable));
    OK(cuMemcpyDtoHAsync_v2(host, p, 1 << 20, streams[1]));
    OK(cuMemcpyDtoDAsync_v2(p, p + 4096, 4096, streams[1]));
    OK(cuMemsetD8Async(p, 7, 999, streams[1]));
    copy_to_peer(p);
    OK(cuEventRecord(event, streams[1]));
    OK(cuStreamWaitEvent(streams[2], event, 0));
    OK(cuEventSynchronize(event));
    OK(cuStreamSynchronize(streams[1]));
    OK(cuCtxSynchronize());
}

/* ---- the cases ---- */

static const struct {
    const char *release;
    uint32_t version;
    size_t kernel, memcpy, memset, graph, sync, overhead;
} SIZES[] = {
    {"11.7", 17, 176, 88, 88, 48, 40, 40},       {"11.8", 18, 200, 88, 88, 48, 40, 40},
    {"12.0", 18, 208, 88, 88, 48, 40, 40},       {"12.4", 22, 208, 88, 88, 56, 40, 56},
    {"12.6", 24, 208, 88, 88, 56, 40, 56},       {"12.8", 26, 208, 96, 88, 56, 56, 56},
    {"12.9", 28, 208, 96, 88, 56, 56, 56},       {"13.0", 130001, 216, 96, 88, 56, 56, 56},
    {"13.1", 130101, 224, 96, 88, 56, 56, 56},   {"13.2", 130201, 224, 96, 88, 56, 56, 56},
    {"13.3", 130301, 232, 96, 88, 56, 56, 56},   {"13.4", 130401, 248, 112, 104, 56, 56, 56},
    {"13.5", 130500, 248, 112, 104, 56, 56, 56},
};
enum { RELEASES = sizeof SIZES / sizeof *SIZES };

static size_t expected_size(int release, uint32_t kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_MEMCPY: return SIZES[release].memcpy;
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return 96;
    case CUPTI_ACTIVITY_KIND_MEMSET: return SIZES[release].memset;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return SIZES[release].graph;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return SIZES[release].sync;
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return SIZES[release].overhead;
    default: return SIZES[release].kernel;
    }
}

static void sizes(void) {
    const char *wanted = getenv("CUPTISIM_RELEASE");
    int release = major == 12 ? 6 : 7; /* the default */
    uint32_t version;
    for (int i = 0; wanted && i < RELEASES; i++)
        if (!strcmp(SIZES[i].release, wanted)) release = i;
    OK(CUPTI(cuptiGetVersion)(&version));
    EXPECT(version == SIZES[release].version);
    begin();
    CUgraphExec graph = graph_of_kernels();
    TRACE(CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_OVERHEAD,
          CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    everything();
    graph_launch(graph);
    OK(cuCtxSynchronize());
    flush(0);
    EXPECT(count(CUPTI_ACTIVITY_KIND_MEMCPY) == 3 && count(CUPTI_ACTIVITY_KIND_MEMCPY2) == 1);
    EXPECT(count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == 1 && count(CUPTI_ACTIVITY_KIND_MEMSET) == 1);
    EXPECT(count(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) == 5 && count(CUPTI_ACTIVITY_KIND_GRAPH_TRACE) == 1);
    EXPECT(count(CUPTI_ACTIVITY_KIND_OVERHEAD) == 1 && record_count == 13);
    for (size_t i = 0; i < record_count; i++) {
        EXPECT(records[i].size == expected_size(release, records[i].kind));
        EXPECT(records[i].start && records[i].start <= records[i].end);
    }
}

/* The fields of the newest layout. */
static void fields(void) {
    struct timespec now;
    begin();
    CUgraphExec graph = graph_of_kernels();
    TRACE(CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY2,
          CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    everything();
    flush(0);
    const uint8_t *k = last_of[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL], *c = last_of[CUPTI_ACTIVITY_KIND_MEMCPY];
    const uint8_t *s = last_of[CUPTI_ACTIVITY_KIND_MEMSET], *p = last_of[CUPTI_ACTIVITY_KIND_MEMCPY2];
    EXPECT(!strcmp((const char *)u64(k, 104), "one"));
    EXPECT(u32(k, 52) == 7 && u32(k, 56) == 2 && u32(k, 60) == 1 && u32(k, 64) == 32 && u32(k, 68) == 4 && u32(k, 72) == 1);
    EXPECT(u32(k, 80) == 100 && (u32(k, 4) >> 16) == 16 && u32(k, 40) == 0 && u32(k, 44) && u32(k, 48) && u32(k, 92));
    EXPECT(u64(k, 24) - u64(k, 16) == 5000 + 7 * 2 * 32 * 4 / 32 && u64(k, 32) == u64(k, 24));
    EXPECT(!u32(k, 84) && !u64(k, 120) && !u64(k, 144) && !u32(k, 156) && !u32(k, 168));
    EXPECT(c[4] == 8 && c[5] == 3 && c[6] == 3 && c[7] == 1 && u64(c, 8) == 4096 && u64(c, 88) == 1);
    EXPECT(u32(c, 40) == u32(k, 48) && u32(c, 44) > u32(k, 92)); /* stream, correlation */
    EXPECT(u32(s, 4) == 7 && u64(s, 8) == 999 && s[48] == 1 && s[50] == 3);
    EXPECT(p[4] == 10 && u64(p, 8) == 128 && u32(p, 48) == u32(k, 44) && u32(p, 56) == u32(k, 44) && u32(p, 60));
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - (int64_t)u64(k, 24);
    EXPECT(age > 0 && age < 5000000000);
    uint32_t waits = 0;
    for (size_t i = 0; i < record_count; i++)
        if (records[i].kind == CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) waits |= 1u << records[i].bytes;
    EXPECT(waits == (1u << 1 | 1u << 2 | 1u << 3 | 1u << 4));
    graph_launch(graph);
    flush(1);
    EXPECT(u64(k, 144) && u32(k, 156) && u64(k, 240) == u64(k, 144) && u32(k, 232) == u32(k, 156));
    EXPECT(u64(s, 64) && u32(s, 72) == u32(k, 156));
}

static void late(void) {
    begin();
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    launch(fast_kernel, 1, streams[0]);
    OK(cuCtxSynchronize());
    launch_slow(streams[0]);
    flush(0);
    EXPECT(record_count == 0); /* one is complete, but not all in its buffer */
    OK(cuCtxSynchronize());
    flush(0);
    EXPECT(record_count == 2);
    launch_slow(streams[0]);
    flush(1);
    EXPECT(record_count == 3);
    OK(CUPTI(cuptiActivityDisable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    launch(fast_kernel, 1, streams[0]);
    flush(1);
    EXPECT(record_count == 3);
}

/* Full buffers come without a flush, but not before their records are complete. */
static void worker(void) {
    begin();
    most_records = 4;
    TRACE(CUPTI_ACTIVITY_KIND_KERNEL);
    OK(CUPTI(cuptiActivityFlushPeriod)(1));
    for (int i = 0; i < 9; i++) launch(fast_kernel, 1, streams[0]);
    EXPECT(requests == 3);
    OK(cuCtxSynchronize());
    for (int i = 0; i < 1000 && count(CUPTI_ACTIVITY_KIND_KERNEL) < 8; i++) usleep(1000);
    EXPECT(count(CUPTI_ACTIVITY_KIND_KERNEL) == 8);
    flush(0);
    EXPECT(record_count == 9);
}

/* Records are not in the order of time, those of one stream do not overlap, and a stream waits for an event of another. */
static void order(void) {
    CUevent event;
    uint64_t end_of[64] = {0}, slow_end = 0, after_event = 0, latest = 0;
    bool disorder = false;
    begin();
    OK(cuEventCreate(&event, 0));
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    launch_slow(streams[0]);
    OK(cuEventRecord(event, streams[0]));
    for (int i = 0; i < 50; i++) launch(fast_kernel, 1, streams[i % 2]);
    OK(cuStreamWaitEvent(streams[2], event, 0));
    launch(fast_kernel, 1, streams[2]);
    OK(cuCtxSynchronize());
    flush(0);
    EXPECT(record_count == 52);
    for (size_t i = 0; i < record_count; i++) {
        const struct record *r = &records[i];
        EXPECT(r->stream < 64 && r->start >= end_of[r->stream % 64]);
        end_of[r->stream % 64] = r->end;
        disorder |= r->start < latest;
        latest = r->start;
        if (!strcmp(r->name, "two")) slow_end = r->end;
        after_event = r->start;
    }
    EXPECT(disorder && slow_end && after_event >= slow_end);
}

static void drops(void) {
    size_t dropped;
    begin();
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    for (int i = 0; i < 100; i++) launch(fast_kernel, 1, NULL);
    flush(1);
    EXPECT(record_count == 90);
    OK(CUPTI(cuptiActivityGetNumDroppedRecords)(NULL, 0, &dropped));
    EXPECT(dropped == 10);
    OK(CUPTI(cuptiActivityGetNumDroppedRecords)(NULL, 0, &dropped));
    EXPECT(dropped == 0);
    refuse = 1;
    for (int i = 0; i < 10; i++) launch(fast_kernel, 1, NULL);
    OK(CUPTI(cuptiActivityGetNumDroppedRecords)(NULL, 0, &dropped));
    EXPECT(dropped == 10);
}

static void no_callback(void *userdata, unsigned domain, uint32_t number, const void *data) {
    (void)userdata, (void)domain, (void)number, (void)data;
}

static void holder(const char *expected) {
    CUpti_SubscriberHandle s;
    char name[64] = "";
    CUpti_SubscriberParams params = {sizeof params, "test", name, sizeof name};
    if (!CUPTI(cuptiSubscribe_v2)) return;
    FAILS(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, CUPTI(cuptiSubscribe_v2)(&s, no_callback, NULL, &params));
    EXPECT(!strcmp(name, expected));
}

static void subscribers(void) {
    CUpti_SubscriberHandle first, second;
    OK(CUPTI(cuptiSubscribe)(&first, no_callback, NULL));
    FAILS(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, CUPTI(cuptiSubscribe)(&second, no_callback, NULL));
    holder("CUPTI");
    FAILS(CUPTI_ERROR_INVALID_PARAMETER, CUPTI(cuptiUnsubscribe)(NULL));
    OK(CUPTI(cuptiUnsubscribe)(first));
    FAILS(CUPTI_ERROR_INVALID_PARAMETER, CUPTI(cuptiEnableCallback)(1, first, CUPTI_CB_DOMAIN_DRIVER_API, 307));
    if (CUPTI(cuptiSubscribe_v2)) {
        CUpti_SubscriberParams params = {sizeof params, "a profiler", NULL, 0};
        OK(CUPTI(cuptiSubscribe_v2)(&first, no_callback, NULL, &params));
        holder("CUPTI for a profiler");
        OK(CUPTI(cuptiUnsubscribe)(first));
    }
    OK(CUPTI(cuptiSubscribe)(&second, no_callback, NULL));
}

static void busy(void) {
    CUpti_SubscriberHandle s;
    FAILS(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, CUPTI(cuptiSubscribe)(&s, no_callback, NULL));
    holder("simulated profiler");
}

static void too_new(void) {
    CUpti_SubscriberHandle s = NULL;
    uint8_t buffer[8] = {0}, flag = 1;
    size_t size = 1;
    uint64_t time;
    uint32_t version;
    void *record = NULL;
    enum { NO = CUPTI_ERROR_NOT_INITIALIZED };
    OK(CUPTI(cuptiGetVersion)(&version));
    FAILS(NO, CUPTI(cuptiGetTimestamp)(&time));
    FAILS(NO, CUPTI(cuptiSubscribe)(&s, no_callback, NULL));
    FAILS(NO, CUPTI(cuptiUnsubscribe)(s));
    FAILS(NO, CUPTI(cuptiEnableCallback)(1, s, 1, 307));
    FAILS(NO, CUPTI(cuptiEnableDomain)(1, s, 1));
    FAILS(NO, CUPTI(cuptiFinalize)());
    FAILS(NO, CUPTI(cuptiActivityEnable)(10));
    FAILS(NO, CUPTI(cuptiActivityDisable)(10));
    FAILS(NO, CUPTI(cuptiActivityRegisterCallbacks)(on_request, on_complete));
    FAILS(NO, CUPTI(cuptiActivityGetNextRecord)(buffer, 8, &record));
    FAILS(NO, CUPTI(cuptiActivityGetNumDroppedRecords)(NULL, 0, &size));
    FAILS(NO, CUPTI(cuptiActivityFlushAll)(0));
    FAILS(NO, CUPTI(cuptiActivityFlushPeriod)(1));
    FAILS(NO, CUPTI(cuptiActivityGetAttribute)(5, &size, &flag));
    FAILS(NO, CUPTI(cuptiActivitySetAttribute)(5, &size, &flag));
}

static void errors(void) {
    CUpti_SubscriberHandle s;
    const char *text;
    uint8_t flag = 9, bad[8] = {99};
    size_t size = 1, large = 0, eight = 8;
    void *record = NULL;
    FAILS(CUPTI_ERROR_INVALID_PARAMETER, CUPTI(cuptiActivityEnable)(0));
    FAILS(CUPTI_ERROR_INVALID_PARAMETER, CUPTI(cuptiActivityEnable)(1000));
    FAILS(CUPTI_ERROR_NOT_SUPPORTED, CUPTI(cuptiActivityEnable)(12));
    FAILS(CUPTI_ERROR_INVALID_PARAMETER, CUPTI(cuptiActivityRegisterCallbacks)(NULL, on_complete));
    FAILS(CUPTI_ERROR_INVALID_OPERATION, CUPTI(cuptiFinalize)());
    OK(CUPTI(cuptiSubscribe)(&s, no_callback, NULL));
    FAILS(CUPTI_ERROR_INVALID_PARAMETER, CUPTI(cuptiEnableCallback)(1, s, 0, 307));
    OK(CUPTI(cuptiEnableDomain)(1, s, CUPTI_CB_DOMAIN_RUNTIME_API));
    OK(CUPTI(cuptiActivityGetAttribute)(9, &size, &flag));
    EXPECT(flag == (major == 13));
    flag = 1;
    OK(CUPTI(cuptiActivitySetAttribute)(5, &size, &flag));
    flag = 0;
    OK(CUPTI(cuptiActivityGetAttribute)(5, &size, &flag));
    EXPECT(flag == 1);
    FAILS(CUPTI_ERROR_INVALID_PARAMETER, CUPTI(cuptiActivityGetAttribute)(0, &size, &large));
    OK(CUPTI(cuptiActivityGetAttribute)(0, &eight, &large));
    EXPECT(large == 3 << 20);
    OK(CUPTI(cuptiActivityGetNextRecord)(bad, 8, &record));
    FAILS(CUPTI_ERROR_INVALID_KIND, CUPTI(cuptiActivityGetNextRecord)(bad, 8, &record));
    OK(CUPTI(cuptiGetResultString)(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, &text));
    EXPECT(!strcmp(text, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"));
}

enum { STEP_S = 3600 };
static void step(void) {
    uint64_t before, after;
    begin();
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    OK(CUPTI(cuptiGetTimestamp)(&before));
    launch(fast_kernel, 1, NULL);
    flush(1);
    launch(fast_kernel, 1, NULL);
    flush(1);
    OK(CUPTI(cuptiGetTimestamp)(&after));
    EXPECT(record_count == 2 && records[1].start - records[0].start > STEP_S * 1000000000ull);
    EXPECT(records[0].start > before && records[1].end < after + 1000000000 && after - before > STEP_S * 1000000000ull);
    EXPECT(records[1].end - records[1].start == records[0].end - records[0].start);
}

/* ---- callbacks ---- */

static struct {
    uint32_t entries, exits, last_number, correlation;
    int finalized; /* result of cuptiFinalize + 1 */
    bool finalize_at_entry, finalize_at_exit;
    const char *name;
} seen;

static void on_call(void *userdata, unsigned domain, uint32_t number, const void *data) {
    const CUpti_CallbackData *call = data;
    EXPECT(userdata == &seen && domain == CUPTI_CB_DOMAIN_DRIVER_API);
    bool entry = call->callbackSite == CUPTI_API_ENTER;
    if (entry) *call->correlationData = call->correlationId;
    else EXPECT(*call->correlationData == call->correlationId && *(CUresult *)call->functionReturnValue == 0);
    EXPECT(call->context == context && call->contextUid);
    entry ? seen.entries++ : seen.exits++;
    seen.last_number = number;
    seen.correlation = call->correlationId;
    seen.name = call->functionName;
    if (entry ? seen.finalize_at_entry : seen.finalize_at_exit) seen.finalized = CUPTI(cuptiFinalize)() + 1;
}

static void calls(void) {
    CUpti_SubscriberHandle s;
    begin();
    CUdeviceptr p;
    OK(cuMemAlloc_v2(&p, 64));
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY);
    OK(CUPTI(cuptiSubscribe)(&s, on_call, &seen));
    launch(fast_kernel, 1, NULL);
    EXPECT(seen.entries == 0);
    OK(CUPTI(cuptiEnableCallback)(1, s, CUPTI_CB_DOMAIN_DRIVER_API, 307));
    launch(fast_kernel, 1, NULL);
    EXPECT(seen.entries == 1 && seen.exits == 1 && seen.last_number == 307 && !strcmp(seen.name, "cuLaunchKernel"));
    uint32_t correlation = seen.correlation;
    flush(1);
    EXPECT(record_count == 2 && records[1].correlation == correlation && records[0].correlation != correlation);
    OK(CUPTI(cuptiEnableDomain)(1, s, CUPTI_CB_DOMAIN_DRIVER_API));
    OK(DRIVER(cuLaunchKernel_ptsz, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
              void **, void **)(fast_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    EXPECT(seen.last_number == 442 && !strcmp(seen.name, "cuLaunchKernel_ptsz"));
    OK(DRIVER(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, size_t, CUstream)(p, p + 32, 32, NULL));
    EXPECT(seen.last_number == 306);
    CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
    OK(DRIVER(cuLaunchKernelEx, const CUlaunchConfig *, CUfunction, void **, void **)(&config, fast_kernel, NULL, NULL));
    EXPECT(seen.last_number == 652);
    OK(DRIVER(cuLaunchCooperativeKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
              CUstream, void **)(fast_kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
    EXPECT(seen.last_number == 477);
    CUgraphExec graph = graph_of_kernels();
    graph_launch(graph);
    EXPECT(seen.last_number == 514);
    OK(cuMemsetD8Async(p, 1, 64, NULL));
    EXPECT(seen.last_number == 216 && !strcmp(seen.name, "cuMemsetD8Async"));
    uint32_t entries = seen.entries;
    /* Its number is not known: no callback. */
    OK(DRIVER(cuMemcpyPeer, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t)(p, context, p + 32, context, 32));
    EXPECT(seen.entries == entries && seen.exits == entries);
    OK(CUPTI(cuptiUnsubscribe)(s));
    launch(fast_kernel, 1, NULL);
    EXPECT(seen.entries == entries);
}

static void finalize(void) {
    CUpti_SubscriberHandle s;
    size_t size = 1;
    uint8_t flag = 0;
    begin();
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    OK(CUPTI(cuptiActivitySetAttribute)(5, &size, &(uint8_t){0}));
    OK(CUPTI(cuptiSubscribe)(&s, on_call, &seen));
    OK(CUPTI(cuptiEnableCallback)(1, s, CUPTI_CB_DOMAIN_DRIVER_API, 307));
    FAILS(CUPTI_ERROR_INVALID_OPERATION, CUPTI(cuptiFinalize)());
    seen.finalize_at_entry = true;
    launch(fast_kernel, 1, NULL);
    EXPECT(seen.finalized == CUPTI_ERROR_INVALID_OPERATION + 1);
    flush(1);
    EXPECT(record_count == 1);
    seen.finalize_at_entry = false;
    seen.finalize_at_exit = true;
    launch(fast_kernel, 1, NULL);
    EXPECT(seen.finalized == 1 && seen.entries == 2);
    FAILS(CUPTI_ERROR_INVALID_OPERATION, CUPTI(cuptiFinalize)());
    launch(fast_kernel, 1, NULL);
    flush(1);
    EXPECT(record_count == 1 && seen.entries == 2); /* what was not flushed is lost */
    seen.finalize_at_exit = false;
    OK(CUPTI(cuptiActivityGetAttribute)(5, &size, &flag));
    EXPECT(flag == 0);
    OK(CUPTI(cuptiSubscribe)(&s, on_call, &seen));
    OK(CUPTI(cuptiEnableCallback)(1, s, CUPTI_CB_DOMAIN_DRIVER_API, 307));
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    launch(fast_kernel, 1, NULL);
    flush(1);
    EXPECT(record_count == 2 && seen.entries == 3 && records[1].correlation == seen.correlation);
}

/* Ends while other threads launch. */
static atomic_bool stop;
static void *launch_until_stopped(void *unused) {
    cuCtxSetCurrent(context);
    while (!stop) launch(fast_kernel, 1, NULL);
    return unused;
}
static void finalize_under_load(void) {
    enum { THREADS = 4, TIMES = 20 };
    pthread_t threads[THREADS];
    CUpti_SubscriberHandle s;
    begin();
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, launch_until_stopped, NULL);
    for (int i = 0; i < TIMES; i++) {
        size_t before = record_count;
        memset(&seen, 0, sizeof seen);
        TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
        for (int turn = 0; turn < 400 && record_count == before; turn++) {
            usleep(5000);
            flush(1);
        }
        EXPECT(record_count > before);
        OK(CUPTI(cuptiSubscribe)(&s, no_callback, NULL));
        OK(CUPTI(cuptiUnsubscribe)(s));
        OK(CUPTI(cuptiSubscribe)(&s, on_call, &seen));
        OK(CUPTI(cuptiEnableCallback)(1, s, CUPTI_CB_DOMAIN_DRIVER_API, 514));
        seen.finalize_at_exit = true;
        graph_launch(graph_of_kernels());
        EXPECT(seen.finalized == 1);
    }
    stop = true;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void graphs(void) {
    CUpti_SubscriberHandle s;
    begin();
    CUgraphExec graph = graph_of_kernels(), other = graph_of_kernels();
    OK(CUPTI(cuptiSubscribe)(&s, on_call, &seen));
    OK(CUPTI(cuptiEnableCallback)(1, s, CUPTI_CB_DOMAIN_DRIVER_API, 514));
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET);
    graph_launch(graph);
    flush(1);
    EXPECT(count(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == NODES && count(CUPTI_ACTIVITY_KIND_MEMSET) == 1);
    for (size_t i = 0; i < record_count; i++) {
        EXPECT(records[i].correlation == seen.correlation && records[i].graph && records[i].graph == records[0].graph);
        EXPECT(records[i].node && (!i || records[i].node != records[i - 1].node));
    }
    uint32_t id = records[0].graph;
    record_count = 0;
    graph_launch(other);
    flush(1);
    EXPECT(records[0].graph != id);
    record_count = 0;
    OK(CUPTI(cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
    graph_launch(graph);
    launch(fast_kernel, 1, NULL);
    flush(1);
    EXPECT(record_count == 2 && count(CUPTI_ACTIVITY_KIND_GRAPH_TRACE) == 1);
    const struct record *whole = find(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    EXPECT(whole->graph == id && whole->correlation == seen.correlation);
    EXPECT(whole->end - whole->start == NODES * (5000 + 100 * 2 * 32 * 4 / 32) + 2000);
    record_count = 0;
    OK(CUPTI(cuptiActivityDisable)(CUPTI_ACTIVITY_KIND_GRAPH_TRACE));
    graph_launch(graph);
    flush(1);
    EXPECT(record_count == 0); /* node level does not come back in the session */
    seen.finalize_at_exit = true;
    graph_launch(graph);
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    FAILS(CUDA_ERROR_LAUNCH_FAILED, DRIVER(cuGraphLaunch, CUgraphExec, CUstream)(graph, streams[0])); /* it was changed before the end */
    graph_launch(graph_of_kernels());
    flush(1);
    EXPECT(record_count == NODES);
}

static void no_correlation(void) {
    CUpti_SubscriberHandle s;
    begin();
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    launch(fast_kernel, 1, NULL);
    OK(CUPTI(cuptiSubscribe)(&s, no_callback, NULL));
    OK(CUPTI(cuptiEnableCallback)(1, s, CUPTI_CB_DOMAIN_DRIVER_API, 307));
    launch(fast_kernel, 1, NULL);
    flush(1);
    EXPECT(record_count == 2 && records[0].correlation == 0 && records[1].correlation != 0);
}

static void no_times(void) {
    begin();
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    for (int i = 0; i < 9; i++) launch(fast_kernel, 1, NULL);
    flush(1);
    EXPECT(record_count == 9);
    for (size_t i = 0; i < record_count; i++) EXPECT((records[i].start == 0) == (i % 3 == 2) && (records[i].end == 0) == (i % 3 == 2));
}

/* A buffer that is said to be zeroed is not cleared. */
static void zeroed(void) {
    size_t size = 1;
    begin();
    OK(CUPTI(cuptiActivitySetAttribute)(5, &size, &(uint8_t){1}));
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    launch(fast_kernel, 1, NULL);
    flush(1);
    EXPECT(record_count == 1 && records[0].graph == 0xaaaaaaaa);
}

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void speed(void) {
    enum { RECORDS = 500000 };
    begin();
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    uint64_t start = clock_ns();
    for (int i = 0; i < RECORDS; i++) launch(fast_kernel, 1, streams[i % 3]);
    flush(1);
    double seconds = (double)(clock_ns() - start) / 1e9;
    EXPECT(record_count == RECORDS);
    printf("%d records in %.2f s\n", RECORDS, seconds);
    EXPECT(seconds < 5); /* about 0.5 on an idle machine */
}

enum { THREADS = 64, EACH = 2000 };
static void *launch_many(void *unused) {
    cuCtxSetCurrent(context);
    for (int i = 0; i < EACH; i++) launch(fast_kernel, 1, streams[i % 3]);
    return unused;
}

static int by_correlation(const void *a, const void *b) {
    uint32_t x = ((const struct record *)a)->correlation, y = ((const struct record *)b)->correlation;
    return x < y ? -1 : x > y;
}
static int by_start(const void *a, const void *b) {
    uint64_t x = ((const struct record *)a)->start, y = ((const struct record *)b)->start;
    return x < y ? -1 : x > y;
}

static void threads(void) {
    pthread_t thread[THREADS];
    begin();
    most_records = 100;
    TRACE(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    for (int i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, launch_many, NULL);
    for (int i = 0; i < 20; i++) flush(0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    flush(1);
    EXPECT(record_count == THREADS * EACH);
    qsort(records, record_count, sizeof *records, by_correlation);
    for (size_t i = 1; i < record_count; i++) EXPECT(records[i].correlation != records[i - 1].correlation);
    qsort(records, record_count, sizeof *records, by_start);
    uint64_t end_of[64] = {0};
    int overlaps = 0;
    for (size_t i = 0; i < record_count; i++) {
        overlaps += records[i].start < end_of[records[i].stream % 64];
        end_of[records[i].stream % 64] = records[i].end;
    }
    EXPECT(overlaps == 0);
}

static void injected(void) {
    OK(cuInit(0));
    EXPECT(getenv("INJECTED") && !strcmp(getenv("INJECTED"), "1"));
    OK(cuInit(0));
    EXPECT(getenv("INJECTED") && !strcmp(getenv("INJECTED"), "1"));
}

static void injection_missing(void) {
    OK(cuInit(0));
    EXPECT(!getenv("INJECTED"));
}

/* ---- totals, as the driver writes them with CUDASIM_GPU_TRUTH ---- */

static void print_total(const char *what, uint32_t kind, const char *name, int code, int in_graph) {
    uint64_t found = 0, bytes = 0, ns = 0;
    for (size_t i = 0; i < record_count; i++) {
        const struct record *r = &records[i];
        if (r->kind != kind || (in_graph && !r->node)) continue;
        if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? strcmp(r->name, name) != 0 : code && r->bytes != (uint64_t)code) continue;
        found++;
        bytes += r->bytes;
        ns += r->end - r->start;
    }
    printf("%s%s%s count %llu", what, name ? " " : "", name ? name : "", (unsigned long long)found);
    if (kind == CUPTI_ACTIVITY_KIND_MEMSET || kind == CUPTI_ACTIVITY_KIND_MEMCPY || kind == CUPTI_ACTIVITY_KIND_MEMCPY2)
        printf(" bytes %llu", (unsigned long long)bytes);
    printf(" total %llu\n", (unsigned long long)ns);
}

/* A launch of a graph lasts from the start of its first node to the end of its last one. */
static void print_graphs(void) {
    uint64_t found = 0, ns = 0, start = 0;
    qsort(records, record_count, sizeof *records, by_start);
    for (size_t i = 0; i < record_count; i++) {
        if (!records[i].node) continue;
        bool last = true;
        if (!start) start = records[i].start;
        for (size_t j = i + 1; j < record_count; j++) last &= records[j].correlation != records[i].correlation;
        if (!last) continue;
        found++;
        ns += records[i].end - start;
        start = 0;
    }
    printf("graph count %llu total %llu\n", (unsigned long long)found, (unsigned long long)ns);
}

static void totals(void) {
    begin();
    CUgraphExec graph = graph_of_kernels();
    TRACE(CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
          CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
    everything();
    for (int i = 0; i < 5; i++) graph_launch(graph);
    for (int i = 0; i < 10; i++) launch(slow_kernel, (unsigned)i + 1, streams[i % 3]);
    OK(cuCtxSynchronize());
    flush(1);
    print_total("kernel", CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "one", 0, 0);
    print_total("kernel", CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "two", 0, 0);
    print_total("graph_kernel", CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "one", 0, 1);
    print_total("graph_kernel", CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, "two", 0, 1);
    print_graphs();
    print_total("memset", CUPTI_ACTIVITY_KIND_MEMSET, NULL, 0, 0);
    print_total("graph_memset", CUPTI_ACTIVITY_KIND_MEMSET, NULL, 0, 1);
    print_total("memcpy", CUPTI_ACTIVITY_KIND_MEMCPY, "HtoD", 200, 0); /* everything() has one copy of each direction */
    print_total("memcpy", CUPTI_ACTIVITY_KIND_MEMCPY, "DtoH", 1 << 20, 0);
    print_total("memcpy", CUPTI_ACTIVITY_KIND_MEMCPY, "DtoD", 4096, 0);
    print_total("memcpy", CUPTI_ACTIVITY_KIND_MEMCPY2, "PtoP", 0, 0);
    print_total("sync", CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "event", 1, 0);
    print_total("sync", CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "stream_for_event", 2, 0);
    print_total("sync", CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "stream", 3, 0);
    print_total("sync", CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, "context", 4, 0);
}

static const struct test {
    const char *name, *environment; /* NAME=VALUE */
    void (*run)(void);
    const char *explains;
} TESTS[] = {
    {"sizes", NULL, sizes, "records have the sizes of their release"},
    {"fields", "CUPTISIM_RELEASE=13.4", fields, "fields are at their offsets"},
    {"late", NULL, late, "records come when they are complete, or when forced"},
    {"worker", NULL, worker, "full buffers come without a flush"},
    {"order", NULL, order, "streams are interleaved, and do not overlap in themselves"},
    {"drops", "CUPTISIM_DROP=10", drops, "dropped records are counted"},
    {"subscribers", NULL, subscribers, "a second subscriber gets error 39"},
    {"busy", "CUPTISIM_BUSY=1", busy, "another tool has the subscription"},
    {"too_new", "CUPTISIM_TOO_NEW=1", too_new, "a library that is too new gives error 15"},
    {"errors", NULL, errors, "wrong arguments are refused"},
    {"step", "CUPTISIM_CLOCK_STEP=3600000000000", step, "the wall clock makes a step after the first flush"},
    {"calls", NULL, calls, "callbacks have their numbers and correlation ids"},
    {"finalize", NULL, finalize, "the end is possible at an exit only, and a beginning after it"},
    {"finalize_under_load", "CUDASIM_FAST=1", finalize_under_load, "the end while other threads launch"},
    {"graphs", NULL, graphs, "graphs by node and as a whole"},
    {"no_correlation", "CUPTISIM_NO_CORR=1", no_correlation, "no correlation ids without callbacks"},
    {"no_times", "CUPTISIM_NO_TIMES=3", no_times, "times that are not known"},
    {"zeroed", NULL, zeroed, "a buffer that is said to be zeroed is not cleared"},
    {"speed", "CUDASIM_FAST=1", speed, "half a million records"},
    {"threads", "CUDASIM_FAST=1", threads, "64 threads launch"},
    {"injected", "CUDA_INJECTION64_PATH=HERE/libinjected.so", injected, "cuInit loads a library"},
    {"injection_missing", "CUDA_INJECTION64_PATH=/no/such/file", injection_missing, "or goes on without it"},
};

/* `HERE/` in the value becomes the folder of this program. */
static void set_environment(const char *with) {
    char text[4096], here[2048];
    const char *value = strchr(with, '=') + 1;
    int length = (int)(value - with - 1);
    ssize_t bytes = readlink("/proc/self/exe", here, sizeof here - 1);
    if (bytes < 0) abort();
    here[bytes] = 0;
    *strrchr(here, '/') = 0;
    if (!strncmp(value, "HERE/", 5)) snprintf(text, sizeof text, "%.*s=%s/%s", length, with, here, value + 5);
    else snprintf(text, sizeof text, "%s", with);
    putenv(strdup(text));
}

static int run_child(const char *self, const char *test, const char *with, const char *library) {
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        set_environment(with);
        setenv("CUPTI_MAJOR", library, 1);
        execl(self, self, test, NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    return status;
}

static void run_and_report(const char *name, const char *explains, const char *with, const char *library) {
    int status = run_child("/proc/self/exe", name, with, library);
    printf("%s  libcupti.so.%s %s: %s (%s)\n", status ? "FAILED" : "ok    ", library, name, explains, with);
    failures += status != 0;
}

int main(int argc, char **argv) {
    static const char *const LIBRARIES[] = {"12", "13"};
    if (argc > 1 && !strcmp(argv[1], "totals")) {
        load();
        totals();
        return failures != 0;
    }
    for (size_t i = 0; argc > 1 && i < sizeof TESTS / sizeof *TESTS; i++) {
        if (strcmp(TESTS[i].name, argv[1])) continue;
        load();
        TESTS[i].run();
        return failures != 0;
    }
    if (argc > 1) return 2;
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < sizeof TESTS / sizeof *TESTS; i++)
            run_and_report(TESTS[i].name, TESTS[i].explains, TESTS[i].environment ? TESTS[i].environment : "CUDASIM_FAST=", LIBRARIES[l]);
    for (int i = 0; i < RELEASES; i++) {
        char with[64];
        snprintf(with, sizeof with, "CUPTISIM_RELEASE=%s", SIZES[i].release);
        run_and_report("sizes", "records have the sizes of their release", with, SIZES[i].release[1] == '3' ? "13" : "12");
    }
    return failures != 0;
}
