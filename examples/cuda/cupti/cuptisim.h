/*
 * What the parts of the simulated libcupti know of each other.
 *
 * release.c   the release that is simulated: its number and its sizes of records
 * clock.c     the timestamps of records
 * library.c   the way to the driver, errors that concern all functions, the end
 * callback.c  the subscriber and its callbacks at the entry and exit of calls
 * activity.c  which kinds of records are made, from the driver's observations
 * record.c    the layouts of records
 * buffer.c    the tool's buffers, from request to delivery
 */
#ifndef CUPTISIM_H
#define CUPTISIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../driver/observe.h"
#include "cupti.h"

#define EXPORTED __attribute__((visibility("default")))
#define TRY(call)                       \
    do {                                \
        CUptiResult tried_ = (call);    \
        if (tried_) return tried_;      \
    } while (0)

/* ---- release.c ---- */
struct release {
    const char *name;
    uint32_t version;
    size_t kernel, memcpy, memset, graph, sync, overhead;
    bool per_thread; /* buffers, if the tool does not choose */
};
const struct release *release(void);
size_t record_size(uint32_t kind); /* 0: no record here has this kind */

/* ---- clock.c ---- */
uint64_t now_ns(void); /* CLOCK_MONOTONIC */
uint64_t timestamp_of(uint64_t monotonic_ns);
void clock_measure(void);
void clock_step(void); /* CUPTISIM_CLOCK_STEP, once */

/* ---- library.c ---- */
uint64_t env_number(const char *name);
CUptiResult ready(void); /* an error if the library cannot be used at all */
void observe_driver(bool wanted);

/* ---- callback.c ---- */
bool callbacks_enabled(void);
void call_entered(struct observed_call *call);
void call_left(struct observed_call *call);
bool at_exit_site(void);
void callbacks_end(void);

/* ---- activity.c ---- */
void work_observed(const struct observed_work *work);
bool kinds_enabled(void);
bool kind_enabled(uint32_t kind);
void activity_end(void);
void graphs_confused(void); /* by a forced flush while one was in flight: times of later records are wrong */
/* CUPTISIM_SLOW, with a lock of the loader that fork does not reset in the child. */
void work_slowly(void);
uint64_t attribute(unsigned number);

/* ---- record.c ---- */
void record_write(uint8_t *record, uint32_t kind, const struct observed_work *work);
struct overhead {
    uint32_t kind, thread;
    uint64_t start, end;
};
bool record_is_of(const uint8_t *record, const struct observed_work *work); /* of the kernel of the same node */
uint64_t record_start(const uint8_t *record);
void record_changes(uint8_t *record, const struct observed_work *work); /* gets the end of that */
void record_overhead(uint8_t *record, const struct overhead *overhead);

/* ---- buffer.c ---- */
struct lane;
/* Room for a record, with the lane locked until record_end; NULL: dropped. */
uint8_t *record_begin(uint32_t kind, struct lane **lane);
void record_end(struct lane *lane, uint64_t complete_at, bool is_node);
/* A node of a graph runs and is not recorded: the last record of the node gets its end, unless it was delivered. */
void node_unrecorded(const struct observed_work *work);
void record_drop(void);
bool in_callback_of_buffers(void);
void buffers_end(void);

#endif
