/*
 * The one device and what it says of itself: the properties of a small GPU of compute capability 9.0.
 */
#include <stdio.h>
#include <string.h>

#include "sim.h"

static const char NAME[] = "Simulated GPU (no hardware)";
static const char BUS_ID[] = "0000:01:00.0";

/* By CUdevice_attribute. What is not listed is 0: absent. */
static const int ATTRIBUTES[] = {
    [1] = 1024, [2] = 1024, [3] = 1024, [4] = 64,            /* threads in a block, block dimensions */
    [5] = 0x7fffffff, [6] = 65535, [7] = 65535,              /* grid dimensions */
    [8] = 49152, [9] = 65536, [10] = 32, [11] = 0x7fffffff,  /* shared, constant, warp, pitch */
    [12] = 65536, [13] = 1500000, [14] = 512, [15] = 1,      /* registers, clock kHz, texture alignment, overlap */
    [16] = 16, [19] = 1, [31] = 1,                           /* processors, can map host memory, concurrent kernels */
    [33] = 1, [36] = 2000000, [37] = 1024, [38] = 8 << 20,   /* PCI bus, memory clock, bus width, L2 */
    [39] = 2048, [40] = 2, [41] = 1,                         /* threads per processor, copy engines, unified addresses */
    [75] = 9, [76] = 0, [78] = 1, [79] = 1, [80] = 1,        /* capability, stream priorities, L1 for globals, locals */
    [81] = 233472, [82] = 65536, [83] = 1,                   /* per processor: shared, registers; managed memory */
    [89] = 1, [90] = 1, [95] = 1, [97] = 232448,             /* concurrent managed, preemption, cooperative, opt-in */
    [102] = 0, [106] = 32, [115] = 1,                        /* virtual memory management: none; blocks; memory pools */
};
enum { KNOWN_ATTRIBUTES = 150 };

CUresult SIM(cuDriverGetVersion)(int *out) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = SIM_CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceGetCount)(int *out) {
    TRY(need_init());
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = 1;
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceGet)(CUdevice *out, int ordinal) {
    TRY(need_device(ordinal));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = ordinal;
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceGetName)(char *out, int length, CUdevice device) {
    TRY(need_device(device));
    if (!out || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    snprintf(out, (size_t)length, "%s", NAME);
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceGetUuid_v2)(CUuuid *out, CUdevice device) {
    TRY(need_device(device));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    memcpy(out->bytes, "simulated-gpu-00", sizeof out->bytes);
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceTotalMem_v2)(size_t *out, CUdevice device) {
    uint64_t unused, total;
    TRY(need_device(device));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    arena_room(device_arena(), &unused, &total);
    *out = total;
    return CUDA_SUCCESS;
}

/* The 32-bit form says as much as it can. */
CUresult SIM(cuDeviceTotalMem)(unsigned *out, CUdevice device) {
    size_t bytes;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    TRY(SIM(cuDeviceTotalMem_v2)(&bytes, device));
    *out = bytes > UINT32_MAX ? UINT32_MAX : (unsigned)bytes;
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceGetAttribute)(int *out, int attribute, CUdevice device) {
    TRY(need_device(device));
    if (!out || attribute <= 0 || attribute >= KNOWN_ATTRIBUTES) return CUDA_ERROR_INVALID_VALUE;
    *out = (size_t)attribute < sizeof ATTRIBUTES / sizeof *ATTRIBUTES ? ATTRIBUTES[attribute] : 0;
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceComputeCapability)(int *major, int *minor, CUdevice device) {
    TRY(need_device(device));
    if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
    *major = ATTRIBUTES[75];
    *minor = ATTRIBUTES[76];
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceGetPCIBusId)(char *out, int length, CUdevice device) {
    TRY(need_device(device));
    if (!out || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    snprintf(out, (size_t)length, "%s", BUS_ID);
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceGetByPCIBusId)(CUdevice *out, const char *bus_id) {
    TRY(need_init());
    if (!out || !bus_id) return CUDA_ERROR_INVALID_VALUE;
    if (strcmp(bus_id, BUS_ID)) return CUDA_ERROR_INVALID_DEVICE;
    *out = 0;
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceCanAccessPeer)(int *out, CUdevice device, CUdevice peer) {
    TRY(need_device(device));
    TRY(need_device(peer));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = 0;
    return CUDA_SUCCESS;
}

CUresult SIM(cuProfilerStart)(void) {
    struct context *context;
    return need_context(&context);
}

CUresult SIM(cuProfilerStop)(void) {
    struct context *context;
    return need_context(&context);
}
