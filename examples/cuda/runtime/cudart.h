/*
 * What the parts of the simulated runtime know of each other.
 *
 * The runtime does nothing itself: each function calls the driver, which it opens by name and asks for its functions
 * through cuGetProcAddress_v2, as NVIDIA's does. So a tracer that only wraps the program's imports misses these calls.
 *
 * CUDART_MAJOR (12 or 13) is given by the build. Exported functions may be asked for twice: as they are, and with
 * `_ptsz`/`_ptds`, where stream 0 means the thread's own stream; FLAVOURS writes both.
 */
#ifndef CUDART_H
#define CUDART_H

#include <stdbool.h>

#include "../include/cuda_types.h"
#include "../include/runtime_types.h"

#define API __attribute__((visibility("default")))

/* Name, CUDA version asked for, parameters: what this runtime needs of the driver. */
#if CUDART_MAJOR >= 13
#define BY_MAJOR(F)                                        \
    F(cuCtxGetDevice, 13000, (CUdevice *, CUcontext))      \
    F(cuCtxSynchronize, 13000, (CUcontext))
#else
#define BY_MAJOR(F)                                        \
    F(cuCtxGetDevice, 2000, (CUdevice *))                  \
    F(cuCtxSynchronize, 2000, (void))
#endif
#define DRIVER_FUNCTIONS(F)                                                                                        \
    BY_MAJOR(F)                                                                                                    \
    F(cuInit, 2000, (unsigned))                                                                                    \
    F(cuDriverGetVersion, 2020, (int *))                                                                           \
    F(cuDeviceGetCount, 2000, (int *))                                                                             \
    F(cuDeviceGet, 2000, (CUdevice *, int))                                                                        \
    F(cuDeviceGetName, 2000, (char *, int, CUdevice))                                                              \
    F(cuDeviceGetUuid, 11040, (CUuuid *, CUdevice))                                                                \
    F(cuDeviceTotalMem, 3020, (size_t *, CUdevice))                                                                \
    F(cuDeviceGetAttribute, 2000, (int *, int, CUdevice))                                                          \
    F(cuDeviceGetPCIBusId, 4010, (char *, int, CUdevice))                                                          \
    F(cuDeviceCanAccessPeer, 4000, (int *, CUdevice, CUdevice))                                                    \
    F(cuDeviceGetDefaultMemPool, 11020, (CUmemoryPool *, CUdevice))                                                \
    F(cuDevicePrimaryCtxRetain, 7000, (CUcontext *, CUdevice))                                                     \
    F(cuDevicePrimaryCtxReset, 11000, (CUdevice))                                                                  \
    F(cuCtxSetCurrent, 4000, (CUcontext))                                                                          \
    F(cuCtxGetFlags, 7000, (unsigned *))                                                                           \
    F(cuCtxGetLimit, 3010, (size_t *, unsigned))                                                                   \
    F(cuCtxSetLimit, 3010, (unsigned, size_t))                                                                     \
    F(cuCtxGetStreamPriorityRange, 5050, (int *, int *))                                                           \
    F(cuMemAlloc, 3020, (CUdeviceptr *, size_t))                                                                   \
    F(cuMemFree, 3020, (CUdeviceptr))                                                                              \
    F(cuMemAllocPitch, 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                                  \
    F(cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned))                                                  \
    F(cuMemHostAlloc, 2020, (void **, size_t, unsigned))                                                           \
    F(cuMemFreeHost, 2000, (void *))                                                                               \
    F(cuMemHostRegister, 6050, (void *, size_t, unsigned))                                                         \
    F(cuMemHostUnregister, 4000, (void *))                                                                         \
    F(cuMemHostGetDevicePointer, 3020, (CUdeviceptr *, void *, unsigned))                                          \
    F(cuMemHostGetFlags, 3000, (unsigned *, void *))                                                               \
    F(cuMemGetInfo, 3020, (size_t *, size_t *))                                                                    \
    F(cuPointerGetAttribute, 4000, (void *, int, CUdeviceptr))                                                     \
    F(cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, CUstream))                                                   \
    F(cuMemAllocFromPoolAsync, 11020, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))                             \
    F(cuMemFreeAsync, 11020, (CUdeviceptr, CUstream))                                                              \
    F(cuMemcpy, 7000, (CUdeviceptr, CUdeviceptr, size_t))                                                          \
    F(cuMemcpyAsync, 7000, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                           \
    F(cuMemcpyHtoD, 7000, (CUdeviceptr, const void *, size_t))                                                     \
    F(cuMemcpyDtoH, 7000, (void *, CUdeviceptr, size_t))                                                           \
    F(cuMemcpyDtoD, 7000, (CUdeviceptr, CUdeviceptr, size_t))                                                      \
    F(cuMemcpyHtoDAsync, 7000, (CUdeviceptr, const void *, size_t, CUstream))                                      \
    F(cuMemcpyDtoHAsync, 7000, (void *, CUdeviceptr, size_t, CUstream))                                            \
    F(cuMemcpyDtoDAsync, 7000, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                       \
    F(cuMemcpy2DUnaligned, 7000, (const CUDA_MEMCPY2D *))                                                          \
    F(cuMemcpy2DAsync, 7000, (const CUDA_MEMCPY2D *, CUstream))                                                    \
    F(cuMemsetD8, 7000, (CUdeviceptr, unsigned char, size_t))                                                      \
    F(cuMemsetD8Async, 7000, (CUdeviceptr, unsigned char, size_t, CUstream))                                       \
    F(cuMemsetD2D8, 7000, (CUdeviceptr, size_t, unsigned char, size_t, size_t))                                    \
    F(cuMemsetD2D8Async, 7000, (CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream))                     \
    F(cuStreamCreate, 2000, (CUstream *, unsigned))                                                                \
    F(cuStreamCreateWithPriority, 5050, (CUstream *, unsigned, int))                                               \
    F(cuStreamDestroy, 4000, (CUstream))                                                                           \
    F(cuStreamSynchronize, 7000, (CUstream))                                                                       \
    F(cuStreamQuery, 7000, (CUstream))                                                                             \
    F(cuStreamWaitEvent, 7000, (CUstream, CUevent, unsigned))                                                      \
    F(cuStreamGetFlags, 7000, (CUstream, unsigned *))                                                              \
    F(cuStreamGetPriority, 7000, (CUstream, int *))                                                                \
    F(cuStreamBeginCapture, 10010, (CUstream, int))                                                                \
    F(cuStreamEndCapture, 10000, (CUstream, CUgraph *))                                                            \
    F(cuStreamIsCapturing, 10000, (CUstream, int *))                                                               \
    F(cuLaunchHostFunc, 10000, (CUstream, CUhostFn, void *))                                                       \
    F(cuEventCreate, 2000, (CUevent *, unsigned))                                                                  \
    F(cuEventDestroy, 4000, (CUevent))                                                                             \
    F(cuEventRecord, 7000, (CUevent, CUstream))                                                                    \
    F(cuEventRecordWithFlags, 11010, (CUevent, CUstream, unsigned))                                                \
    F(cuEventQuery, 2000, (CUevent))                                                                               \
    F(cuEventSynchronize, 2000, (CUevent))                                                                         \
    F(cuEventElapsedTime, 2000, (float *, CUevent, CUevent))                                                       \
    F(cuLibraryLoadData, 12000, (CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned))   \
    F(cuLibraryUnload, 12000, (CUlibrary))                                                                         \
    F(cuLibraryGetKernel, 12000, (CUkernel *, CUlibrary, const char *))                                            \
    F(cuKernelGetFunction, 12000, (CUfunction *, CUkernel))                                                        \
    F(cuFuncSetAttribute, 9000, (CUfunction, int, int))                                                            \
    F(cuFuncSetCacheConfig, 3000, (CUfunction, int))                                                               \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, (int *, CUfunction, int, size_t))                         \
    F(cuLaunchKernel, 7000, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                             CUstream, void **, void **))                                                          \
    F(cuLaunchCooperativeKernel, 9000, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,    \
                                        unsigned, CUstream, void **))                                              \
    F(cuLaunchKernelEx, 11060, (const CUlaunchConfig *, CUfunction, void **, void **))                             \
    F(cuGraphCreate, 10000, (CUgraph *, unsigned))                                                                 \
    F(cuGraphDestroy, 10000, (CUgraph))                                                                            \
    F(cuGraphInstantiateWithFlags, 11040, (CUgraphExec *, CUgraph, unsigned long long))                            \
    F(cuGraphLaunch, 10000, (CUgraphExec, CUstream))                                                               \
    F(cuGraphExecDestroy, 10000, (CUgraphExec))                                                                    \
    F(cuProfilerStart, 4000, (void))                                                                               \
    F(cuProfilerStop, 4000, (void))

