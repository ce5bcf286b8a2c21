/*
 * Timestamps: CLOCK_REALTIME, as of the real library. They are the simulated GPU's times, which are CLOCK_MONOTONIC, plus the
 * distance of the clocks.
 *
 * CUPTISIM_CLOCK_STEP=NS: after the first flush all timestamps are NS later, as after a step of the wall clock.
 */
#include <stdlib.h>
#include <time.h>

#include "cuptisim.h"

static _Atomic int64_t distance, step;

static uint64_t read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

/* Small differences are the noise of the measurement: following them would let records of a stream overlap. */
void clock_measure(void) {
    enum { ATTEMPTS = 5, NOISE_NS = 500 };
    int64_t best = 0;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < ATTEMPTS; i++) {
        uint64_t before = now_ns(), wall = read_clock(CLOCK_REALTIME), after = now_ns();
        if (after - before >= least) continue;
        least = after - before;
        best = (int64_t)(wall - (before + least / 2));
    }
    int64_t moved = best - atomic_load(&distance);
    if (llabs(moved) > NOISE_NS + (int64_t)least / 2) atomic_store(&distance, best);
}

void clock_step(void) {
    static atomic_bool done;
    const char *value = getenv("CUPTISIM_CLOCK_STEP");
    if (value && !atomic_exchange(&done, true)) atomic_store(&step, strtoll(value, NULL, 0));
}

uint64_t timestamp_of(uint64_t ns) {
    return ns + (uint64_t)(atomic_load(&distance) + atomic_load(&step));
}

EXPORTED CUptiResult cuptiGetTimestamp(uint64_t *timestamp) {
    TRY(ready());
    if (!timestamp) return CUPTI_ERROR_INVALID_PARAMETER;
    *timestamp = read_clock(CLOCK_REALTIME) + (uint64_t)atomic_load(&step);
    return CUPTI_SUCCESS;
}
