/*
 * ioctls [ROUNDS]: calls of NVIDIA's kernel driver, or of the stand-in for it (../module): calls that succeed, that fail with
 * an errno, that fail with a status in their argument, and one that sleeps. Each line of a round is one call.
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>

#include "../include/nvidia_ioctl.h"
#include "cases.h"

enum { ROUNDS = 3, MEMORY = 0x1000, SLEEP_US = 2000 };

static int control, uvm;
static NvHandle client;

static void expect(const char *what, long got, long wanted) {
    if (got == wanted) return;
    fprintf(stderr, "ioctls: %s: %#lx, not %#lx\n", what, got, wanted);
    exit(1);
}

static int open_file(const char *path) {
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0) return file;
    perror(path);
    exit(2);
}

static NV_STATUS alloc(NvHandle parent, NvHandle handle, NvU32 class, uint64_t bytes) {
    NV_MEMORY_ALLOCATION_PARAMS memory = {.size = bytes};
    NVOS64_PARAMETERS a = {.hRoot = client, .hObjectParent = parent, .hObjectNew = handle, .hClass = class};
    if (bytes) {
        a.pAllocParms = (uintptr_t)&memory;
        a.paramsSize = sizeof memory;
    }
    expect("RM_ALLOC", ioctl(control, NV_COMMAND(NV_ESC_RM_ALLOC, a), &a), 0);
    if (class == NV01_ROOT_CLIENT) client = a.hObjectNew;
    return a.status;
}

static NV_STATUS release(NvHandle handle) {
    NVOS00_PARAMETERS a = {.hRoot = client, .hObjectParent = client, .hObjectOld = handle};
    expect("RM_FREE", ioctl(control, NV_COMMAND(NV_ESC_RM_FREE, a), &a), 0);
    return a.status;
}

static NV_STATUS command(NvHandle of, NvU32 cmd) {
    NVOS54_PARAMETERS a = {.hClient = of, .hObject = of, .cmd = cmd};
    expect("RM_CONTROL", ioctl(control, NV_COMMAND(NV_ESC_RM_CONTROL, a), &a), 0);
    return a.status;
}

static void nvidia_round(void) {
    nv_ioctl_sys_params_t system;
    nv_ioctl_xfer_t xfer = {.cmd = NV_ESC_SYS_PARAMS, .size = sizeof system, .ptr = (uintptr_t)&system};
    expect("SYS_PARAMS", ioctl(control, NV_COMMAND(NV_ESC_SYS_PARAMS, system), &system), 0);
    expect("XFER_CMD", ioctl(control, NV_COMMAND(NV_ESC_IOCTL_XFER_CMD, xfer), &xfer), 0);
    expect("SYS_PARAMS of a wrong size", ioctl(control, NV_COMMAND(NV_ESC_SYS_PARAMS, char), &system), -1);
    expect("a control call that sleeps", command(client, NV0000_CTRL_CMD_GPU_ATTACH_IDS), NV_OK);
    expect("a control call that is not supported", command(client, NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS), NV_ERR_NOT_SUPPORTED);
    expect("a control call of another client", command(1, NV0000_CTRL_CMD_GPU_ATTACH_IDS), NV_ERR_INVALID_CLIENT);
    expect("memory", alloc(client, MEMORY, NV01_MEMORY_LOCAL_USER, 1 << 20), NV_OK);
    expect("too much memory", alloc(client, MEMORY + 1, NV01_MEMORY_LOCAL_USER, 1ull << 60), NV_ERR_NO_MEMORY);
    expect("an unknown class", alloc(client, MEMORY + 1, 0xffff, 0), NV_ERR_INVALID_CLASS);
    expect("free", release(MEMORY), NV_OK);
    expect("free again", release(MEMORY), NV_ERR_OBJECT_NOT_FOUND);
}

static void uvm_round(void) {
    UVM_CREATE_RANGE_GROUP_PARAMS group = {};
    UVM_VALIDATE_VA_RANGE_PARAMS range = {.base = 1, .length = 1};
    expect("CREATE_RANGE_GROUP", ioctl(uvm, UVM_CREATE_RANGE_GROUP, &group), 0);
    expect("VALIDATE_VA_RANGE", ioctl(uvm, UVM_VALIDATE_VA_RANGE, &range), 0);
    expect("its status", range.rmStatus, NV_ERR_INVALID_ADDRESS);
    expect("an address that is not mapped", ioctl(uvm, UVM_CREATE_RANGE_GROUP, NULL), -1);
}

int main(int argc, char **argv) {
    long rounds = number(argc, argv, 1, ROUNDS);
    UVM_INITIALIZE_PARAMS initialize = {};
    control = open_file("/dev/nvidiactl");
    uvm = open_file("/dev/nvidia-uvm");
    expect("a client", alloc(0, 0, NV01_ROOT_CLIENT, 0), NV_OK);
    expect("UVM_INITIALIZE", ioctl(uvm, UVM_INITIALIZE, &initialize), 0);
    for (long i = 0; i < rounds; i++) {
        nvidia_round();
        uvm_round();
    }
    begin_counts();
    printf("ioctl NV_ESC_SYS_PARAMS %ld\nioctl NV_ESC_IOCTL_XFER_CMD %ld\n", 2 * rounds, rounds);
    printf("ioctl NV_ESC_RM_CONTROL %ld\n", 3 * rounds);
    printf("ioctl NV_ESC_RM_ALLOC %ld\nioctl NV_ESC_RM_FREE %ld\n", 3 * rounds + 1, 2 * rounds);
    printf("ioctl UVM_INITIALIZE 1\nioctl UVM_CREATE_RANGE_GROUP %ld\nioctl UVM_VALIDATE_VA_RANGE %ld\n", 2 * rounds, rounds);
    printf("failed NV_ESC_SYS_PARAMS %ld\nfailed UVM_CREATE_RANGE_GROUP %ld\n", rounds, rounds);
    printf("status NV_ESC_RM_CONTROL %ld\nstatus NV_ESC_RM_ALLOC %ld\n", 2 * rounds, 2 * rounds);
    printf("status NV_ESC_RM_FREE %ld\nstatus UVM_VALIDATE_VA_RANGE %ld\n", rounds, rounds);
    printf("least_us NV_ESC_RM_CONTROL %ld\n", rounds * SLEEP_US);
    end_counts();
    return 0;
}
