/*
 * Modules and libraries: which kernels an image holds, and handles for them.
 *
 * An image is PTX text, plain or in the wrapper of nvcc's fat binaries. Its kernels are the names after
 * `.entry`; kernels.c implements some of them. Cubins and packed fat binaries are refused: nothing here runs SASS.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum { FATBIN_WRAPPER = 0x466243b1 };
struct fatbin_wrapper {
    int magic, version;
    const void *data;
    void *unused;
};

struct module {
    struct object head;
    unsigned count;
    struct function **functions;
};
struct library {
    struct object head;
    struct module *module;
    struct function **kernels;
};

/* ---- reading an image ---- */

static CUresult ptx_of(const void *image, const char **out) {
    const struct fatbin_wrapper *wrapper = image;
    if (!image) return CUDA_ERROR_INVALID_VALUE;
    const char *text = wrapper->magic == FATBIN_WRAPPER ? wrapper->data : image;
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    if (*text != '.' && *text != '/' && !isspace((unsigned char)*text)) return CUDA_ERROR_INVALID_IMAGE;
    if (!strstr(text, ".version")) return CUDA_ERROR_INVALID_PTX;
    *out = text;
    return CUDA_SUCCESS;
}

/* The next name after `.entry`, or NULL; moves `at` after it. */
static const char *next_entry(const char **at) {
    const char *name = strstr(*at, ".entry");
    if (!name) return NULL;
    name += strlen(".entry");
    while (isspace((unsigned char)*name)) name++;
    size_t length = strcspn(name, " \t\r\n(");
    *at = name + length;
    return intern(name, length);
}

static unsigned count_entries(const char *ptx) {
    unsigned count = 0;
    while (next_entry(&ptx)) count++;
    return count;
}

static void drop(struct function **list, unsigned count) {
    for (unsigned i = 0; list && i < count; i++)
        if (list[i]) object_delete(list[i]);
    free(list);
}

/* One handle of `kind` for each kernel of the image, in its order. */
static struct function **handles(const char *ptx, unsigned count, enum kind kind) {
    struct function **list = calloc(count + 1, sizeof *list);
    for (unsigned i = 0; list && i < count; i++) {
        struct function *f = list[i] = object_new(kind);
        if (!f) {
            drop(list, i);
            return NULL;
        }
        f->name = next_entry(&ptx);
        f->head.name = getenv("CUDASIM_NAMES_ELSEWHERE") ? "no_name_of_a_kernel" : f->name;
        f->body = builtin_find(f->name);
        f->function = f;
        f->max_dynamic_shared = 49152;
    }
    return list;
}

static CUresult module_new(const char *ptx, struct module **out) {
    struct module *m = object_new(MODULE);
    if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
    m->count = count_entries(ptx);
    m->functions = handles(ptx, m->count, FUNCTION);
    if (!m->functions) {
        object_delete(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < m->count; i++) m->functions[i]->module = m;
    spend_ns(NS_LOAD);
    *out = m;
    return CUDA_SUCCESS;
}

static void module_delete(struct module *m) {
    drop(m->functions, m->count);
    object_delete(m);
}

static struct function *find(struct function **list, unsigned count, const char *name) {
    for (unsigned i = 0; i < count; i++)
        if (!strcmp(list[i]->name, name)) return list[i];
    return NULL;
}

/* A whole file as text; NULL if it cannot be read. */
static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *into = open_memstream(&text, &size);
    for (int c; into && (c = getc(file)) != EOF;) putc(c, into);
    if (into) fclose(into);
    fclose(file);
    return text;
}

/* ---- modules ---- */

CUresult SIM(cuModuleLoadData)(CUmodule *out, const void *image) {
    struct context *context;
    struct module *m;
    const char *ptx;
    TRY(need_context(&context));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(ptx_of(image, &ptx));
    TRY(module_new(ptx, &m));
    *out = (CUmodule)m;
    return CUDA_SUCCESS;
}

CUresult SIM(cuModuleLoadDataEx)(CUmodule *out, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return SIM(cuModuleLoadData)(out, image);
}

CUresult SIM(cuModuleLoadFatBinary)(CUmodule *out, const void *image) {
    return SIM(cuModuleLoadData)(out, image);
}

CUresult SIM(cuModuleLoad)(CUmodule *out, const char *path) {
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    char *text = read_file(path);
    if (!text) return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = SIM(cuModuleLoadData)(out, text);
    free(text);
    return result;
}

