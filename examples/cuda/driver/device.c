/*
 * The devices and what they say of themselves: the properties of small GPUs of compute capability 9.0, that differ in their
 * addresses and UUIDs.
 */
#include <stdio.h>
#include <string.h>

#include "sim.h"

static const char NAME[] = "Simulated GPU (no hardware)";
enum { PCI_BUS = 33, FIRST_BUS = 0x1a, BUS_ID_BYTES = sizeof "0000:1a:00.0" };

static void bus_id(char out[BUS_ID_BYTES], CUdevice device) {
    snprintf(out, BUS_ID_BYTES, "0000:%02x:00.0", (FIRST_BUS + (unsigned)device) & 0xff);
}

/* By CUdevice_attribute. What is not listed is 0: absent. */
static const int ATTRIBUTES[] = {
    [1] = 1024, [2] = 1024, [3] = 1024, [4] = 64,            /* threads in a block, block dimensions */
    [5] = 0x7fffffff, [6] = 65535, [7] = 65535,              /* grid dimensions */
    [8] = 49152, [9] = 65536, [10] = 32, [11] = 0x7fffffff,  /* shared, constant, warp, pitch */
    [12] = 65536, [13] = 1500000, [14] = 512, [15] = 1,      /* registers, clock kHz, texture alignment, overlap */
    [16] = 16, [19] = 1, [31] = 1,                           /* processors, can map host memory, concurrent kernels */
    [36] = 2000000, [37] = 1024, [38] = 8 << 20,   /* memory clock, bus width, L2 */
    [39] = 2048, [40] = 2, [41] = 1,                         /* threads per processor, copy engines, unified addresses */
    [75] = 9, [76] = 0, [78] = 1, [79] = 1, [80] = 1,        /* capability, stream priorities, L1 for globals, locals */
    [81] = 233472, [82] = 65536, [83] = 1,                   /* per processor: shared, registers; managed memory */
    [89] = 1, [90] = 1, [95] = 1, [97] = 232448,             /* concurrent managed, preemption, cooperative, opt-in */
    [102] = 1, [106] = 32, [115] = 1,                        /* virtual memory management, blocks, memory pools */
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
    *out = device_count();
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
    out->bytes[sizeof out->bytes - 1] = (char)('0' + device);
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

/* The 32-bit form is limited to its range. */
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
    if (attribute == PCI_BUS) *out = FIRST_BUS + device;
    else *out = (size_t)attribute < sizeof ATTRIBUTES / sizeof *ATTRIBUTES ? ATTRIBUTES[attribute] : 0;
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
    char id[BUS_ID_BYTES];
    bus_id(id, device);
    snprintf(out, (size_t)length, "%s", id);
    return CUDA_SUCCESS;
}

CUresult SIM(cuDeviceGetByPCIBusId)(CUdevice *out, const char *wanted) {
    TRY(need_init());
    if (!out || !wanted) return CUDA_ERROR_INVALID_VALUE;
    for (*out = 0; *out < device_count(); ++*out) {
        char id[BUS_ID_BYTES];
        bus_id(id, *out);
        if (!strcmp(wanted, id)) return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
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
