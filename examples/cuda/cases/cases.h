/*
 * What the hard cases share: functions that stay where a probe can find them, a clock, a sleep, a number argument.
 */
#ifndef CASES_H
#define CASES_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Exported, never inlined or copied: one symbol, one place. */
#define TRACED __attribute__((noinline, noclone, used, visibility("default")))

static inline void sleep_us(long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (us > 0 && nanosleep(&t, &t) && errno == EINTR) continue;
}

static inline long number(int argc, char **argv, int at, long otherwise) {
    return at < argc ? atol(argv[at]) : otherwise;
}

static inline void begin_counts(void) {
    printf("== counts ==\npid %d\n", (int)getpid());
}

static inline void end_counts(void) {
    printf("== end ==\n");
}

#endif
