/*
 * Calls of the kernel driver, where the stand-in for it is loaded (../module): the device files, ioctls and mappings that the
 * real libcuda uses, at the same places. Elsewhere, nothing happens here; a real kernel driver is left alone.
 *
 * Handles: a client, its device and subdevice for the process, four objects for a context, and one object for an allocation,
 * named by its address.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nvidia_ioctl.h"
#include "sim.h"

enum { DEVICE = 0x5c000001, SUBDEVICE, FIRST_CONTEXT = 0x5c010000, PAGE = 4096 };
enum { VASPACE, CHANNEL_GROUP, CHANNEL, USERMODE, HANDLES };
static const char XID_FILE[] = "/proc/driver/nvidia/xid"; /* the stand-in has it, the real driver has not */

static bool is_open;
static int control, device, uvm, xid, gpu;
static NvHandle client;
static const NvProcessorUuid gpu_uuid = {"simulated-gpu-0"};
static atomic_int managed_allocations;

static int open_file(const char *path, int mode) {
    return open(path, mode | O_CLOEXEC);
}

/* ---- the resource manager ---- */
static NV_STATUS rm_alloc(NvHandle parent, NvHandle handle, NvU32 class, void *params, NvU32 size) {
    NVOS64_PARAMETERS a = {.hRoot = client, .hObjectParent = parent, .hObjectNew = handle, .hClass = class,
                           .pAllocParms = (uintptr_t)params, .paramsSize = size};
    if (ioctl(control, NV_COMMAND(NV_ESC_RM_ALLOC, NVOS64_PARAMETERS), &a)) return NV_ERR_OPERATING_SYSTEM;
    if (class == NV01_ROOT_CLIENT) client = a.hObjectNew;
    return a.status;
}

static void rm_free(NvHandle parent, NvHandle handle) {
    NVOS00_PARAMETERS a = {.hRoot = client, .hObjectParent = parent, .hObjectOld = handle};
    ioctl(control, NV_COMMAND(NV_ESC_RM_FREE, NVOS00_PARAMETERS), &a);
}

static NV_STATUS rm_control(NvHandle object, NvU32 cmd, void *params, NvU32 size) {
    NVOS54_PARAMETERS a = {.hClient = client, .hObject = object, .cmd = cmd, .params = (uintptr_t)params,
                           .paramsSize = size};
    if (ioctl(control, NV_COMMAND(NV_ESC_RM_CONTROL, NVOS54_PARAMETERS), &a)) return NV_ERR_OPERATING_SYSTEM;
    return a.status;
}

static bool open_control(void) {
    nv_ioctl_rm_api_version_t version = {.versionString = NV_DRIVER_VERSION};
    nv_ioctl_sys_params_t system;
    nv_ioctl_card_info_t cards[8];
    char ids[128] = "";
    control = open_file("/dev/nvidiactl", O_RDWR);
    if (control < 0) return false;
    if (ioctl(control, NV_COMMAND(NV_ESC_CHECK_VERSION_STR, nv_ioctl_rm_api_version_t), &version)) return false;
    ioctl(control, NV_COMMAND(NV_ESC_SYS_PARAMS, nv_ioctl_sys_params_t), &system);
    ioctl(control, NV_COMMAND(NV_ESC_CARD_INFO, cards), cards);
    if (rm_alloc(0, 0, NV01_ROOT_CLIENT, NULL, 0) != NV_OK) return false;
    rm_control(client, NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, ids, sizeof ids);
    return rm_control(client, NV0000_CTRL_CMD_GPU_ATTACH_IDS, ids, sizeof ids) == NV_OK;
}

static bool open_device(void) {
    nv_ioctl_register_fd_t fd = {.ctl_fd = control};
    char name[68] = "", capabilities[64] = "";
    device = open_file("/dev/nvidia0", O_RDWR);
    if (device < 0 || ioctl(device, NV_COMMAND(NV_ESC_REGISTER_FD, nv_ioctl_register_fd_t), &fd)) return false;
    if (rm_alloc(client, DEVICE, NV01_DEVICE_0, NULL, 0)) return false;
    if (rm_alloc(DEVICE, SUBDEVICE, NV20_SUBDEVICE_0, NULL, 0)) return false;
    rm_control(SUBDEVICE, NV2080_CTRL_CMD_GPU_GET_NAME_STRING, name, sizeof name);
    rm_control(SUBDEVICE, NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS, capabilities, sizeof capabilities); /* not supported */
    return true;
}

static bool open_uvm(void) {
    UVM_INITIALIZE_PARAMS initialize = {};
    UVM_PAGEABLE_MEM_ACCESS_PARAMS access = {};
    UVM_REGISTER_GPU_PARAMS registered = {.gpu_uuid = gpu_uuid, .rmCtrlFd = -1};
    uvm = open_file("/dev/nvidia-uvm", O_RDWR);
    if (uvm < 0 || ioctl(uvm, UVM_INITIALIZE, &initialize)) return false;
    ioctl(uvm, UVM_PAGEABLE_MEM_ACCESS, &access);
    ioctl(uvm, UVM_REGISTER_GPU, &registered);
    return registered.rmStatus == NV_OK;
}

