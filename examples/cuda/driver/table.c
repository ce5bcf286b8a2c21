/*
 * Names: of result codes, and of the driver's own functions (cuGetProcAddress).
 *
 * The list of exports is generated beside the entry points. From a plain name, a CUDA version and a stream flavour the
 * symbol is chosen as the real driver chooses it: the newest `_vN` that existed in that version, in its `_ptsz` or `_ptds`
 * form if asked for and there is one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define EXPORT(name) extern char name[];
#include "exports.inc"
#undef EXPORT

static const struct export {
    const char *name;
    void *address;
} EXPORTS[] = {
#define EXPORT(name) {#name, name},
#include "exports.inc" /* sorted as strcmp sorts */
#undef EXPORT
};

/* The CUDA version that introduced a symbol, if later than 11.3, the oldest that is used. */
static const struct {
    const char *name;
    int version;
} SINCE[] = {
    {"cuCtxCreate_v3", 11040},
    {"cuCtxCreate_v4", 12050},
    {"cuCtxGetDevice_v2", 13000},
    {"cuCtxSynchronize_v2", 13000},
    {"cuDeviceGetUuid_v2", 11040},
    {"cuEventElapsedTime_v2", 12080},
    {"cuGetProcAddress_v2", 12000},
    {"cuGraphAddDependencies_v2", 12030},
    {"cuGraphAddKernelNode_v2", 12000},
    {"cuGraphAddNode", 12020},
    {"cuGraphAddNode_v2", 12030},
    {"cuGraphExecKernelNodeSetParams_v2", 12000},
    {"cuGraphExecUpdate_v2", 12000},
    {"cuGraphGetEdges_v2", 12030},
    {"cuGraphKernelNodeGetParams_v2", 12000},
    {"cuGraphKernelNodeSetParams_v2", 12000},
    {"cuGraphNodeGetDependencies_v2", 12030},
    {"cuGraphNodeGetDependentNodes_v2", 12030},
    {"cuGraphRemoveDependencies_v2", 12030},
    {"cuKernelGetFunction", 12000},
    {"cuLaunchKernelEx", 11060},
    {"cuLibraryGetKernel", 12000},
    {"cuLibraryLoadData", 12000},
    {"cuMemAdvise_v2", 12020},
    {"cuMemPrefetchAsync_v2", 12020},
    {"cuMemcpy3DBatchAsync", 12080},
    {"cuMemcpy3DBatchAsync_v2", 13000},
    {"cuMemcpyBatchAsync", 12080},
    {"cuMemcpyBatchAsync_v2", 13000},
    {"cuStreamBatchMemOp_v2", 12000},
    {"cuStreamGetCaptureInfo_v3", 12030},
    {"cuStreamGetCtx_v2", 12050},
    {"cuStreamUpdateCaptureDependencies_v2", 12030},
    {"cuStreamWaitValue32_v2", 12000},
    {"cuStreamWaitValue64_v2", 12000},
    {"cuStreamWriteValue32_v2", 12000},
    {"cuStreamWriteValue64_v2", 12000},
};

enum { VERSION_OF_V2 = 3020, NEWEST_FORM = 4 };
enum { FOUND = 0, NO_SYMBOL = 1, TOO_OLD = 2 };
enum { FLAG_PER_THREAD_STREAM = 2 };

static int by_name(const void *name, const void *export) {
    return strcmp(name, ((const struct export *)export)->name);
}

static void *address_of(const char *name) {
    const struct export *e = bsearch(name, EXPORTS, sizeof EXPORTS / sizeof *EXPORTS, sizeof *EXPORTS, by_name);
    return e ? e->address : NULL;
}

static int since(const char *name, int form) {
    for (size_t i = 0; i < sizeof SINCE / sizeof *SINCE; i++)
        if (!strcmp(SINCE[i].name, name)) return SINCE[i].version;
    return form > 1 ? VERSION_OF_V2 : 0;
}

/* `base` with its version and stream suffix, if exported. */
static void *form_address(const char *base, int form, const char *suffix) {
    char name[128];
    if (form > 1) snprintf(name, sizeof name, "%s_v%d%s", base, form, suffix);
    else snprintf(name, sizeof name, "%s%s", base, suffix);
    return address_of(name);
}

static void *flavour(const char *base, int form, bool per_thread) {
    void *found = NULL;
    if (per_thread) found = form_address(base, form, "_ptsz");
    if (per_thread && !found) found = form_address(base, form, "_ptds");
    return found ? found : form_address(base, form, "");
}

static void *choose(const char *base, int version, bool per_thread, int *status) {
    char name[128];
    *status = NO_SYMBOL;
    for (int form = NEWEST_FORM; form >= 1; form--) {
        void *found = flavour(base, form, per_thread);
        if (!found) continue;
        snprintf(name, sizeof name, form > 1 ? "%s_v%d" : "%s", base, form);
        *status = since(name, form) <= version ? FOUND : TOO_OLD;
        if (*status == FOUND) return found;
    }
    return NULL;
}

static bool has_suffix(const char *name) {
    const char *last = strrchr(name, '_');
    return last && (!strcmp(last, "_ptsz") || !strcmp(last, "_ptds") || (last[1] == 'v' && last[2] >= '2' && last[2] <= '9'));
}

CUresult SIM(cuGetProcAddress_v2)(const char *name, void **out, int version, uint64_t flags, int *status) {
    int unused;
    if (!status) status = &unused;
    if (!name || !out || flags > FLAG_PER_THREAD_STREAM || strlen(name) > 100) return CUDA_ERROR_INVALID_VALUE;
    /* From CUDA 12 on the plain name of graph instantiation means the function with flags. */
    if (!strcmp(name, "cuGraphInstantiate") && version >= 12000) name = "cuGraphInstantiateWithFlags";
    *out = NULL;
    *status = NO_SYMBOL;
    if (!has_suffix(name)) *out = choose(name, version, flags == FLAG_PER_THREAD_STREAM, status);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult SIM(cuGetProcAddress)(const char *name, void **out, int version, uint64_t flags) {
    return SIM(cuGetProcAddress_v2)(name, out, version, flags, NULL);
}

static const struct {
    int code;
    const char *name, *text;
} RESULTS[] = {
#define RESULT(code, name, text) {code, #name, text},
#include "../include/driver_results.def"
#undef RESULT
};

CUresult SIM(cuGetErrorName)(CUresult code, const char **out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    for (size_t i = 0; i < sizeof RESULTS / sizeof *RESULTS; i++)
        if (RESULTS[i].code == (int)code) *out = RESULTS[i].name;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SIM(cuGetErrorString)(CUresult code, const char **out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    for (size_t i = 0; i < sizeof RESULTS / sizeof *RESULTS; i++)
        if (RESULTS[i].code == (int)code) *out = RESULTS[i].text;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