static CUresult module_of(CUmodule handle, struct module **out) {
    struct context *context;
    TRY(need_context(&context));
    *out = (struct module *)handle;
    return object_is(handle, MODULE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult SIM(cuModuleUnload)(CUmodule handle) {
    struct module *m;
    TRY(module_of(handle, &m));
    module_delete(m);
    return CUDA_SUCCESS;
}

CUresult SIM(cuModuleGetFunction)(CUfunction *out, CUmodule handle, const char *name) {
    struct module *m;
    TRY(module_of(handle, &m));
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    struct function *f = find(m->functions, m->count, name);
    if (!f) return CUDA_ERROR_NOT_FOUND;
    *out = (CUfunction)f;
    return CUDA_SUCCESS;
}

CUresult SIM(cuModuleGetFunctionCount)(unsigned *out, CUmodule handle) {
    struct module *m;
    TRY(module_of(handle, &m));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = m->count;
    return CUDA_SUCCESS;
}

CUresult SIM(cuModuleEnumerateFunctions)(CUfunction *out, unsigned room, CUmodule handle) {
    struct module *m;
    TRY(module_of(handle, &m));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < room && i < m->count; i++) out[i] = (CUfunction)m->functions[i];
    return CUDA_SUCCESS;
}

CUresult SIM(cuModuleGetLoadingMode)(int *out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = 1; /* eager */
    return CUDA_SUCCESS;
}

/* No image here has variables. */
CUresult SIM(cuModuleGetGlobal_v2)(CUdeviceptr *out, size_t *bytes, CUmodule handle, const char *name) {
    struct module *m;
    (void)out, (void)bytes;
    TRY(module_of(handle, &m));
    return name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
}

/* ---- libraries: the same without a context ---- */

static CUresult library_new(const char *ptx, struct library **out) {
    struct library *l = object_new(LIBRARY);
    if (!l) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = module_new(ptx, &l->module);
    if (!result && !(l->kernels = handles(ptx, l->module->count, KERNEL))) {
        module_delete(l->module);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result) {
        object_delete(l);
        return result;
    }
    for (unsigned i = 0; i < l->module->count; i++) {
        l->kernels[i]->library = l;
        l->kernels[i]->module = l->module;
        l->kernels[i]->function = l->module->functions[i];
    }
    *out = l;
    return CUDA_SUCCESS;
}

CUresult SIM(cuLibraryLoadData)(CUlibrary *out, const void *image, int *jit, void **jit_values, unsigned jit_count,
                                int *options, void **values, unsigned count) {
    struct library *l;
    const char *ptx;
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    TRY(need_init());
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(ptx_of(image, &ptx));
    TRY(library_new(ptx, &l));
    *out = (CUlibrary)l;
    return CUDA_SUCCESS;
}

CUresult SIM(cuLibraryLoadFromFile)(CUlibrary *out, const char *path, int *jit, void **jit_values, unsigned jit_count,
                                    int *options, void **values, unsigned count) {
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    char *text = read_file(path);
    if (!text) return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = SIM(cuLibraryLoadData)(out, text, jit, jit_values, jit_count, options, values, count);
    free(text);
    return result;
}

static CUresult library_of(CUlibrary handle, struct library **out) {
    TRY(need_init());
    *out = (struct library *)handle;
    return object_is(handle, LIBRARY) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult SIM(cuLibraryUnload)(CUlibrary handle) {
    struct library *l;
    TRY(library_of(handle, &l));
    drop(l->kernels, l->module->count);
    module_delete(l->module);
    object_delete(l);
    return CUDA_SUCCESS;
}

CUresult SIM(cuLibraryGetKernel)(CUkernel *out, CUlibrary handle, const char *name) {
    struct library *l;
    TRY(library_of(handle, &l));
    if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
    struct function *kernel = find(l->kernels, l->module->count, name);
    if (!kernel) return CUDA_ERROR_NOT_FOUND;
    *out = (CUkernel)kernel;
    return CUDA_SUCCESS;
}

CUresult SIM(cuLibraryGetKernelCount)(unsigned *out, CUlibrary handle) {
    struct library *l;
    TRY(library_of(handle, &l));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = l->module->count;
    return CUDA_SUCCESS;
}

CUresult SIM(cuLibraryEnumerateKernels)(CUkernel *out, unsigned room, CUlibrary handle) {
    struct library *l;
    TRY(library_of(handle, &l));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < room && i < l->module->count; i++) out[i] = (CUkernel)l->kernels[i];
    return CUDA_SUCCESS;
}

CUresult SIM(cuLibraryGetModule)(CUmodule *out, CUlibrary handle) {
    struct library *l;
    TRY(library_of(handle, &l));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUmodule)l->module;
    return CUDA_SUCCESS;
}

