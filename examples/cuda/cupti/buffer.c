/*
 * The tool's buffers: requested on the thread of the program when a record needs room, filled, and delivered when all records in
 * them are complete, that is when the simulated GPU's time has come to their ends.
 *
 * A lane is what fills one buffer at a time: one for the process, or one per thread (attribute 9). Full buffers go to the worker
 * thread, the latest first, since the order is no promise. A flush delivers what is complete, on its own thread; a forced one
 * delivers all.
 *
 * CUPTISIM_DROP=N: every Nth record is dropped and counted.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuptisim.h"

struct buffer {
    struct buffer *next;
    uint8_t *data;
    size_t size, used, records, most_records;
    uint64_t complete_at;
    bool has_nodes; /* of graphs */
};
struct lane {
    pthread_mutex_t lock;
    struct buffer *current, *spare;
    struct lane *next; /* of all; lanes are kept for other threads */
    atomic_bool taken;
};

static _Atomic(CUpti_BuffersCallbackRequestFunc) request;
static _Atomic(CUpti_BuffersCallbackCompleteFunc) complete;
static atomic_size_t dropped;
static _Thread_local bool in_buffer_callback;

static struct lane shared = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic(struct lane *) lanes = &shared;
static pthread_key_t lane_key;
static uint64_t drop_every;

/* Full buffers, and the worker that waits for their records to be complete. */
static pthread_mutex_t full_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t full_changed;
static struct buffer *full;
static pthread_t worker;
static bool worker_runs, worker_ends;
static uint32_t period_ms;
static pthread_mutex_t delivery = PTHREAD_MUTEX_INITIALIZER; /* held while buffers are delivered */

bool in_callback_of_buffers(void) {
    return in_buffer_callback;
}

static void lane_release(void *lane) {
    atomic_store(&((struct lane *)lane)->taken, false);
}

__attribute__((constructor)) static void begin(void) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&full_changed, &monotonic);
    pthread_key_create(&lane_key, lane_release);
    drop_every = env_number("CUPTISIM_DROP");
}

/* ---- lanes ---- */

static struct lane *lane_take(void) {
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next)
        if (lane != &shared && !atomic_exchange(&lane->taken, true)) return lane;
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane) return NULL;
    pthread_mutex_init(&lane->lock, NULL);
    lane->taken = true;
    lane->next = atomic_load(&lanes);
    while (!atomic_compare_exchange_weak(&lanes, &lane->next, lane)) continue;
    return lane;
}

static struct lane *lane_of_thread(void) {
    if (!attribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER)) return &shared;
    struct lane *lane = pthread_getspecific(lane_key);
    if (!lane && (lane = lane_take())) pthread_setspecific(lane_key, lane);
    return lane ? lane : &shared;
}

/* ---- filling ---- */

void record_drop(void) {
    atomic_fetch_add(&dropped, 1);
}

static struct buffer *buffer_new(struct overhead *cost) {
    enum { OVERHEAD_BUFFER_REQUEST = 7 << 16 };
    struct buffer *b = calloc(1, sizeof *b);
    CUpti_BuffersCallbackRequestFunc function = request;
    if (!b || !function) {
        free(b);
        return NULL;
    }
    *cost = (struct overhead){OVERHEAD_BUFFER_REQUEST, (uint32_t)gettid(), now_ns(), 0};
    in_buffer_callback = true;
    function(&b->data, &b->size, &b->most_records);
    in_buffer_callback = false;
    if (!b->data || !b->size || (uintptr_t)b->data % 8) { /* records are aligned to 8 bytes */
        free(b);
        return NULL;
    }
    if (!attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER)) memset(b->data, 0, b->size);
    cost->end = now_ns();
    return b;
}

static bool has_room(const struct buffer *b, size_t bytes) {
    return b->used + bytes <= b->size && (!b->most_records || b->records < b->most_records);
}

static uint8_t *take_room(struct buffer *b, size_t bytes) {
    uint8_t *record = b->data + b->used;
    b->used += bytes;
    b->records++;
    return record;
}

static void retire(struct buffer *b) {
    pthread_mutex_lock(&full_lock);
    b->next = full;
    full = b;
    pthread_cond_signal(&full_changed);
    pthread_mutex_unlock(&full_lock);
}

