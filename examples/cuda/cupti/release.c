/*
 * The release of CUPTI that is simulated. CUPTISIM_RELEASE chooses it by its CUDA version; the default is that of the SONAME.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuptisim.h"

/* Other sizes do not depend on the release. */
enum { PEER_COPY = 96 };

static const struct release RELEASES[] = {
    /*        version kernel copy set graph sync overhead */
    {"11.7",      17, 176,  88,  88, 48, 40, 40, false},
    {"11.8",      18, 200,  88,  88, 48, 40, 40, false},
    {"12.0",      18, 208,  88,  88, 48, 40, 40, false},
    {"12.4",      22, 208,  88,  88, 56, 40, 56, false},
    {"12.6",      24, 208,  88,  88, 56, 40, 56, false},
    {"12.8",      26, 208,  96,  88, 56, 56, 56, false},
    {"12.9",      28, 208,  96,  88, 56, 56, 56, false},
    {"13.0",  130001, 216,  96,  88, 56, 56, 56, true},
    {"13.1",  130101, 224,  96,  88, 56, 56, 56, true},
    {"13.2",  130201, 224,  96,  88, 56, 56, 56, true},
    {"13.3",  130301, 232,  96,  88, 56, 56, 56, true},
    {"13.4",  130401, 248, 112, 104, 56, 56, 56, true},
    {"13.5",  130500, 248, 112, 104, 56, 56, 56, true},
};

static const struct release *chosen;

static const struct release *find(const char *name) {
    for (size_t i = 0; i < sizeof RELEASES / sizeof *RELEASES; i++)
        if (!strcmp(RELEASES[i].name, name)) return &RELEASES[i];
    return NULL;
}

__attribute__((constructor)) static void choose(void) {
    const char *wanted = getenv("CUPTISIM_RELEASE");
    if (wanted && *wanted && !(chosen = find(wanted))) fprintf(stderr, "libcupti: CUPTISIM_RELEASE=%s is not known\n", wanted);
    if (!chosen) chosen = find(CUPTI_MAJOR == 12 ? "12.9" : "13.0");
}

const struct release *release(void) {
    return chosen;
}

size_t record_size(uint32_t kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return chosen->kernel;
    case CUPTI_ACTIVITY_KIND_MEMCPY: return chosen->memcpy;
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return PEER_COPY;
    case CUPTI_ACTIVITY_KIND_MEMSET: return chosen->memset;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return chosen->graph;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return chosen->sync;
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return chosen->overhead;
    default: return 0;
    }
}

/* These two need no driver, so that a tool can report which versions do not fit. */
EXPORTED CUptiResult cuptiGetVersion(uint32_t *version) {
    if (!version) return CUPTI_ERROR_INVALID_PARAMETER;
    *version = chosen->version;
    return CUPTI_SUCCESS;
}

EXPORTED CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    if (!text) return CUPTI_ERROR_INVALID_PARAMETER;
    switch (result) {
#define RESULT(name) case name: *text = #name; return CUPTI_SUCCESS;
    RESULT(CUPTI_SUCCESS)
    RESULT(CUPTI_ERROR_INVALID_PARAMETER)
    RESULT(CUPTI_ERROR_INVALID_OPERATION)
    RESULT(CUPTI_ERROR_MAX_LIMIT_REACHED)
    RESULT(CUPTI_ERROR_NOT_INITIALIZED)
    RESULT(CUPTI_ERROR_INVALID_KIND)
    RESULT(CUPTI_ERROR_NOT_SUPPORTED)
    RESULT(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
#undef RESULT
    }
    return CUPTI_ERROR_INVALID_PARAMETER;
}
