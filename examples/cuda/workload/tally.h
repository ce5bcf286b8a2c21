/*
 * Ground truth: a workload counts its own calls, failures, launches and bytes, and prints them at the end. C and C++.
 *
 * Before including, define CALLS(F) (F(name) for each function that is called), RESULTS_FILE and SUCCESS. A call is written
 * CALL(name, arguments...). TALLY_MORE may name a function that prints lines of its own. Each thread counts for itself; tally_merge adds it to the total.
 *
 *     == counts ==
 *     count cuMemAlloc_v2 123
 *     failed cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY 1
 *     launches vector_add 40
 *     bytes h2d 4096
 *     == end ==
 */
#ifndef TALLY_H
#define TALLY_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KERNELS(F) F(vector_add) F(saxpy) F(fill) F(scale) F(reduce_sum)
#define BYTES(F) F(allocated) F(freed) F(h2d) F(d2h) F(d2d) F(set)

#define CALL_NUMBER(name) CALL_##name,
#define KERNEL_NUMBER(name) KERNEL_##name,
#define BYTES_NUMBER(name) BYTES_##name,
enum { CALLS(CALL_NUMBER) CALL_COUNT };
enum { KERNELS(KERNEL_NUMBER) KERNEL_COUNT };
enum { BYTES(BYTES_NUMBER) BYTES_COUNT };
enum { MAX_FAILURES = 64 };

struct failure {
    int call, code;
    uint64_t count;
};
struct tally {
    uint64_t calls[CALL_COUNT], launches[KERNEL_COUNT], bytes[BYTES_COUNT];
    struct failure failed[MAX_FAILURES];
    int failures;
};

static struct tally total;
static __thread struct tally mine;
static pthread_mutex_t total_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void add_failure(struct tally *t, int call, int code, uint64_t count) {
    struct failure *f = t->failed;
    while (f < t->failed + t->failures && (f->call != call || f->code != code)) f++;
    if (f == t->failed + MAX_FAILURES) abort(); /* the workload provokes a handful of kinds */
    if (f == t->failed + t->failures) {
        f->call = call;
        f->code = code;
        f->count = 0;
        t->failures++;
    }
    f->count += count;
}

static inline int tallied(int call, int code) {
    mine.calls[call]++;
    if (code) add_failure(&mine, call, code, 1);
    return code;
}
#define CALL(name, ...) tallied(CALL_##name, (int)name(__VA_ARGS__))

static inline void tally_merge(void) {
    pthread_mutex_lock(&total_lock);
    for (int i = 0; i < CALL_COUNT; i++) total.calls[i] += mine.calls[i];
    for (int i = 0; i < KERNEL_COUNT; i++) total.launches[i] += mine.launches[i];
    for (int i = 0; i < BYTES_COUNT; i++) total.bytes[i] += mine.bytes[i];
    for (int i = 0; i < mine.failures; i++) add_failure(&total, mine.failed[i].call, mine.failed[i].code, mine.failed[i].count);
    pthread_mutex_unlock(&total_lock);
    memset(&mine, 0, sizeof mine);
}

static inline const char *result_name(int code) {
#define RESULT(number, name, text) if (code == number) return #name;
#include RESULTS_FILE
#undef RESULT
    return "?";
}

#define CALL_NAME(name) #name,
static inline void tally_print(void) {
    static const char *const calls[] = {CALLS(CALL_NAME)}, *const kernels[] = {KERNELS(CALL_NAME)}, *const bytes[] = {BYTES(CALL_NAME)};
    printf("== counts ==\npid %d\n", (int)getpid());
    for (int i = 0; i < CALL_COUNT; i++)
        if (total.calls[i]) printf("count %s %llu\n", calls[i], (unsigned long long)total.calls[i]);
    for (int i = 0; i < total.failures; i++)
        printf("failed %s %s %llu\n", calls[total.failed[i].call], result_name(total.failed[i].code),
               (unsigned long long)total.failed[i].count);
    for (int i = 0; i < KERNEL_COUNT; i++) printf("launches %s %llu\n", kernels[i], (unsigned long long)total.launches[i]);
    for (int i = 0; i < BYTES_COUNT; i++) printf("bytes %s %llu\n", bytes[i], (unsigned long long)total.bytes[i]);
#ifdef TALLY_MORE
    TALLY_MORE();
#endif
    printf("bytes leaked %llu\n== end ==\n", (unsigned long long)(total.bytes[BYTES_allocated] - total.bytes[BYTES_freed]));
}

/* ---- small things that both workloads need ---- */

static inline uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void fail(const char *what, int code) {
    fprintf(stderr, "workload: %s: %s (%d)\n", what, result_name(code), code);
    exit(1);
}

/* A call that must succeed. */
#define MUST(name, ...)                             \
    do {                                            \
        int code_ = CALL(name, __VA_ARGS__);        \
        if (code_) fail(#name, code_);              \
    } while (0)

/* A call that must fail with `code`. */
#define MUST_FAIL(code, name, ...)                  \
    do {                                            \
        int code_ = CALL(name, __VA_ARGS__);        \
        if (code_ != (int)(code)) fail(#name " was to fail with " #code " and gave", code_); \
    } while (0)

static inline void expect(const float *data, int count, float value, const char *what) {
    for (int i = 0; i < count; i++) {
        if (data[i] == value) continue;
        fprintf(stderr, "workload: %s: element %d is %g, expected %g\n", what, i, data[i], value);
        exit(1);
    }
}

#endif