void kernel_driver_open(void) {
    xid = open_file(XID_FILE, O_WRONLY);
    if (xid < 0) return;
    gpu = open_file("/proc/driver/nvidia-uvm/gpu", O_WRONLY);
    is_open = open_control() && open_device() && open_uvm();
    if (!is_open) fprintf(stderr, "libcuda (simulated): the kernel driver is there, but does not work: %s\n", strerror(errno));
}

bool kernel_driver_is_open(void) {
    return is_open;
}

/* ---- contexts ---- */
static NvHandle handle_of(const struct context *context, unsigned which) {
    return FIRST_CONTEXT + context->head.serial * HANDLES + which;
}

void kernel_driver_new_context(struct context *context) {
    if (!is_open) return;
    NvHandle first = handle_of(context, 0);
    UVM_REGISTER_GPU_VASPACE_PARAMS space = {.gpuUuid = gpu_uuid, .rmCtrlFd = control, .hClient = client,
                                             .hVaSpace = first + VASPACE};
    UVM_REGISTER_CHANNEL_PARAMS channel = {.gpuUuid = gpu_uuid, .rmCtrlFd = control, .hClient = client,
                                           .hChannel = first + CHANNEL};
    nv_ioctl_nvos33_parameters_with_fd map = {.fd = device};
    map.params = (NVOS33_PARAMETERS){.hClient = client, .hDevice = SUBDEVICE, .hMemory = first + USERMODE, .length = PAGE};
    NvU32 schedule = 1;
    rm_alloc(DEVICE, first + VASPACE, FERMI_VASPACE_A, NULL, 0);
    ioctl(uvm, UVM_REGISTER_GPU_VASPACE, &space);
    rm_alloc(DEVICE, first + CHANNEL_GROUP, KEPLER_CHANNEL_GROUP_A, NULL, 0);
    rm_alloc(first + CHANNEL_GROUP, first + CHANNEL, HOPPER_CHANNEL_GPFIFO_A, NULL, 0);
    ioctl(uvm, UVM_REGISTER_CHANNEL, &channel);
    rm_control(first + CHANNEL_GROUP, NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, &schedule, sizeof schedule);
    rm_alloc(SUBDEVICE, first + USERMODE, HOPPER_USERMODE_A, NULL, 0);
    ioctl(control, NV_COMMAND(NV_ESC_RM_MAP_MEMORY, nv_ioctl_nvos33_parameters_with_fd), &map);
    context->doorbell = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
}

void kernel_driver_delete_context(struct context *context) {
    if (!is_open) return;
    NvHandle first = handle_of(context, 0);
    UVM_UNREGISTER_CHANNEL_PARAMS channel = {.gpuUuid = gpu_uuid, .hClient = client, .hChannel = first + CHANNEL};
    NVOS34_PARAMETERS unmap = {.hClient = client, .hDevice = SUBDEVICE, .hMemory = first + USERMODE};
    ioctl(uvm, UVM_UNREGISTER_CHANNEL, &channel);
    rm_free(DEVICE, first + CHANNEL_GROUP); /* and its channel */
    if (context->doorbell != MAP_FAILED) munmap(context->doorbell, PAGE);
    ioctl(control, NV_COMMAND(NV_ESC_RM_UNMAP_MEMORY, NVOS34_PARAMETERS), &unmap);
    rm_free(SUBDEVICE, first + USERMODE);
    rm_free(DEVICE, first + VASPACE);
}

/* ---- memory ---- */
static NvHandle handle_at(const void *start) {
    return 0x80000000u | (NvU32)((uintptr_t)start >> 9);
}

