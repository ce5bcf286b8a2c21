/*
 * The interface of NVIDIA's kernel driver, as far as the simulation uses it: ioctls and their arguments. Numbers, names and
 * layouts are those of driver 580. Shared by the module and the simulated libcuda.
 */
#ifndef NVIDIA_IOCTL_H
#define NVIDIA_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

typedef __u8 NvBool;
typedef __u8 NvU8;
typedef __u32 NvU32;
typedef __s32 NvS32;
typedef __u64 NvU64;
typedef __u64 NvP64 __attribute__((aligned(8)));
typedef __u32 NvHandle;
typedef __u32 NV_STATUS;

#define NV_DRIVER_VERSION "580.159.04"
/* Names of the simulated device, in the driver's log and for programs. */
#define NV_PCI_NAME "0000:1a:00.0"
#define NV_MODEL "Simulated GPU (no hardware)"

enum { NV_MAJOR = 195, NV_MINOR_CONTROL = 255 };

enum {
    NV_OK = 0,
    NV_ERR_ILLEGAL_ACTION = 0x16,
    NV_ERR_INSERT_DUPLICATE_NAME = 0x19,
    NV_ERR_INVALID_ADDRESS = 0x1e,
    NV_ERR_INVALID_ARGUMENT = 0x1f,
    NV_ERR_INVALID_CLASS = 0x22,
    NV_ERR_INVALID_CLIENT = 0x23,
    NV_ERR_INVALID_COMMAND = 0x24,
    NV_ERR_INVALID_OBJECT_PARENT = 0x36,
    NV_ERR_INVALID_PARAM_STRUCT = 0x3a,
    NV_ERR_NO_MEMORY = 0x51,
    NV_ERR_NOT_SUPPORTED = 0x56,
    NV_ERR_OBJECT_NOT_FOUND = 0x57,
    NV_ERR_OPERATING_SYSTEM = 0x59,
};

/* ---- /dev/nvidiactl, /dev/nvidia0: the number is in the low byte of the command, which also has the argument's size ---- */
#define NV_IOCTLS(X)                   \
    X(NV_ESC_RM_FREE, 0x29)            \
    X(NV_ESC_RM_CONTROL, 0x2a)         \
    X(NV_ESC_RM_ALLOC, 0x2b)           \
    X(NV_ESC_RM_MAP_MEMORY, 0x4e)      \
    X(NV_ESC_RM_UNMAP_MEMORY, 0x4f)    \
    X(NV_ESC_CARD_INFO, 200)           \
    X(NV_ESC_REGISTER_FD, 201)         \
    X(NV_ESC_CHECK_VERSION_STR, 210)   \
    X(NV_ESC_IOCTL_XFER_CMD, 211)      \
    X(NV_ESC_SYS_PARAMS, 214)
#define NV_NUMBER(name, number) name = number,
enum { NV_IOCTLS(NV_NUMBER) };
#define NV_COMMAND(number, type) _IOWR('F', number, type)

typedef struct {
    NvHandle hRoot, hObjectParent, hObjectOld;
    NV_STATUS status;
} NVOS00_PARAMETERS; /* RM_FREE */

typedef struct {
    NvHandle hClient, hObject;
    NvU32 cmd, flags;
    NvP64 params;
    NvU32 paramsSize;
    NV_STATUS status;
} NVOS54_PARAMETERS; /* RM_CONTROL */

typedef struct {
    NvHandle hRoot, hObjectParent, hObjectNew;
    NvU32 hClass;
    NvP64 pAllocParms;
    NvP64 pRightsRequested;
    NvU32 paramsSize, flags;
    NV_STATUS status;
} NVOS64_PARAMETERS; /* RM_ALLOC */

typedef struct {
    NvHandle hClient, hDevice, hMemory;
    NvU64 offset __attribute__((aligned(8)));
    NvU64 length;
    NvP64 pLinearAddress;
    NV_STATUS status;
    NvU32 flags;
} NVOS33_PARAMETERS;

typedef struct {
    NVOS33_PARAMETERS params;
    NvS32 fd;
} nv_ioctl_nvos33_parameters_with_fd; /* RM_MAP_MEMORY */

