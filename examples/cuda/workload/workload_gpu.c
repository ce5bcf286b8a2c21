/*
 * A workload for the times of a GPU: kernels of different names and shapes, copies and fills of known sizes, launches of a graph,
 * waits, and gaps in which the GPU is idle. The same source runs on the simulated driver and on a real one.
 *
 * It prints what it asked the GPU for, to compare with a trace. The times are not here: on the simulation the driver keeps their
 * totals (CUDASIM_GPU_TRUTH), in lines that begin with the same words after `gpu`.
 *
 * `launches` are those outside of graphs; `count cuLaunchKernel` includes the launches that made the graphs.
 *
 *     gpu kernel _Z4fillPffi 40          all of them, also those in graphs
 *     gpu graph_kernel _Z4fillPffi 24    those in graphs
 *     gpu memcpy HtoD 8 bytes 524288     copies
 *     gpu memset 8 bytes 32768
 *     gpu graph 6                        launches
 *     gpu sync stream 16                 waits
 *     gpu gap 4 us 20000                 gaps, each of at least that long; other threads may fill them
 */
#include "../include/cuda_driver.h"
#include "../include/ranges.h"
#include "ptx.h"

#define CALLS(F)                                                                                                      \
    F(cuInit) F(cuDeviceGet) F(cuDevicePrimaryCtxRetain) F(cuDevicePrimaryCtxRelease_v2) F(cuCtxSetCurrent)           \
    F(cuCtxSynchronize) F(cuMemAlloc_v2) F(cuMemFree_v2) F(cuMemAllocHost_v2) F(cuMemFreeHost) F(cuMemcpyHtoD_v2)     \
    F(cuMemcpyHtoDAsync_v2) F(cuMemcpyDtoHAsync_v2) F(cuMemcpyDtoDAsync_v2) F(cuMemsetD8Async) F(cuStreamCreate)      \
    F(cuStreamDestroy_v2) F(cuStreamSynchronize) F(cuStreamWaitEvent) F(cuEventCreate) F(cuEventRecord)               \
    F(cuEventSynchronize) F(cuEventDestroy_v2) F(cuModuleLoadData) F(cuModuleGetFunction) F(cuModuleUnload)           \
    F(cuLaunchKernel) F(cuStreamBeginCapture_v2) F(cuStreamEndCapture) F(cuGraphInstantiateWithFlags)                 \
    F(cuGraphLaunch) F(cuGraphDestroy) F(cuGraphExecDestroy)
#define RESULTS_FILE "../include/driver_results.def"
static void print_gpu(void);
#define TALLY_MORE print_gpu
#include "tally.h"

/* ---- the command line ---- */

enum { MAX_DEVICES = 8 };

static struct {
    long threads, streams, kernels, copies, graphs, nodes, rounds, gap, rate, ranges, farewell, devices;
    double seconds;
} options = {.threads = 1, .streams = 2, .kernels = 10, .copies = 4, .graphs = 2, .nodes = 4, .rounds = 4, .devices = 1};

static const struct option {
    const char *name;
    long *value, least, most;
    const char *explains;
} OPTIONS[] = {
    {"--threads", &options.threads, 1, 1024, "threads (1)"},
    {"--streams", &options.streams, 1, 64, "streams of each thread (2)"},
    {"--kernels", &options.kernels, 0, 1 << 30, "launches of kernels in a round (10)"},
    {"--copies", &options.copies, 0, 1 << 30, "copies in a round, and as many fills (4)"},
    {"--graphs", &options.graphs, 0, 1 << 30, "launches of a graph in a round (2)"},
    {"--nodes", &options.nodes, 1, 100000, "kernels of the graph (4)"},
    {"--rounds", &options.rounds, 0, 1 << 30, "rounds of each thread (4)"},
    {"--gap", &options.gap, 0, 60000, "ms of a gap after each round (0)"},
    {"--rate", &options.rate, 0, 1 << 30, "most launches a second of each thread; 0: no limit (0)"},
    {"--devices", &options.devices, 1, MAX_DEVICES, "devices that the threads use in turn (1)"},
    {"--farewell", &options.farewell, 0, 60000, "ms that a handler takes at the exit (0)"},
    {"--ranges", &options.ranges, 0, 1, "1: with ranges of NVTX around rounds and their parts (0)"},
};
enum { OPTION_COUNT = sizeof OPTIONS / sizeof *OPTIONS };

