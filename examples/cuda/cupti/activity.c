/*
 * Which kinds of records are made, and the attributes.
 *
 * Graphs: by default each node has a record. With GRAPH_TRACE enabled, a launch has one record as a whole; from then on, nodes
 * have none until cuptiFinalize, as in the real library. As there, times of nodes can be wrong: those of the last recorded launch when
 * the graph is launched again without records, and all after a flush that was forced while a graph was in flight.
 */
#define _GNU_SOURCE
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "cuptisim.h"

enum { KINDS = 64, ATTRIBUTES = 10 };

static _Atomic uint64_t enabled;
static atomic_bool graph_level, is_confused;

/* 0 bytes: such an attribute is not simulated. Only 5 and 9 have an effect. */
static const size_t ATTRIBUTE_BYTES[ATTRIBUTES] = {[0] = 8, [2] = 8, [5] = 1, [6] = 8, [8] = 1, [9] = 1};
static _Atomic uint64_t attributes[ATTRIBUTES];
static atomic_bool per_thread_chosen;

static void attributes_reset(void) {
    static const uint64_t DEFAULTS[ATTRIBUTES] = {[0] = 3 << 20, [2] = 250, [6] = 3};
    for (int i = 0; i < ATTRIBUTES; i++) attributes[i] = DEFAULTS[i];
    per_thread_chosen = false;
}

__attribute__((constructor)) static void begin(void) {
    attributes_reset();
}

uint64_t attribute(unsigned number) {
    if (number == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER && !per_thread_chosen) return release()->per_thread;
    return atomic_load(&attributes[number]);
}

bool kinds_enabled(void) {
    return atomic_load(&enabled) != 0;
}

bool kind_enabled(uint32_t kind) {
    return atomic_load_explicit(&enabled, memory_order_relaxed) >> kind & 1;
}

void activity_end(void) {
    atomic_store(&enabled, 0);
    atomic_store(&graph_level, false);
    atomic_store(&is_confused, false);
    attributes_reset();
}

void graphs_confused(void) {
    atomic_store(&is_confused, true);
}

/* The kind of the record of `work`; 0: none. */
static uint32_t kind_of(const struct observed_work *work) {
    uint32_t kind = 0;
    switch (work->kind) {
    case OBSERVED_KERNEL:
        kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        if (!kind_enabled(kind)) kind = CUPTI_ACTIVITY_KIND_KERNEL;
        break;
    case OBSERVED_COPY: kind = work->copy.is_peer ? CUPTI_ACTIVITY_KIND_MEMCPY2 : CUPTI_ACTIVITY_KIND_MEMCPY; break;
    case OBSERVED_FILL: kind = CUPTI_ACTIVITY_KIND_MEMSET; break;
    case OBSERVED_GRAPH: kind = CUPTI_ACTIVITY_KIND_GRAPH_TRACE; break;
    case OBSERVED_WAIT: kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION; break;
    }
    if (work->node && atomic_load(&graph_level)) return 0;
    return kind_enabled(kind) ? kind : 0;
}

void work_observed(const struct observed_work *work) {
    enum { WRONG_NS = 20000000 };
    struct lane *lane;
    struct observed_work seen = *work;
    uint32_t kind = kind_of(work);
    uint8_t *record = kind ? record_begin(kind, &lane) : NULL;
    if (!kind && work->node) node_unrecorded(work);
    if (!record) return;
    if (work->node && atomic_load(&is_confused)) seen.end += WRONG_NS;
    record_write(record, kind, &seen);
    record_end(lane, work->end, work->node);
}

/* 1 for numbers that no kind has, 27 for kinds that are not simulated. */
static CUptiResult check(unsigned kind) {
    TRY(ready());
    if (!kind || kind >= KINDS) return CUPTI_ERROR_INVALID_PARAMETER;
    return record_size(kind) ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_SUPPORTED;
}

static int wait_once(struct dl_phdr_info *info, size_t size, void *data) {
    (void)info, (void)size, (void)data;
    usleep(1000 * (useconds_t)env_number("CUPTISIM_SLOW"));
    return 1;
}

void work_slowly(void) {
    dl_iterate_phdr(wait_once, NULL);
}

EXPORTED CUptiResult cuptiActivityEnable(unsigned kind) {
    TRY(check(kind));
    work_slowly();
    if (kind == env_number("CUPTISIM_REFUSES")) return CUPTI_ERROR_NOT_SUPPORTED;
    if (kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE) atomic_store(&graph_level, true);
    atomic_fetch_or(&enabled, 1ull << kind);
    observe_driver(true);
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityDisable(unsigned kind) {
    TRY(check(kind));
    atomic_fetch_and(&enabled, ~(1ull << kind));
    observe_driver(kinds_enabled() || callbacks_enabled());
    return CUPTI_SUCCESS;
}

/* Flags are one byte; a larger value is accepted, as the real library accepts it. */
static CUptiResult check_attribute(unsigned number, const size_t *size, const void *value) {
    TRY(ready());
    if (number >= ATTRIBUTES || !size || !value) return CUPTI_ERROR_INVALID_PARAMETER;
    if (!ATTRIBUTE_BYTES[number]) return CUPTI_ERROR_NOT_SUPPORTED;
    return *size >= ATTRIBUTE_BYTES[number] && *size <= sizeof(uint64_t) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

EXPORTED CUptiResult cuptiActivityGetAttribute(unsigned number, size_t *size, void *value) {
    TRY(check_attribute(number, size, value));
    uint64_t current = attribute(number);
    *size = ATTRIBUTE_BYTES[number];
    memcpy(value, &current, *size);
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivitySetAttribute(unsigned number, size_t *size, void *value) {
    uint64_t to = 0;
    TRY(check_attribute(number, size, value));
    memcpy(&to, value, ATTRIBUTE_BYTES[number]);
    if (number == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) per_thread_chosen = true;
    atomic_store(&attributes[number], to);
    return CUPTI_SUCCESS;
}