typedef struct {
    NvHandle hClient, hDevice, hMemory;
    NvP64 pLinearAddress;
    NV_STATUS status;
    NvU32 flags;
} NVOS34_PARAMETERS; /* RM_UNMAP_MEMORY */

typedef struct {
    NvU32 domain;
    NvU8 bus, slot, function;
    __u16 vendor_id, device_id;
} nv_pci_info_t;

typedef struct {
    NvBool valid;
    nv_pci_info_t pci_info;
    NvU32 gpu_id;
    __u16 interrupt_line;
    NvU64 reg_address __attribute__((aligned(8)));
    NvU64 reg_size, fb_address, fb_size;
    NvU32 minor_number;
    NvU8 dev_name[10];
} nv_ioctl_card_info_t; /* CARD_INFO */

typedef struct {
    NvS32 ctl_fd;
} nv_ioctl_register_fd_t;

typedef struct {
    NvU32 cmd, reply;
    char versionString[64];
} nv_ioctl_rm_api_version_t; /* CHECK_VERSION_STR */

typedef struct {
    NvU32 cmd, size;
    NvP64 ptr;
} nv_ioctl_xfer_t; /* another command, whose argument is at `ptr` */

typedef struct {
    NvU64 memblock_size __attribute__((aligned(8)));
} nv_ioctl_sys_params_t;

/* Classes of RM_ALLOC. */
enum {
    NV01_MEMORY_SYSTEM = 0x3e,
    NV01_MEMORY_LOCAL_USER = 0x40,
    NV01_ROOT_CLIENT = 0x41,
    NV01_DEVICE_0 = 0x80,
    NV20_SUBDEVICE_0 = 0x2080,
    FERMI_VASPACE_A = 0x90f1,
    KEPLER_CHANNEL_GROUP_A = 0xa06c,
    HOPPER_USERMODE_A = 0xc661,
    HOPPER_CHANNEL_GPFIFO_A = 0xc86f,
};

/* Commands of RM_CONTROL. */
enum {
    NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION = 0x101,
    NV0000_CTRL_CMD_GPU_GET_PROBED_IDS = 0x214,
    NV0000_CTRL_CMD_GPU_ATTACH_IDS = 0x215, /* the one that sleeps: a GPU is initialised */
    NV2080_CTRL_CMD_GPU_GET_NAME_STRING = 0x20800110,
    NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS = 0x20803001, /* not supported by a device without NVLink */
    NVA06C_CTRL_CMD_GPFIFO_SCHEDULE = 0xa06c0101,
};

typedef struct {
    NvU32 owner, type, flags, width, height;
    NvS32 pitch;
    NvU32 attr, attr2, format, comprCovg, zcullCovg;
    NvU64 rangeLo __attribute__((aligned(8)));
    NvU64 rangeHi, size, alignment, offset, limit;
    NvP64 address;
    NvU32 ctagOffset;
    NvHandle hVASpace;
    NvU32 internalflags, tag;
    NvS32 numaNode;
} NV_MEMORY_ALLOCATION_PARAMS; /* of the memory classes */

/* ---- /dev/nvidia-uvm: plain numbers; the status is the last field ---- */
/* X(name, number, function that handles it) */
#define UVM_IOCTLS(X)                                                      \
    X(UVM_INITIALIZE, 0x30000001, uvm_api_initialize)                      \
    X(UVM_CREATE_RANGE_GROUP, 23, uvm_api_create_range_group)              \
    X(UVM_REGISTER_GPU_VASPACE, 25, uvm_api_register_gpu_va_space)         \
    X(UVM_REGISTER_CHANNEL, 27, uvm_api_register_channel)                  \
    X(UVM_UNREGISTER_CHANNEL, 28, uvm_api_unregister_channel)              \
    X(UVM_MAP_EXTERNAL_ALLOCATION, 33, uvm_api_map_external_allocation)    \
    X(UVM_FREE, 34, uvm_api_free)                                          \
    X(UVM_REGISTER_GPU, 37, uvm_api_register_gpu)                          \
    X(UVM_PAGEABLE_MEM_ACCESS, 39, uvm_api_pageable_mem_access)            \
    X(UVM_MIGRATE, 51, uvm_api_migrate)                                    \
    X(UVM_VALIDATE_VA_RANGE, 72, uvm_api_validate_va_range)                \
    X(UVM_CREATE_EXTERNAL_RANGE, 73, uvm_api_create_external_range)