static void usage(const char *program) {
    fprintf(stderr, "usage: %s [OPTION VALUE]...\n", program);
    for (int i = 0; i < OPTION_COUNT; i++) fprintf(stderr, "    %-10s %s\n", OPTIONS[i].name, OPTIONS[i].explains);
    fprintf(stderr, "    --seconds  rounds for that long, in place of a number of them\n");
    exit(2);
}

static void parse_options(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        const struct option *o = OPTIONS;
        if (i + 1 == argc) usage(argv[0]);
        if (!strcmp(argv[i], "--seconds")) {
            options.seconds = atof(argv[i + 1]);
            continue;
        }
        while (o < OPTIONS + OPTION_COUNT && strcmp(o->name, argv[i])) o++;
        if (o == OPTIONS + OPTION_COUNT) usage(argv[0]);
        *o->value = atol(argv[i + 1]);
        if (*o->value < o->least || *o->value > o->most) usage(argv[0]);
    }
}

/* ---- what the GPU was asked for ---- */

enum { HTOD, DTOH, DTOD, DIRECTIONS };
static const char *const DIRECTION_NAMES[DIRECTIONS] = {"HtoD", "DtoH", "DtoD"};
enum { SYNC_event, SYNC_stream_for_event, SYNC_stream, SYNC_context, SYNCS };
static const char *const SYNC_NAMES[SYNCS] = {"event", "stream_for_event", "stream", "context"};
static const char *const MANGLED[KERNEL_COUNT] = {
    "_Z10vector_addPKfS0_Pfi", "_Z5saxpyfPKfPfi", "_Z4fillPffi", "_Z5scalePffi", "_Z10reduce_sumPKfPfi",
};

struct asked {
    uint64_t kernels[KERNEL_COUNT], graph_kernels[KERNEL_COUNT], copies[DIRECTIONS], copied[DIRECTIONS];
    uint64_t fills, filled, graphs, syncs[SYNCS], gaps, gap_us;
};
static struct asked all;
static __thread struct asked own;

/* Every field is a count. */
static void asked_merge(void) {
    pthread_mutex_lock(&total_lock);
    for (size_t i = 0; i < sizeof all / sizeof(uint64_t); i++) ((uint64_t *)&all)[i] += ((uint64_t *)&own)[i];
    pthread_mutex_unlock(&total_lock);
    memset(&own, 0, sizeof own);
}

static void print_gpu(void) {
    typedef unsigned long long number;
    for (int i = 0; i < KERNEL_COUNT; i++)
        if (all.kernels[i]) printf("gpu kernel %s %llu\n", MANGLED[i], (number)all.kernels[i]);
    for (int i = 0; i < KERNEL_COUNT; i++)
        if (all.graph_kernels[i]) printf("gpu graph_kernel %s %llu\n", MANGLED[i], (number)all.graph_kernels[i]);
    for (int i = 0; i < DIRECTIONS; i++)
        if (all.copies[i]) printf("gpu memcpy %s %llu bytes %llu\n", DIRECTION_NAMES[i], (number)all.copies[i], (number)all.copied[i]);
    if (all.fills) printf("gpu memset %llu bytes %llu\n", (number)all.fills, (number)all.filled);
    if (all.graphs) printf("gpu graph %llu\n", (number)all.graphs);
    for (int i = 0; i < SYNCS; i++)
        if (all.syncs[i]) printf("gpu sync %s %llu\n", SYNC_NAMES[i], (number)all.syncs[i]);
    if (all.gaps) printf("gpu gap %llu us %llu\n", (number)all.gaps, (number)all.gap_us);
}