/* A buffer with room for a record, in place of the current one. The tool is called without the lock. */
static struct buffer *buffer_change(struct lane *lane, size_t bytes) {
    struct overhead cost;
    struct buffer *old = lane->current, *b;
    lane->current = NULL;
    if (old) retire(old);
    if ((b = lane->spare)) {
        lane->spare = b->next;
        b->next = NULL;
    } else {
        pthread_mutex_unlock(&lane->lock);
        b = buffer_new(&cost);
        pthread_mutex_lock(&lane->lock);
        if (b && !request) { /* the end came meanwhile: the buffer is of no session */
            free(b);
            return NULL;
        }
        size_t most = record_size(CUPTI_ACTIVITY_KIND_OVERHEAD) + bytes;
        if (b && kind_enabled(CUPTI_ACTIVITY_KIND_OVERHEAD) && b->size >= most && b->most_records != 1)
            record_overhead(take_room(b, record_size(CUPTI_ACTIVITY_KIND_OVERHEAD)), &cost);
    }
    if (!b) return NULL;
    if (!has_room(b, bytes)) { /* too small for any */
        retire(b);
        return NULL;
    }
    if (!lane->current) return lane->current = b;
    b->next = lane->spare; /* another thread was faster */
    lane->spare = b;
    return lane->current;
}

static bool is_dropped(void) {
    static _Atomic uint64_t count;
    return drop_every && (atomic_fetch_add(&count, 1) + 1) % drop_every == 0;
}

uint8_t *record_begin(uint32_t kind, struct lane **out) {
    size_t bytes = record_size(kind);
    struct lane *lane = *out = lane_of_thread();
    if (is_dropped()) {
        record_drop();
        return NULL;
    }
    pthread_mutex_lock(&lane->lock);
    struct buffer *b = lane->current;
    if (!b) b = buffer_change(lane, bytes);
    while (b && !has_room(b, bytes)) b = buffer_change(lane, bytes); /* others may have filled it meanwhile */
    if (b) return take_room(b, bytes);
    pthread_mutex_unlock(&lane->lock);
    record_drop();
    return NULL;
}

void record_end(struct lane *lane, uint64_t complete_at, bool is_node) {
    struct buffer *b = lane->current;
    b->has_nodes |= is_node;
    if (b->complete_at < complete_at) b->complete_at = complete_at;
    pthread_mutex_unlock(&lane->lock);
}

/* The last record of a node in a list of buffers, or the one found before. */
static uint8_t *last_record(struct buffer *list, const struct observed_work *work, uint8_t *found) {
    for (struct buffer *b = list; b; b = b->next) {
        uint32_t kind;
        for (size_t at = 0; at < b->used; at += record_size(kind)) {
            memcpy(&kind, b->data + at, sizeof kind);
            if (record_is_of(b->data + at, work) && (!found || record_start(found) <= record_start(b->data + at)))
                found = b->data + at;
        }
    }
    return found;
}

void node_unrecorded(const struct observed_work *work) {
    uint8_t *last = NULL;
    pthread_mutex_lock(&delivery); /* so that no tool gets the buffers meanwhile */
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next) {
        pthread_mutex_lock(&lane->lock);
        last = last_record(lane->current, work, last);
        pthread_mutex_unlock(&lane->lock);
    }
    pthread_mutex_lock(&full_lock);
    last = last_record(full, work, last);
    pthread_mutex_unlock(&full_lock);
    if (last) record_changes(last, work);
    pthread_mutex_unlock(&delivery);
}

/* ---- delivery ---- */

static void deliver(struct buffer *list) {
    CUpti_BuffersCallbackCompleteFunc function = complete;
    for (struct buffer *b = list, *next; b; b = next) {
        next = b->next;
        in_buffer_callback = true;
        if (function) function(NULL, 0, b->data, b->size, b->used);
        in_buffer_callback = false;
        free(b);
    }
}

static bool is_complete(const struct buffer *b, uint64_t now) {
    return b->complete_at <= now;
}

/* Moves the complete ones of the full buffers, or all, to `out`. With the lock. */
static void take_full(struct buffer **out, bool all) {
    uint64_t now = now_ns();
    for (struct buffer **at = &full; *at;) {
        struct buffer *b = *at;
        if (!all && !is_complete(b, now)) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        b->next = *out;
        *out = b;
    }
}

static void take_current(struct lane *lane, struct buffer **out, bool all) {
    pthread_mutex_lock(&lane->lock);
    struct buffer *b = lane->current;
    if (b && b->used && (all || is_complete(b, now_ns()))) {
        lane->current = NULL;
        b->next = *out;
        *out = b;
    }
    pthread_mutex_unlock(&lane->lock);
}

