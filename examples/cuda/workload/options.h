/*
 * The command line of the workloads. C and C++.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
    long threads, iterations; /* rounds of each thread: allocate, copy, launch, check, free */
    long calls;               /* then calls of one function in a tight loop */
    const char *call;         /* which: device, meminfo, alloc, launch */
    unsigned long long leak;  /* bytes to allocate and not free */
    long linger;              /* ms to wait before the end, so that something can look at what is live */
    int errors;               /* provoke failing calls */
    long silent;              /* failing copies and launches that are not checked (the runtime's workload) */
    long at_exit;             /* frees by a destructor, when the driver has shut down (the runtime's workload) */
};

static inline void usage(const char *program) {
    fprintf(stderr,
            "usage: %s [--threads N] [--iterations N] [--leak BYTES] [--no-errors] [--silent N] [--at-exit N]\n"
            "          [--linger MS] [--calls N [--call device|meminfo|alloc|launch]]\n",
            program);
    exit(2);
}

static inline void linger(long ms) {
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static inline int is_one_of(const char *word, const char *const *words) {
    while (*words && strcmp(word, *words)) words++;
    return *words != NULL;
}

static inline struct options parse_options(int argc, char **argv) {
    static const char *const CALLS[] = {"device", "meminfo", "alloc", "launch", NULL};
    struct options o = {2, 4, 0, "device", 0, 0, 1, 0, 0};
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        if (!strcmp(option, "--no-errors")) {
            o.errors = 0;
            continue;
        }
        const char *value = i + 1 < argc ? argv[++i] : NULL;
        if (!value) usage(argv[0]);
        if (!strcmp(option, "--threads")) o.threads = atol(value);
        else if (!strcmp(option, "--iterations")) o.iterations = atol(value);
        else if (!strcmp(option, "--calls")) o.calls = atol(value);
        else if (!strcmp(option, "--silent")) o.silent = atol(value);
        else if (!strcmp(option, "--at-exit")) o.at_exit = atol(value);
        else if (!strcmp(option, "--linger")) o.linger = atol(value);
        else if (!strcmp(option, "--leak")) o.leak = strtoull(value, NULL, 0);
        else if (!strcmp(option, "--call") && is_one_of(value, CALLS)) o.call = value;
        else usage(argv[0]);
    }
    if (o.threads < 1 || o.threads > 1024 || o.iterations < 0 || o.calls < 0) usage(argv[0]);
    return o;
}

#endif