/* ---- a thread ---- */

/* Elements that kernels touch, and bytes of the buffers. Threads of a grid beyond the elements do nothing. */
enum { N = 256, ROOM = 1 << 20 };
/* From short kernels to long ones; all of them cover N in x, and what y and z repeat changes no result. */
static const struct { unsigned grid[3], block[3]; } SHAPES[KERNEL_COUNT] = {
    [KERNEL_vector_add] = {{8, 4, 2}, {64, 2, 1}},
    [KERNEL_saxpy] = {{32, 1, 1}, {128, 1, 1}},
    [KERNEL_fill] = {{256, 8, 1}, {64, 4, 1}},
    [KERNEL_scale] = {{2048, 1, 1}, {256, 1, 1}},
    [KERNEL_reduce_sum] = {{8192, 1, 1}, {256, 1, 1}},
};
static const size_t COPY_BYTES[DIRECTIONS] = {64 << 10, 16 << 10, 256 << 10};
enum { FILL_BYTES = 4096 };

static CUcontext contexts[MAX_DEVICES];
static CUmodule modules[MAX_DEVICES];
static CUfunction kernels[MAX_DEVICES][KERNEL_COUNT];
/* The device of the thread. */
static __thread long device;
static uint64_t end_ns;

struct lane {
    CUstream *streams;
    CUevent event;
    CUdeviceptr a, b, c, sum, from, to;
    char *host;
    CUgraph graph;
    CUgraphExec exec;
    uint64_t next_launch_ns;
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

static void sleep_until(uint64_t ns) {
    struct timespec then = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL)) continue;
}

static void keep_the_rate(struct lane *l) {
    if (!options.rate) return;
    uint64_t now = clock_ns();
    if (l->next_launch_ns < now) l->next_launch_ns = now;
    sleep_until(l->next_launch_ns);
    l->next_launch_ns += 1000000000u / (uint64_t)options.rate;
}

/* `sum` grows without end and is not read. */
static void launch(struct lane *l, int kernel, CUstream stream) {
    float one = 1;
    int n = N;
    void *params[KERNEL_COUNT][4] = {
        [KERNEL_vector_add] = {&l->a, &l->b, &l->c, &n},
        [KERNEL_saxpy] = {&one, &l->a, &l->b, &n},
        [KERNEL_fill] = {&l->a, &one, &n},
        [KERNEL_scale] = {&l->b, &one, &n},
        [KERNEL_reduce_sum] = {&l->a, &l->sum, &n},
    };
    const unsigned *grid = SHAPES[kernel].grid, *block = SHAPES[kernel].block;
    MUST(cuLaunchKernel, kernels[device][kernel], grid[0], grid[1], grid[2], block[0], block[1], block[2], 0, stream, params[kernel], NULL);
}

static CUstream stream_for(const struct lane *l, long i) {
    return l->streams[i % options.streams];
}

static void capture(struct lane *l) {
    /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: on a real GPU calls of the other threads spoil captures of the global mode. */
    MUST(cuStreamBeginCapture_v2, l->streams[0], 1);
    for (long i = 0; i < options.nodes; i++) launch(l, (int)(i % KERNEL_COUNT), l->streams[0]);
    MUST(cuStreamEndCapture, l->streams[0], &l->graph);
    MUST(cuGraphInstantiateWithFlags, &l->exec, l->graph, 0);
}

static void lane_open(struct lane *l) {
    void *host;
    l->streams = calloc((size_t)options.streams, sizeof *l->streams);
    for (long i = 0; i < options.streams; i++) MUST(cuStreamCreate, &l->streams[i], CU_STREAM_NON_BLOCKING);
    MUST(cuEventCreate, &l->event, CU_EVENT_DISABLE_TIMING);
    MUST(cuMemAllocHost_v2, &host, ROOM);
    l->host = host;
    l->a = allocate(N * sizeof(float));
    l->b = allocate(N * sizeof(float));
    l->c = allocate(N * sizeof(float));
    l->sum = allocate(sizeof(float));
    l->from = allocate(ROOM);
    l->to = allocate(ROOM);
    capture(l);
}

