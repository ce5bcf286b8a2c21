/*
 * Tests of the simulated driver through its exported functions, as a program would find them. Run by check.sh with
 * CUDASIM_MEMORY=64M CUDASIM_FAST=1.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "include/cuda_driver.h"

static int failures;

#define EXPECT(condition)                                                          \
    do {                                                                           \
        if (!(condition)) {                                                        \
            failures++;                                                            \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
        }                                                                          \
    } while (0)
#define OK(call) EXPECT((call) == CUDA_SUCCESS)
#define FAILS(code, call) EXPECT((int)(call) == (int)(code))

static void *library;

/* A function without a prototype in our header. */
#define FUNCTION(result, name, ...) result (*name)(__VA_ARGS__) = (result (*)(__VA_ARGS__))dlsym(library, #name)

static void before_init(void) {
    CUdeviceptr p;
    int n;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&p, 16));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&n));
    OK(cuDriverGetVersion(&n));
    EXPECT(n == 13000);
    OK(cuInit(0));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&p, 16));
}

static void memory_has_a_capacity(void) {
    enum { MIB = 1 << 20, PIECES = 64 };
    CUdeviceptr p[PIECES], extra;
    size_t unused, all;
    OK(cuMemGetInfo_v2(&unused, &all));
    EXPECT(all == (size_t)PIECES * MIB && unused == all);
    for (int i = 0; i < PIECES; i++) OK(cuMemAlloc_v2(&p[i], MIB));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&extra, 1));
    OK(cuMemFree_v2(p[7]));
    OK(cuMemAlloc_v2(&p[7], MIB));
    for (int i = 0; i < PIECES; i++) OK(cuMemFree_v2(p[i]));
    OK(cuMemAlloc_v2(&extra, (size_t)PIECES * MIB)); /* no fragment is left in the way */
    OK(cuMemFree_v2(extra));
    OK(cuMemGetInfo_v2(&unused, &all));
    EXPECT(unused == all);
}

static void bad_pointers_are_refused(void) {
    CUdeviceptr p;
    char host[64];
    OK(cuMemAlloc_v2(&p, 1000));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p + 512));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(p + 990, host, 11));
    OK(cuMemcpyHtoD_v2(p + 990, host, 10));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(host, 0x1234, 8));
    OK(cuMemFree_v2(p));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(p));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2((CUdeviceptr)(uintptr_t)host));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(host));
    OK(cuMemFree_v2(0));
}

static void bad_handles_are_refused(void) {
    CUstream s;
    CUevent e;
    char host[64];
    OK(cuStreamCreate(&s, 0));
    OK(cuStreamDestroy_v2(s));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(s));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2((CUstream)(void *)host));
    OK(cuEventCreate(&e, 0));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2((CUstream)e));
    OK(cuEventDestroy_v2(e));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(e));
}

static const char PTX[] = ".version 6.4\n.target sm_75\n.visible .entry _Z4fillPffi(.param .u64 p)\n{ ret; }\n"
                          ".entry unknown_to_us(.param .u64 p)\n{ ret; }\n";

static const char *name_at_8(const void *handle) {
    return *(const char *const *)((const char *)handle + 8);
}

static void kernels_have_names(void) {
    FUNCTION(CUresult, cuLibraryLoadData, CUlibrary *, const void *, void *, void *, unsigned, void *, void *, unsigned);
    FUNCTION(CUresult, cuLibraryGetKernel, CUkernel *, CUlibrary, const char *);
    FUNCTION(CUresult, cuKernelGetFunction, CUfunction *, CUkernel);
    FUNCTION(CUresult, cuLibraryUnload, CUlibrary);
    CUlibrary l;
    CUkernel k;
    CUfunction f;
    OK(cuLibraryLoadData(&l, PTX, NULL, NULL, 0, NULL, NULL, 0));
    FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel(&k, l, "fill"));
    OK(cuLibraryGetKernel(&k, l, "unknown_to_us"));
    OK(cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuLibraryGetKernel(&k, l, "_Z4fillPffi"));
    OK(cuKernelGetFunction(&f, k));
    EXPECT(!strcmp(name_at_8(k), "_Z4fillPffi") && !strcmp(name_at_8(f), "_Z4fillPffi"));
    EXPECT((void *)f != (void *)k);
    OK(cuLibraryUnload(l));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    FAILS(CUDA_ERROR_INVALID_IMAGE, cuLibraryLoadData(&l, "\177ELF", NULL, NULL, 0, NULL, NULL, 0));
}

