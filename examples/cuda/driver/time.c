/*
 * The clock and the latencies: how long calls seem to take. CUDASIM_FAST=1 removes every latency, for tests that count.
 * CUDASIM_LINGER=40 lets calls that give something back return 40 ms later: others may have been given it by then.
 *
 * Short waits spin, because a sleep has the timer slack (50 us) as its floor; long ones sleep.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "sim.h"

static bool fast;
static uint64_t linger_ns;

__attribute__((constructor)) static void read_environment(void) {
    const char *value = getenv("CUDASIM_FAST");
    fast = value && *value && *value != '0';
    linger_ns = env_bytes("CUDASIM_LINGER", 0) * 1000000u;
}

bool sim_is_fast(void) {
    return fast;
}

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void spend_ns(uint64_t ns) {
    if (fast) return;
    for (uint64_t end = now_ns() + ns; now_ns() < end;) __builtin_ia32_pause();
}

void wait_until_ns(uint64_t then) {
    enum { SPIN_NS = 100000 };
    uint64_t now = now_ns();
    if (then > now + SPIN_NS) {
        uint64_t until = then - SPIN_NS / 2;
        struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) continue;
    }
    while (now_ns() < then) sched_yield();
}

void gpu_wait(uint64_t then) {
    if (!fast) wait_until_ns(then);
}

bool gpu_is_done(uint64_t then) {
    return fast || then <= now_ns();
}

void linger(void) {
    if (linger_ns) wait_until_ns(now_ns() + linger_ns);
}

uint64_t env_bytes(const char *name, uint64_t otherwise) {
    const char *value = getenv(name);
    if (!value || !*value) return otherwise;
    char *end;
    uint64_t bytes = strtoull(value, &end, 0);
    switch (*end) {
    case 'G': case 'g': return bytes << 30;
    case 'M': case 'm': return bytes << 20;
    case 'K': case 'k': return bytes << 10;
    default: return bytes;
    }
}