#define UVM_NUMBER(name, number, function) name = number,
enum { UVM_IOCTLS(UVM_NUMBER) };

typedef struct {
    NvU8 uuid[16];
} NvProcessorUuid;

typedef struct {
    NvU64 flags __attribute__((aligned(8)));
    NV_STATUS rmStatus;
} UVM_INITIALIZE_PARAMS;

typedef struct {
    NvU64 rangeGroupId __attribute__((aligned(8)));
    NV_STATUS rmStatus;
} UVM_CREATE_RANGE_GROUP_PARAMS;

typedef struct {
    NvProcessorUuid gpuUuid;
    NvS32 rmCtrlFd;
    NvHandle hClient, hVaSpace;
    NV_STATUS rmStatus;
} UVM_REGISTER_GPU_VASPACE_PARAMS;

typedef struct {
    NvProcessorUuid gpuUuid;
    NvS32 rmCtrlFd;
    NvHandle hClient, hChannel;
    NvU64 base __attribute__((aligned(8)));
    NvU64 length;
    NV_STATUS rmStatus;
} UVM_REGISTER_CHANNEL_PARAMS;

typedef struct {
    NvProcessorUuid gpuUuid;
    NvHandle hClient, hChannel;
    NV_STATUS rmStatus;
} UVM_UNREGISTER_CHANNEL_PARAMS;

typedef struct {
    NvProcessorUuid gpuUuid;
    NvU32 gpuMappingType, gpuCachingType, gpuFormatType, gpuElementBits, gpuCompressionType;
} UvmGpuMappingAttributes;

enum { UVM_MAX_GPUS = 256 };
typedef struct {
    NvU64 base __attribute__((aligned(8)));
    NvU64 length, offset;
    UvmGpuMappingAttributes perGpuAttributes[UVM_MAX_GPUS];
    NvU64 gpuAttributesCount __attribute__((aligned(8)));
    NvS32 rmCtrlFd;
    NvHandle hClient, hMemory;
    NV_STATUS rmStatus;
} UVM_MAP_EXTERNAL_ALLOCATION_PARAMS;

typedef struct {
    NvU64 base __attribute__((aligned(8)));
    NvU64 length;
    NV_STATUS rmStatus;
} UVM_FREE_PARAMS;

typedef struct {
    NvProcessorUuid gpu_uuid;
    NvBool numaEnabled;
    NvS32 numaNodeId, rmCtrlFd;
    NvHandle hClient, hSmcPartRef;
    NV_STATUS rmStatus;
} UVM_REGISTER_GPU_PARAMS;

typedef struct {
    NvBool pageableMemAccess;
    NV_STATUS rmStatus;
} UVM_PAGEABLE_MEM_ACCESS_PARAMS;

typedef struct {
    NvU64 base __attribute__((aligned(8)));
    NvU64 length;
    NvProcessorUuid destinationUuid; /* all zeros: the CPU */
    NvU32 flags;
    NvU64 semaphoreAddress __attribute__((aligned(8)));
    NvU32 semaphorePayload;
    NvS32 cpuNumaNode;
    NvU64 userSpaceStart, userSpaceLength;
    NV_STATUS rmStatus;
} UVM_MIGRATE_PARAMS;

typedef struct {
    NvU64 base __attribute__((aligned(8)));
    NvU64 length;
    NV_STATUS rmStatus;
} UVM_VALIDATE_VA_RANGE_PARAMS;

typedef struct {
    NvU64 base __attribute__((aligned(8)));
    NvU64 length;
    NV_STATUS rmStatus;
} UVM_CREATE_EXTERNAL_RANGE_PARAMS;

#endif