/* The same fill through each way of launching, checked by its effect. */
static void launches_run(void) {
    FUNCTION(CUresult, cuLaunchKernelEx, const CUlaunchConfig *, CUfunction, void **, void **);
    FUNCTION(CUresult, cuLaunchCooperativeKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
             unsigned, CUstream, void **);
    struct { CUdeviceptr p; float value; int n; } packed = {0, 3, 10};
    size_t size = sizeof packed;
    float host[10];
    CUmodule m;
    CUfunction f;
    OK(cuModuleLoadData(&m, PTX));
    OK(cuModuleGetFunction(&f, m, "_Z4fillPffi"));
    OK(cuMemAlloc_v2(&packed.p, sizeof host));
    void *params[] = {&packed.p, &packed.value, &packed.n};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    OK(cuMemcpyDtoH_v2(host, packed.p, sizeof host));
    EXPECT(host[0] == 3 && host[9] == 3);
    packed.value = 4;
    OK(cuLaunchCooperativeKernel(f, 1, 1, 1, 8, 1, 1, 0, NULL, params)); /* 8 threads: 2 elements stay */
    OK(cuMemcpyDtoH_v2(host, packed.p, sizeof host));
    EXPECT(host[7] == 4 && host[8] == 3);
    CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
    packed.value = 5;
    OK(cuLaunchKernelEx(&config, f, params, NULL));
    OK(cuMemcpyDtoH_v2(host, packed.p, sizeof host));
    EXPECT(host[9] == 5);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(f, 0, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    OK(cuMemFree_v2(packed.p));
    OK(cuModuleUnload(m));
}

static void capture_and_replay(void) {
    FUNCTION(CUresult, cuStreamBeginCapture_v2, CUstream, int);
    FUNCTION(CUresult, cuStreamEndCapture, CUstream, CUgraph *);
    FUNCTION(CUresult, cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long);
    FUNCTION(CUresult, cuGraphLaunch, CUgraphExec, CUstream);
    FUNCTION(CUresult, cuGraphGetNodes, CUgraph, CUgraphNode *, size_t *);
    FUNCTION(CUresult, cuGraphDestroy, CUgraph);
    FUNCTION(CUresult, cuGraphExecDestroy, CUgraphExec);
    CUstream s;
    CUgraph g;
    CUgraphExec x;
    CUdeviceptr p;
    size_t nodes;
    char host[4] = {1, 2, 3, 4};
    OK(cuStreamCreate(&s, 0));
    OK(cuMemAlloc_v2(&p, 4));
    OK(cuMemcpyHtoD_v2(p, host, 4));
    OK(cuStreamBeginCapture_v2(s, 0));
    OK(cuMemsetD8Async(p, 9, 4, s));
    OK(cuStreamEndCapture(s, &g));
    OK(cuGraphGetNodes(g, NULL, &nodes));
    EXPECT(nodes == 1);
    OK(cuMemcpyDtoH_v2(host, p, 4));
    EXPECT(host[3] == 4); /* captured, not done */
    OK(cuGraphInstantiateWithFlags(&x, g, 0));
    OK(cuGraphLaunch(x, s));
    OK(cuMemcpyDtoH_v2(host, p, 4));
    EXPECT(host[3] == 9);
    OK(cuGraphDestroy(g));
    OK(cuGraphLaunch(x, s)); /* what was instantiated does not need the graph */
    OK(cuGraphExecDestroy(x));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(x));
    OK(cuMemFree_v2(p));
    OK(cuStreamDestroy_v2(s));
}

