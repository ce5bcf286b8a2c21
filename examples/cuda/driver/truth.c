/*
 * Totals of what the GPU did, for comparison with a trace: CUDASIM_GPU_TRUTH=FILE appends them to that file at the end of the
 * process. They are counted whether anything observes the GPU or not.
 *
 *     kernel _Z4fillPffi count 12 total 61440
 *     memcpy HtoD count 4 bytes 16384 total 9024
 *     memset count 4 bytes 16 total 8000
 *     graph count 3 total 30720
 *     sync stream count 7 total 123456
 *
 * `graph_kernel`, `graph_memcpy` and `graph_memset` are the parts of these that graphs launched. Totals are in nanoseconds: of
 * GPU time for work, which does not depend on the host, and of host time for waits.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum { BUCKETS = 256 };
struct total {
    struct total *next;
    const char *what, *name; /* both live as long as the process; compared by address */
    bool has_bytes;
    uint64_t count, bytes, ns;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct total *totals[BUCKETS];
static const char *path;

static const char *const DIRECTIONS[] = {
    "unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP",
};
static const char *const WAITS[] = {"unknown", "event", "stream_for_event", "stream", "context"};

static struct total *total_of(const char *what, const char *name, bool has_bytes) {
    struct total **bucket = &totals[((uintptr_t)what ^ (uintptr_t)name >> 4) % BUCKETS], *at = *bucket;
    while (at && (at->what != what || at->name != name)) at = at->next;
    if (at || !(at = calloc(1, sizeof *at))) return at;
    *at = (struct total){*bucket, what, name, has_bytes, 0, 0, 0};
    return *bucket = at;
}

static void add(const char *what, const char *name, bool has_bytes, uint64_t bytes, uint64_t ns) {
    pthread_mutex_lock(&lock);
    struct total *total = total_of(what, name, has_bytes);
    if (total) {
        total->count++;
        total->bytes += bytes;
        total->ns += ns;
    }
    pthread_mutex_unlock(&lock);
}

void truth_add(const struct observed_work *w) {
    uint64_t ns = w->end - w->start;
    const char *direction = w->kind == OBSERVED_COPY ? DIRECTIONS[w->copy.kind] : NULL;
    switch (w->kind) {
    case OBSERVED_KERNEL: add("kernel", w->kernel.name, false, 0, ns); break;
    case OBSERVED_COPY: add("memcpy", direction, true, w->copy.bytes, ns); break;
    case OBSERVED_FILL: add("memset", NULL, true, w->fill.bytes, ns); break;
    case OBSERVED_GRAPH: add("graph", NULL, false, 0, ns); return;
    case OBSERVED_WAIT: add("sync", WAITS[w->wait.kind], false, 0, ns); return;
    }
    if (!w->graph) return;
    switch (w->kind) {
    case OBSERVED_KERNEL: add("graph_kernel", w->kernel.name, false, 0, ns); break;
    case OBSERVED_COPY: add("graph_memcpy", direction, true, w->copy.bytes, ns); break;
    default: add("graph_memset", NULL, true, w->fill.bytes, ns); break;
    }
}

static void print(FILE *file, const struct total *t) {
    fprintf(file, "%s%s%s count %llu", t->what, t->name ? " " : "", t->name ? t->name : "", (unsigned long long)t->count);
    if (t->has_bytes) fprintf(file, " bytes %llu", (unsigned long long)t->bytes);
    fprintf(file, " total %llu\n", (unsigned long long)t->ns);
}

/* A forked child counts for itself. */
static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    memset(totals, 0, sizeof totals);
}

bool truth_begin(void) {
    const char *value = getenv("CUDASIM_GPU_TRUTH");
    if (!value || !*value) return false;
    path = strdup(value);
    pthread_atfork(NULL, NULL, forget);
    return path != NULL;
}

__attribute__((destructor)) static void write_totals(void) {
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BUCKETS; i++)
        for (const struct total *t = totals[i]; t; t = t->next) print(file, t);
    pthread_mutex_unlock(&lock);
    fclose(file);
}
