/*
 * The way to the simulated driver, and the end of all collection.
 *
 * The library initialises itself at the first call of any function. CUPTISIM_TOO_NEW=1 makes it newer than the driver: all
 * functions but cuptiGetVersion and cuptiGetResultString return error 15. So do they with a driver that is not the simulated one.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuptisim.h"

static const struct observer_table *driver;

uint64_t env_number(const char *name) {
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 0) : 0;
}

/* The real library must not be called after its own handler of exit(3), which it registers when it is first used. */
static atomic_bool over;

static void end_of_process(void) {
    over = true;
}

static void find_driver(void) {
    atexit(end_of_process);
    CUuuid id;
    const void *table;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library || env_number("CUPTISIM_TOO_NEW")) return;
    CUresult (*get)(const void **, const CUuuid *) = (CUresult (*)(const void **, const CUuuid *))dlsym(library, "cuGetExportTable");
    memcpy(id.bytes, OBSERVER_TABLE_ID, sizeof id.bytes);
    if (get && !get(&table, &id)) driver = table;
    clock_measure();
}

CUptiResult ready(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (over) {
        fputs("libcupti: called after its end\n", stderr);
        abort();
    }
    pthread_once(&once, find_driver);
    return driver ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_INITIALIZED;
}

void observe_driver(bool wanted) {
    static const struct observer OBSERVER = {call_entered, call_left, work_observed, kinds_enabled};
    driver->set(wanted ? &OBSERVER : NULL);
}

/*
 * Ends everything; the library can be used again after it, but graphs that it has observed cannot. The real function must be called at the exit of a call and is
 * undefined elsewhere; this one returns CUPTI_ERROR_INVALID_OPERATION there. Records that were not flushed are lost, with the
 * buffers that they are in.
 */
EXPORTED CUptiResult cuptiFinalize(void) {
    TRY(ready());
    if (!at_exit_site() || in_callback_of_buffers()) return CUPTI_ERROR_INVALID_OPERATION;
    work_slowly();
    observe_driver(false);
    driver->end();
    callbacks_end();
    activity_end();
    buffers_end();
    return CUPTI_SUCCESS;
}