static void boxes_and_arrays(void) {
    FUNCTION(CUresult, cuMemAllocPitch_v2, CUdeviceptr *, size_t *, size_t, size_t, unsigned);
    FUNCTION(CUresult, cuMemcpy2D_v2, const CUDA_MEMCPY2D *);
    FUNCTION(CUresult, cuArrayCreate_v2, CUarray *, const CUDA_ARRAY_DESCRIPTOR *);
    FUNCTION(CUresult, cuArrayDestroy, CUarray);
    FUNCTION(CUresult, cuMemcpyAtoH_v2, void *, CUarray, size_t, size_t);
    char in[3][4] = {"abc", "def", "ghi"}, out[12] = {0};
    CUdeviceptr p;
    CUarray a;
    size_t pitch;
    OK(cuMemAllocPitch_v2(&p, &pitch, 4, 3, 4));
    EXPECT(pitch == 512);
    CUDA_MEMCPY2D up = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = in, .srcPitch = 4, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = p, .dstPitch = pitch, .WidthInBytes = 4, .Height = 3};
    OK(cuMemcpy2D_v2(&up));
    OK(cuMemcpyDtoH_v2(out, p + 2 * pitch, 4));
    EXPECT(!strcmp(out, "ghi"));
    OK(cuArrayCreate_v2(&a, &(CUDA_ARRAY_DESCRIPTOR){4, 3, 1, 1}));
    CUDA_MEMCPY2D across = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = pitch,
                            .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = a, .WidthInBytes = 4, .Height = 3};
    OK(cuMemcpy2D_v2(&across));
    OK(cuMemcpyAtoH_v2(out, a, 4, 4));
    EXPECT(!strcmp(out, "def"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoH_v2(out, a, 10, 4));
    OK(cuArrayDestroy(a));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(a));
    OK(cuMemFree_v2(p));
}

static void names_are_looked_up(void) {
    static const struct { const char *name; int version, flags; const char *symbol; } CASES[] = {
        {"cuMemAlloc", 12000, 0, "cuMemAlloc_v2"},
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"},
        {"cuLaunchKernel", 12000, 1, "cuLaunchKernel"},
        {"cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"},
        {"cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"},
        {"cuMemAlloc", 12000, 2, "cuMemAlloc_v2"},
        {"cuCtxGetDevice", 12000, 0, "cuCtxGetDevice"},
        {"cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"},
        {"cuCtxCreate", 11030, 0, "cuCtxCreate_v2"},
        {"cuCtxCreate", 12000, 0, "cuCtxCreate_v3"},
        {"cuCtxCreate", 13000, 0, "cuCtxCreate_v4"},
        {"cuGraphAddNode", 12000, 0, NULL},
        {"cuNoSuchThing", 13000, 0, NULL},
    };
    FUNCTION(CUresult, cuGetProcAddress_v2, const char *, void **, int, uint64_t, int *);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        void *found = &found, *wanted = CASES[i].symbol ? dlsym(library, CASES[i].symbol) : NULL;
        int status;
        CUresult result = cuGetProcAddress_v2(CASES[i].name, &found, CASES[i].version, (uint64_t)CASES[i].flags, &status);
        EXPECT(found == wanted && result == (wanted ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND) && (status == 0) == (wanted != NULL));
        if (found != wanted) fprintf(stderr, "  for %s, version %d\n", CASES[i].name, CASES[i].version);
    }
}

static void the_rest_says_so(void) {
    FUNCTION(CUresult, cuTexRefCreate, void **);
    FUNCTION(CUresult, cuGetErrorName, CUresult, const char **);
    FUNCTION(CUresult, cuCtxSynchronize_v2, CUcontext);
    const char *text;
    void *unused;
    FAILS(CUDA_ERROR_NOT_SUPPORTED, cuTexRefCreate(&unused));
    OK(cuGetErrorName(CUDA_ERROR_NOT_SUPPORTED, &text));
    EXPECT(!strcmp(text, "CUDA_ERROR_NOT_SUPPORTED"));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuGetErrorName((CUresult)12345, &text));
    OK(cuCtxSynchronize_v2(NULL));
}

/* An invalid access of a kernel breaks the context, and every later call returns the error. */
static void a_faulting_kernel_sticks(void) {
    CUmodule m;
    CUfunction f;
    CUdeviceptr p = 0x1000;
    float value = 1;
    int n = 4;
    OK(cuModuleLoadData(&m, PTX));
    OK(cuModuleGetFunction(&f, m, "_Z4fillPffi"));
    OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&p, &value, &n}, NULL));
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    FAILS(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&p, 16));
}

int main(void) {
    CUcontext context;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 1;
    before_init();
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    memory_has_a_capacity();
    bad_pointers_are_refused();
    bad_handles_are_refused();
    kernels_have_names();
    launches_run();
    capture_and_replay();
    boxes_and_arrays();
    names_are_looked_up();
    the_rest_says_so();
    a_faulting_kernel_sticks();
    return failures != 0;
}
