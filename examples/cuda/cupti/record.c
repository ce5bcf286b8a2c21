/*
 * The layouts of records, by offset. A field beyond the record's size in the simulated release is not written.
 *
 * Fields that are 0 for most records (of graphs) are only written where they are not: a buffer that its tool claimed to be
 * zeroed, and is not, shows in them.
 *
 * CUPTISIM_NO_CORR=1: correlation ids are 0 while no callback is enabled. CUPTISIM_NO_TIMES=N: every Nth kernel has start and
 * end 0, by which the real library marks times that it does not know.
 */
#include <string.h>
#include <unistd.h>

#include "cuptisim.h"

struct writer {
    uint8_t *record;
    size_t size;
};

static void put(struct writer w, size_t at, const void *value, size_t bytes) {
    if (at + bytes <= w.size) memcpy(w.record + at, value, bytes);
}
static void put8(struct writer w, size_t at, uint8_t value) {
    put(w, at, &value, sizeof value);
}
static void put16(struct writer w, size_t at, uint16_t value) {
    put(w, at, &value, sizeof value);
}
static void put32(struct writer w, size_t at, uint32_t value) {
    put(w, at, &value, sizeof value);
}
static void put64(struct writer w, size_t at, uint64_t value) {
    put(w, at, &value, sizeof value);
}

static bool no_correlation;
static uint64_t no_times_every;

__attribute__((constructor)) static void read_environment(void) {
    no_correlation = env_number("CUPTISIM_NO_CORR");
    no_times_every = env_number("CUPTISIM_NO_TIMES");
}

static uint32_t correlation_of(const struct observed_work *work) {
    return no_correlation && !callbacks_enabled() ? 0 : work->correlation;
}

/* Device, context and stream are three words in a row. */
static void put_place(struct writer w, size_t at, const struct observed_work *work) {
    put32(w, at, work->device);
    put32(w, at + 4, work->context);
    put32(w, at + 8, work->stream);
}

static void put_span(struct writer w, size_t at, const struct observed_work *work) {
    put64(w, at, timestamp_of(work->start));
    put64(w, at + 8, timestamp_of(work->end));
}

static void put_node(struct writer w, size_t node_at, size_t graph_at, const struct observed_work *work) {
    if (work->node) put64(w, node_at, work->node);
    if (work->graph) put32(w, graph_at, work->graph);
}

static void write_kernel(struct writer w, const struct observed_work *work) {
    static _Atomic uint64_t last;
    uint64_t grid_id = atomic_fetch_add(&last, 1) + 1;
    bool known = !no_times_every || grid_id % no_times_every;
    put16(w, 6, (uint16_t)work->kernel.registers);
    put64(w, 16, known ? timestamp_of(work->start) : 0);
    put64(w, 24, known ? timestamp_of(work->end) : 0);
    put64(w, 32, known ? timestamp_of(work->end) : 0); /* completed */
    put_place(w, 40, work);
    put(w, 52, work->kernel.grid, sizeof work->kernel.grid);
    put(w, 64, work->kernel.block, sizeof work->kernel.block);
    put32(w, 80, work->kernel.shared);
    put32(w, 92, correlation_of(work));
    put64(w, 96, grid_id);
    put64(w, 104, (uintptr_t)work->kernel.name);
    put8(w, 136, work->kernel.cooperative);
    put32(w, 140, work->kernel.shared);
    put_node(w, 144, 156, work);
    put32(w, 216, (uint32_t)work->priority);
    put_node(w, 240, 232, work);
}

static void write_copy(struct writer w, const struct observed_work *work) {
    put8(w, 4, (uint8_t)work->copy.kind);
    put8(w, 5, (uint8_t)work->copy.from);
    put8(w, 6, (uint8_t)work->copy.to);
    put8(w, 7, work->is_async);
    put64(w, 8, work->copy.bytes);
    put_span(w, 16, work);
    put_place(w, 32, work);
    put32(w, 44, correlation_of(work));
    put_node(w, 64, 72, work);
    put64(w, 88, 1); /* copies */
}

static void write_peer_copy(struct writer w, const struct observed_work *work) {
    put8(w, 4, (uint8_t)work->copy.kind);
    put8(w, 5, (uint8_t)work->copy.from);
    put8(w, 6, (uint8_t)work->copy.to);
    put8(w, 7, work->is_async);
    put64(w, 8, work->copy.bytes);
    put_span(w, 16, work);
    put_place(w, 32, work);
    put32(w, 44, work->copy.from_device);
    put32(w, 48, work->copy.from_context);
    put32(w, 52, work->copy.to_device);
    put32(w, 56, work->copy.to_context);
    put32(w, 60, correlation_of(work));
    put_node(w, 72, 80, work);
}

static void write_fill(struct writer w, const struct observed_work *work) {
    put32(w, 4, work->fill.value);
    put64(w, 8, work->fill.bytes);
    put_span(w, 16, work);
    put_place(w, 32, work);
    put32(w, 44, correlation_of(work));
    put16(w, 48, work->is_async);
    put16(w, 50, (uint16_t)work->fill.to);
    put_node(w, 64, 72, work);
}

static void write_graph(struct writer w, const struct observed_work *work) {
    put32(w, 4, correlation_of(work));
    put_span(w, 8, work);
    put32(w, 24, work->device);
    put32(w, 28, work->graph);
    put32(w, 32, work->context);
    put32(w, 36, work->stream);
    put32(w, 48, work->device); /* where it ends */
    put32(w, 52, work->context);
}

static void write_wait(struct writer w, const struct observed_work *work) {
    put32(w, 4, work->wait.kind);
    put_span(w, 8, work);
    put32(w, 24, correlation_of(work));
    put32(w, 28, work->context);
    put32(w, 32, work->stream);
    put32(w, 36, work->wait.event);
}

void record_write(uint8_t *record, uint32_t kind, const struct observed_work *work) {
    struct writer w = {record, record_size(kind)};
    put32(w, 0, kind);
    switch (work->kind) {
    case OBSERVED_KERNEL: write_kernel(w, work); break;
    case OBSERVED_COPY: (work->copy.is_peer ? write_peer_copy : write_copy)(w, work); break;
    case OBSERVED_FILL: write_fill(w, work); break;
    case OBSERVED_GRAPH: write_graph(w, work); break;
    case OBSERVED_WAIT: write_wait(w, work); break;
    }
}

void record_overhead(uint8_t *record, const struct overhead *overhead) {
    enum { OBJECT_THREAD = 2 };
    struct writer w = {record, record_size(CUPTI_ACTIVITY_KIND_OVERHEAD)};
    put32(w, 0, CUPTI_ACTIVITY_KIND_OVERHEAD);
    put32(w, 4, overhead->kind);
    put32(w, 8, OBJECT_THREAD);
    put32(w, 12, (uint32_t)getpid());
    put32(w, 16, overhead->thread);
    put64(w, 24, timestamp_of(overhead->start));
    put64(w, 32, timestamp_of(overhead->end));
}

/* Of a kernel. */
enum { STARTS = 16, ENDS = 24, NODE = 144 };

static uint64_t read64(const uint8_t *record, size_t at) {
    uint64_t value;
    memcpy(&value, record + at, sizeof value);
    return value;
}

bool record_is_of(const uint8_t *record, const struct observed_work *work) {
    uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    return kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && read64(record, NODE) == work->node;
}

uint64_t record_start(const uint8_t *record) {
    return read64(record, STARTS);
}

void record_changes(uint8_t *record, const struct observed_work *work) {
    uint64_t end = timestamp_of(work->end);
    memcpy(record + ENDS, &end, sizeof end);
}