static void lane_close(struct lane *l) {
    MUST(cuGraphExecDestroy, l->exec);
    MUST(cuGraphDestroy, l->graph);
    release(l->to, ROOM);
    release(l->from, ROOM);
    release(l->sum, sizeof(float));
    release(l->c, N * sizeof(float));
    release(l->b, N * sizeof(float));
    release(l->a, N * sizeof(float));
    MUST(cuMemFreeHost, l->host);
    MUST(cuEventDestroy_v2, l->event);
    for (long i = 0; i < options.streams; i++) MUST(cuStreamDestroy_v2, l->streams[i]);
    free(l->streams);
}

static void launch_kernels(struct lane *l) {
    for (long i = 0; i < options.kernels; i++) {
        int kernel = (int)(i % KERNEL_COUNT);
        keep_the_rate(l);
        launch(l, kernel, stream_for(l, i));
        mine.launches[kernel]++;
        own.kernels[kernel]++;
    }
}

static void count_copy(int direction) {
    static const int BYTES_OF[DIRECTIONS] = {BYTES_h2d, BYTES_d2h, BYTES_d2d};
    own.copies[direction]++;
    own.copied[direction] += COPY_BYTES[direction];
    mine.bytes[BYTES_OF[direction]] += COPY_BYTES[direction];
}

/* Of each direction in turn, each with a fill after it. */
static void copy_and_fill(struct lane *l) {
    for (long i = 0; i < options.copies; i++) {
        CUstream stream = stream_for(l, i);
        int direction = (int)(i % DIRECTIONS);
        size_t bytes = COPY_BYTES[direction];
        switch (direction) {
        case HTOD: MUST(cuMemcpyHtoDAsync_v2, l->from, l->host, bytes, stream); break;
        case DTOH: MUST(cuMemcpyDtoHAsync_v2, l->host, l->to, bytes, stream); break;
        case DTOD: MUST(cuMemcpyDtoDAsync_v2, l->to, l->from, bytes, stream); break;
        }
        count_copy(direction);
        MUST(cuMemsetD8Async, l->to, (unsigned char)i, FILL_BYTES, stream);
        own.fills++;
        own.filled += FILL_BYTES;
        mine.bytes[BYTES_set] += FILL_BYTES;
    }
}

static void launch_graphs(struct lane *l) {
    for (long i = 0; i < options.graphs; i++) {
        keep_the_rate(l);
        MUST(cuGraphLaunch, l->exec, l->streams[0]);
        own.graphs++;
        for (long node = 0; node < options.nodes; node++) {
            own.kernels[node % KERNEL_COUNT]++;
            own.graph_kernels[node % KERNEL_COUNT]++;
        }
    }
}

/* The last stream waits for the first one, and the host for all. */
static void wait_for_all(struct lane *l) {
    MUST(cuEventRecord, l->event, l->streams[0]);
    MUST(cuStreamWaitEvent, l->streams[options.streams - 1], l->event, 0);
    MUST(cuEventSynchronize, l->event);
    own.syncs[SYNC_stream_for_event]++;
    own.syncs[SYNC_event]++;
    for (long i = 0; i < options.streams; i++) {
        MUST(cuStreamSynchronize, l->streams[i]);
        own.syncs[SYNC_stream]++;
    }
}

static void gap(void) {
    if (!options.gap) return;
    sleep_until(clock_ns() + (uint64_t)options.gap * 1000000u);
    own.gaps++;
    own.gap_us += (uint64_t)options.gap * 1000;
}

