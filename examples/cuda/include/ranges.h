/*
 * What a program that uses NVTX 3 has of it: at its first call it loads the file of NVTX_INJECTION64_PATH, gives that a table of pointers
 * to functions, and calls those that were set. This one has the functions for ranges of a thread alone. With REAL_NVTX it is NVIDIA's
 * header, which must be in the include path.
 */
#ifndef RANGES_H
#define RANGES_H

#ifdef REAL_NVTX
#include <nvtx3/nvToolsExt.h>
#define range_push nvtxRangePushA
#define range_pop nvtxRangePop
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { RANGES_CALLBACKS = 1, RANGES_CORE = 1, RANGES_PUSH = 9, RANGES_POP = 11, RANGES_FUNCTIONS = 16 };

static int (*range_push_function)(const char *);
static int (*range_pop_function)(void);
static void *ranges_unused[RANGES_FUNCTIONS];

static int ranges_table(uint32_t module, void ***table, unsigned *size) {
    static void *places[RANGES_FUNCTIONS];
    if (module != RANGES_CORE) return 0;
    for (int i = 0; i < RANGES_FUNCTIONS; i++) places[i] = &ranges_unused[i];
    places[RANGES_PUSH] = &range_push_function;
    places[RANGES_POP] = &range_pop_function;
    *table = places;
    *size = RANGES_FUNCTIONS;
    return 1;
}

static const void *ranges_export(uint32_t id) {
    static const struct {
        size_t size;
        int (*functions)(uint32_t, void ***, unsigned *);
    } callbacks = {sizeof callbacks, ranges_table};
    return id == RANGES_CALLBACKS ? &callbacks : NULL;
}

static void ranges_load(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*initialize)(const void *(*)(uint32_t)) = NULL;
    if (library) *(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
    if (initialize) initialize(ranges_export);
}

static void ranges_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ranges_load);
}

static int range_push(const char *name) {
    ranges_begin();
    int (*push)(const char *) = range_push_function;
    return push ? push(name) : -2;
}

static int range_pop(void) {
    ranges_begin();
    int (*pop)(void) = range_pop_function;
    return pop ? pop() : -2;
}
#endif
#endif
