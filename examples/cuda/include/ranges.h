/*
 * What a program that uses NVTX 3 has of it: at its first call it loads the file of NVTX_INJECTION64_PATH, gives that a table of pointers
 * to functions, and calls those that were set. This one has the functions that the workload calls. With REAL_NVTX it is NVIDIA's header,
 * which must be in the include path.
 */
#ifndef RANGES_H
#define RANGES_H

#include <stdint.h>

#ifdef REAL_NVTX
#include <nvtx3/nvToolsExt.h>
#define range_push nvtxRangePushA
#define range_pop nvtxRangePop
#define range_start nvtxRangeStartA
#define range_end nvtxRangeEnd
#define range_mark nvtxMarkA
#define domain_create nvtxDomainCreateA
#define domain_name_category nvtxDomainNameCategoryA
#define domain_push nvtxDomainRangePushEx
#define domain_pop nvtxDomainRangePop
typedef nvtxDomainHandle_t range_domain;
typedef nvtxEventAttributes_t range_attributes;
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

typedef const void *range_domain;

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType, reserved0;
    union {
        uint64_t ullValue;
        double dValue;
    } payload;
    int32_t messageType;
    union {
        const char *ascii;
        const void *registered;
    } message;
} range_attributes;

enum { NVTX_VERSION = 3, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 = 1, NVTX_MESSAGE_TYPE_ASCII = 1 };
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE sizeof(range_attributes)

enum { RANGES_CALLBACKS = 1, RANGES_MODULES = 6, RANGES_FUNCTIONS = 16 };

/* The functions of a module that were set, by their numbers in NVTX. */
static void *ranges_functions[RANGES_MODULES][RANGES_FUNCTIONS];

static int ranges_table(uint32_t module, void ***table, unsigned *size) {
    enum { CORE = 1, CORE2 = 5 };
    static void *places[RANGES_MODULES][RANGES_FUNCTIONS];
    if (module != CORE && module != CORE2) return 0;
    for (int i = 0; i < RANGES_FUNCTIONS; i++) places[module][i] = &ranges_functions[module][i];
    *table = places[module];
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

static void *ranges_function(int module, int number) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ranges_load);
    return ranges_functions[module][number];
}

/* Defines a function of NVTX that calls what was set, or returns a value. */
#define RANGES_CALL(result, name, module, number, otherwise, parameters, arguments) \
    static result name parameters {                                                 \
        result(*call) parameters;                                                   \
        *(void **)&call = ranges_function(module, number);                          \
        return call ? call arguments : otherwise;                                   \
    }

RANGES_CALL(int, range_push, 1, 9, -2, (const char *name), (name))
RANGES_CALL(int, range_pop, 1, 11, -2, (void), ())
RANGES_CALL(uint64_t, range_start, 1, 5, 0, (const char *name), (name))
RANGES_CALL(void, range_end, 1, 7, (void)0, (uint64_t id), (id))
RANGES_CALL(void, range_mark, 1, 2, (void)0, (const char *name), (name))
RANGES_CALL(int, domain_push, 5, 4, -2, (range_domain domain, const range_attributes *range), (domain, range))
RANGES_CALL(int, domain_pop, 5, 5, -2, (range_domain domain), (domain))
RANGES_CALL(void, domain_name_category, 5, 8, (void)0, (range_domain domain, uint32_t number, const char *name), (domain, number, name))
RANGES_CALL(range_domain, domain_create, 5, 12, NULL, (const char *name), (name))
#endif
#endif