/* ---- functions and kernels ---- */

CUresult function_of(const void *handle, struct function **out) {
    if (!object_is(handle, FUNCTION) && !object_is(handle, KERNEL)) return CUDA_ERROR_INVALID_HANDLE;
    *out = (struct function *)(uintptr_t)handle;
    return CUDA_SUCCESS;
}

CUresult SIM(cuKernelGetFunction)(CUfunction *out, CUkernel handle) {
    struct function *f;
    TRY(need_init());
    TRY(function_of(handle, &f));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUfunction)f->function;
    return CUDA_SUCCESS;
}

CUresult SIM(cuKernelGetLibrary)(CUlibrary *out, CUkernel handle) {
    if (!object_is(handle, KERNEL)) return CUDA_ERROR_INVALID_HANDLE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUlibrary)((struct function *)handle)->library;
    return CUDA_SUCCESS;
}

CUresult SIM(cuFuncGetName)(const char **out, CUfunction handle) {
    struct function *f;
    TRY(function_of(handle, &f));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = f->name;
    return CUDA_SUCCESS;
}

CUresult SIM(cuKernelGetName)(const char **out, CUkernel handle) {
    return SIM(cuFuncGetName)(out, (CUfunction)handle);
}

CUresult SIM(cuFuncGetModule)(CUmodule *out, CUfunction handle) {
    struct function *f;
    TRY(function_of(handle, &f));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUmodule)f->module;
    return CUDA_SUCCESS;
}

/* By CUfunction_attribute: threads in a block, shared, const, local bytes, registers, PTX and binary version, ... */
CUresult SIM(cuFuncGetAttribute)(int *out, int attribute, CUfunction handle) {
    static const int VALUES[] = {1024, 0, 0, 0, KERNEL_REGISTERS, 64, 90, 0};
    struct function *f;
    TRY(function_of(handle, &f));
    if (!out || attribute < 0 || attribute > 15) return CUDA_ERROR_INVALID_VALUE;
    *out = attribute < 8 ? VALUES[attribute] : attribute == 8 ? f->max_dynamic_shared : 0;
    return CUDA_SUCCESS;
}

CUresult SIM(cuFuncSetAttribute)(CUfunction handle, int attribute, int value) {
    struct function *f;
    TRY(function_of(handle, &f));
    if (attribute < 8 || attribute > 15 || value < 0) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == 8) f->function->max_dynamic_shared = f->max_dynamic_shared = value;
    return CUDA_SUCCESS;
}

CUresult SIM(cuKernelGetAttribute)(int *out, int attribute, CUkernel handle, CUdevice device) {
    TRY(need_device(device));
    return SIM(cuFuncGetAttribute)(out, attribute, (CUfunction)handle);
}

CUresult SIM(cuKernelSetAttribute)(int attribute, int value, CUkernel handle, CUdevice device) {
    TRY(need_device(device));
    return SIM(cuFuncSetAttribute)((CUfunction)handle, attribute, value);
}

/* A preference; real devices may ignore it and this one does. */
CUresult SIM(cuFuncSetCacheConfig)(CUfunction handle, int config) {
    struct function *f;
    (void)config;
    return function_of(handle, &f);
}

CUresult SIM(cuFuncIsLoaded)(int *out, CUfunction handle) {
    struct function *f;
    TRY(function_of(handle, &f));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = 1;
    return CUDA_SUCCESS;
}

CUresult SIM(cuFuncLoad)(CUfunction handle) {
    struct function *f;
    return function_of(handle, &f);
}

CUresult SIM(cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *out, CUfunction handle, int block, size_t shared) {
    struct function *f;
    (void)shared;
    TRY(function_of(handle, &f));
    if (!out || block <= 0) return CUDA_ERROR_INVALID_VALUE;
    *out = block > 1024 ? 0 : 2048 / block < 32 ? 2048 / block : 32;
    return CUDA_SUCCESS;
}

CUresult SIM(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int *out, CUfunction handle, int block, size_t shared,
                                                                   unsigned flags) {
    (void)flags;
    return SIM(cuOccupancyMaxActiveBlocksPerMultiprocessor)(out, handle, block, shared);
}