/* When the worker has something to do next. With the lock. */
static uint64_t next_time(void) {
    uint64_t then = now_ns() + 1000000000u;
    if (period_ms) return now_ns() + period_ms * 1000000ull;
    for (const struct buffer *b = full; b; b = b->next)
        if (b->complete_at < then) then = b->complete_at;
    return then;
}

static void *work(void *unused) {
    pthread_setname_np(pthread_self(), "cupti-worker");
    pthread_mutex_lock(&full_lock);
    while (!worker_ends) {
        struct buffer *list = NULL;
        uint64_t then = next_time();
        struct timespec until = {(time_t)(then / 1000000000u), (long)(then % 1000000000u)};
        pthread_cond_timedwait(&full_changed, &full_lock, &until);
        pthread_mutex_unlock(&full_lock);
        /* `delivery` first: a flush that gets it must find in `full` what this thread has not delivered. */
        pthread_mutex_lock(&delivery);
        pthread_mutex_lock(&full_lock);
        if (!worker_ends) take_full(&list, false);
        pthread_mutex_unlock(&full_lock);
        deliver(list);
        pthread_mutex_unlock(&delivery);
        pthread_mutex_lock(&full_lock);
    }
    pthread_mutex_unlock(&full_lock);
    return unused;
}

EXPORTED CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc on_request,
                                                    CUpti_BuffersCallbackCompleteFunc on_complete) {
    TRY(ready());
    if (!on_request || !on_complete) return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&full_lock);
    request = on_request;
    complete = on_complete;
    if (!worker_runs) worker_runs = !pthread_create(&worker, NULL, work, NULL);
    pthread_mutex_unlock(&full_lock);
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityFlushAll(uint32_t flag) {
    bool all = flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED;
    struct buffer *list = NULL;
    TRY(ready());
    if (in_buffer_callback) return CUPTI_ERROR_INVALID_OPERATION;
    pthread_mutex_lock(&delivery);
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next) take_current(lane, &list, all);
    pthread_mutex_lock(&full_lock);
    take_full(&list, all);
    pthread_mutex_unlock(&full_lock);
    for (const struct buffer *b = list; b; b = b->next)
        if (b->has_nodes && !is_complete(b, now_ns())) graphs_confused();
    deliver(list);
    pthread_mutex_unlock(&delivery);
    clock_measure();
    clock_step();
    return CUPTI_SUCCESS;
}

/* The worker delivers full buffers at this period; 0: as soon as they are complete. */
EXPORTED CUptiResult cuptiActivityFlushPeriod(uint32_t ms) {
    TRY(ready());
    pthread_mutex_lock(&full_lock);
    period_ms = ms;
    pthread_cond_signal(&full_changed);
    pthread_mutex_unlock(&full_lock);
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record) {
    TRY(ready());
    if (!buffer || !record) return CUPTI_ERROR_INVALID_PARAMETER;
    uint8_t *at = *record;
    uint32_t kind;
    if (at) memcpy(&kind, at, sizeof kind);
    if (at && !record_size(kind)) return CUPTI_ERROR_INVALID_KIND;
    at = at ? at + record_size(kind) : buffer;
    if (at < buffer || at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = at;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *out) {
    (void)context, (void)stream;
    TRY(ready());
    if (!out) return CUPTI_ERROR_INVALID_PARAMETER;
    *out = atomic_exchange(&dropped, 0);
    return CUPTI_SUCCESS;
}

static void forget(struct buffer **list) {
    for (struct buffer *b = *list, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    *list = NULL;
}

/* A buffer's memory is the tool's: what was not flushed is neither delivered nor freed. */
void buffers_end(void) {
    pthread_mutex_lock(&full_lock);
    bool ran = worker_runs;
    worker_ends = true;
    pthread_cond_signal(&full_changed);
    pthread_mutex_unlock(&full_lock);
    if (ran) pthread_join(worker, NULL);
    pthread_mutex_lock(&delivery); /* a flush of another thread goes on until the tool has its buffers */
    pthread_mutex_lock(&full_lock);
    worker_runs = worker_ends = false;
    period_ms = 0;
    request = NULL;
    complete = NULL;
    forget(&full);
    pthread_mutex_unlock(&full_lock);
    pthread_mutex_unlock(&delivery);
    for (struct lane *lane = atomic_load(&lanes); lane; lane = lane->next) {
        pthread_mutex_lock(&lane->lock);
        forget(&lane->current);
        forget(&lane->spare);
        pthread_mutex_unlock(&lane->lock);
    }
    atomic_store(&dropped, 0);
}