/* The one kernel whose result does not depend on the rounds. */
static void check_result(struct lane *l) {
    enum { FILL = KERNEL_fill };
    launch(l, FILL, l->streams[0]);
    mine.launches[FILL]++;
    own.kernels[FILL]++;
    MUST(cuMemcpyDtoHAsync_v2, l->host, l->a, N * sizeof(float), l->streams[0]);
    own.copies[DTOH]++;
    own.copied[DTOH] += N * sizeof(float);
    mine.bytes[BYTES_d2h] += N * sizeof(float);
    MUST(cuStreamSynchronize, l->streams[0]);
    own.syncs[SYNC_stream]++;
    expect((const float *)(const void *)l->host, N, 1, "fill");
}

/* The category of the ranges of the domain. */
enum { LOADING = 3 };
static range_domain domain;

static void enter(const char *name) {
    if (options.ranges) range_push(name);
}

static void leave(void) {
    if (options.ranges) range_pop();
}

static void in_range(const char *name, void (*part)(struct lane *), struct lane *l) {
    enter(name);
    part(l);
    leave();
}

/* A range of another domain, with a category and a number. */
static void prepare(uint64_t round) {
    range_attributes range = {.version = NVTX_VERSION, .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE, .category = LOADING};
    if (!options.ranges) return;
    range.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    range.payload.ullValue = round;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = "prepare";
    range_mark("next round");
    domain_push(domain, &range);
    domain_pop(domain);
}

static void *thread_main(void *number) {
    struct lane lane = {0};
    uint64_t job = options.ranges ? range_start("job") : 0;
    device = (long)number % options.devices;
    MUST(cuCtxSetCurrent, contexts[device]);
    lane_open(&lane);
    for (long i = 0; end_ns ? clock_ns() < end_ns : i < options.rounds; i++) {
        prepare((uint64_t)i);
        enter("round");
        in_range("kernels", launch_kernels, &lane);
        in_range("copies", copy_and_fill, &lane);
        in_range("graphs", launch_graphs, &lane);
        wait_for_all(&lane);
        leave();
        gap();
    }
    check_result(&lane);
    lane_close(&lane);
    if (options.ranges) range_end(job);
    tally_merge();
    asked_merge();
    return NULL;
}

static void set_up(void) {
    MUST(cuInit, 0);
    for (int n = (int)options.devices - 1; n >= 0; n--) {
        CUdevice handle;
        MUST(cuDeviceGet, &handle, n);
        MUST(cuDevicePrimaryCtxRetain, &contexts[n], handle);
        MUST(cuCtxSetCurrent, contexts[n]);
        MUST(cuModuleLoadData, &modules[n], kernels_ptx);
        for (int i = 0; i < KERNEL_COUNT; i++) MUST(cuModuleGetFunction, &kernels[n][i], modules[n], MANGLED[i]);
    }
}

static void tear_down(void) {
    for (int n = (int)options.devices - 1; n >= 0; n--) {
        MUST(cuCtxSetCurrent, contexts[n]);
        MUST(cuCtxSynchronize);
        own.syncs[SYNC_context]++;
        MUST(cuModuleUnload, modules[n]);
        MUST(cuDevicePrimaryCtxRelease_v2, n);
    }
}

static void say_farewell(void) {
    usleep((useconds_t)options.farewell * 1000);
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    atexit(say_farewell);
    if (options.ranges) {
        domain = domain_create("library");
        domain_name_category(domain, LOADING, "loading");
    }
    set_up();
    uint64_t start = clock_ns();
    if (options.seconds > 0) end_ns = start + (uint64_t)(options.seconds * 1e9);
    pthread_t *threads = calloc((size_t)options.threads, sizeof *threads);
    for (long i = 0; i < options.threads; i++)
        if (pthread_create(&threads[i], NULL, thread_main, (void *)i)) return 1;
    for (long i = 0; i < options.threads; i++) pthread_join(threads[i], NULL);
    printf("threads %ld done in %.1f ms\n", options.threads, (double)(clock_ns() - start) / 1e6);
    free(threads);
    tear_down();
    tally_merge();
    asked_merge();
    tally_print();
    return 0;
}