static uint64_t pages(uint64_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static NV_STATUS alloc_device_memory(NvHandle handle, uint64_t bytes) {
    NV_MEMORY_ALLOCATION_PARAMS memory = {.size = bytes};
    return rm_alloc(DEVICE, handle, NV01_MEMORY_LOCAL_USER, &memory, sizeof memory);
}

/* Makes the memory visible at its address. */
static NV_STATUS map_device_memory(void *start, uint64_t bytes) {
    UVM_CREATE_EXTERNAL_RANGE_PARAMS range = {.base = (uintptr_t)start & -(uintptr_t)PAGE, .length = pages(bytes)};
    static const UVM_MAP_EXTERNAL_ALLOCATION_PARAMS EMPTY;
    UVM_MAP_EXTERNAL_ALLOCATION_PARAMS map = EMPTY;
    ioctl(uvm, UVM_CREATE_EXTERNAL_RANGE, &range);
    map.base = range.base;
    map.length = range.length;
    map.perGpuAttributes[0].gpuUuid = gpu_uuid;
    map.gpuAttributesCount = 1;
    map.rmCtrlFd = control;
    map.hClient = client;
    map.hMemory = handle_at(start);
    return ioctl(uvm, UVM_MAP_EXTERNAL_ALLOCATION, &map) ? NV_ERR_OPERATING_SYSTEM : map.rmStatus;
}

/* Managed memory is a mapping of the device file, whose faults the kernel driver gets. */
static CUresult map_managed_memory(void *start, uint64_t bytes) {
    UVM_VALIDATE_VA_RANGE_PARAMS range = {.base = (uintptr_t)start, .length = pages(bytes)};
    ioctl(uvm, UVM_VALIDATE_VA_RANGE, &range);
    void *at = mmap(start, pages(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, uvm, (off_t)(uintptr_t)start);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&managed_allocations, 1);
    return CUDA_SUCCESS;
}

uint64_t kernel_driver_least_bytes(unsigned tag) {
    return is_open && tag == TAG_MANAGED ? PAGE : 1;
}

CUresult kernel_driver_alloc(void *start, uint64_t bytes, unsigned tag) {
    if (!is_open) return CUDA_SUCCESS;
    if (tag == TAG_MANAGED) return map_managed_memory(start, bytes);
    if (alloc_device_memory(handle_at(start), bytes) != NV_OK) return CUDA_ERROR_OUT_OF_MEMORY;
    if (map_device_memory(start, bytes) == NV_OK) return CUDA_SUCCESS;
    rm_free(DEVICE, handle_at(start));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* An allocation without an address. The kernel driver gets the request nevertheless, as from the real libcuda. */
void kernel_driver_alloc_too_much(uint64_t bytes) {
    NvHandle handle = handle_at(NULL);
    if (is_open && alloc_device_memory(handle, bytes) == NV_OK) rm_free(DEVICE, handle);
}

void kernel_driver_free(void *start, uint64_t bytes, unsigned tag) {
    if (!is_open) return;
    UVM_FREE_PARAMS a = {.base = (uintptr_t)start & -(uintptr_t)PAGE, .length = pages(bytes)};
    if (tag == TAG_MANAGED) {
        mmap(start, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        atomic_fetch_sub(&managed_allocations, 1);
    }
    ioctl(uvm, UVM_FREE, &a);
    if (tag != TAG_MANAGED) rm_free(DEVICE, handle_at(start));
}

void kernel_driver_migrate(CUdeviceptr start, uint64_t bytes, bool to_cpu) {
    void *allocation;
    uint64_t size;
    unsigned tag;
    if (!is_open || !arena_find(device_arena(), (void *)(uintptr_t)start, &allocation, &size, &tag) || tag != TAG_MANAGED) return;
    UVM_MIGRATE_PARAMS a = {.base = start & -(CUdeviceptr)PAGE, .length = pages(bytes), .cpuNumaNode = -1};
    if (!to_cpu) a.destinationUuid = gpu_uuid;
    ioctl(uvm, UVM_MIGRATE, &a);
}

/* ---- work of the GPU: no ioctl, see ../module/uvm_faults.c ---- */
static void touch_allocation(const char *word, const void *inside) {
    char text[64];
    void *start;
    uint64_t bytes;
    unsigned tag;
    if (!arena_find(device_arena(), inside, &start, &bytes, &tag) || tag != TAG_MANAGED) return;
    int length = snprintf(text, sizeof text, "%s %lx %lx", word, (unsigned long)(uintptr_t)start, (unsigned long)bytes);
    if (write(gpu, text, (size_t)length) != length) perror("libcuda (simulated): the GPU cannot touch managed memory");
}

static void touch(const char *word, const struct work *work) {
    if (!is_open || !atomic_load(&managed_allocations)) return;
    switch (work->kind) {
    case WORK_NOTHING:
    case WORK_HOST: break;
    case WORK_COPY:
        touch_allocation(word, work->copy.to.start);
        touch_allocation(word, work->copy.from.start);
        break;
    case WORK_FILL: touch_allocation(word, work->fill.to.start); break;
    case WORK_KERNEL:
        for (unsigned i = 0; i < MAX_KERNEL_ARGS; i++) touch_allocation(word, (void *)(uintptr_t)work->kernel.args[i]);
    }
}

void kernel_driver_gpu_begins(const struct work *work) {
    touch("touch", work);
}

void kernel_driver_gpu_ends(const struct work *work) {
    touch("done", work);
}

void kernel_driver_gpu_faults(void) {
    static const char REPORT[] = "31 Ch 00000008, MMU Fault: access to an invalid address";
    if (is_open && write(xid, REPORT, sizeof REPORT - 1) < 0) perror("libcuda (simulated): no Xid report");
}