struct driver {
#define FIELD(name, version, parameters) CUresult(*name) parameters;
    DRIVER_FUNCTIONS(FIELD)
#undef FIELD
};

/* ---- driver.c ---- */
cudaError_t open_driver(void);                                  /* without a context */
cudaError_t enter(bool per_thread, const struct driver **out);  /* with the primary context current on this thread */

cudaError_t choose_device(int device);                          /* for this thread */
int chosen_device(void);

/* ---- error.c ---- */
cudaError_t finish(int code); /* a driver or runtime code: remembered for cudaGetLastError, and returned */

/* ---- register.c ---- */
cudaError_t kernel_of(const struct driver *d, const void *symbol, CUfunction *function, CUkernel *kernel);

#define ENTER_AS(per_thread)                          \
    const struct driver *d;                           \
    cudaError_t entered_ = enter(per_thread, &d);     \
    if (entered_) return finish((int)entered_)
#define ENTER ENTER_AS(false)

/* Exports `name` and `name##suffix`, both done by body(d, ...). */
#define FLAVOURS(name, suffix, parameters, body, ...)    \
    API cudaError_t name parameters {                    \
        ENTER_AS(false);                                 \
        return finish((int)body(d, __VA_ARGS__));        \
    }                                                    \
    API cudaError_t name##suffix parameters {            \
        ENTER_AS(true);                                  \
        return finish((int)body(d, __VA_ARGS__));        \
    }

#define ADDRESS(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

#endif
