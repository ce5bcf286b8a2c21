// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The resource manager: clients own objects, which have handles and parents. See Kbuild for how this file is compiled.
 *
 * A call that the driver understands returns 0 from ioctl(2), with its result in the argument's `status`.
 */
#include <linux/list.h>
#include <linux/string.h>

#include "calls.h"
#include "nv.h"

enum { SLEEP_MS = 2, PARAMS_MAX = 4096, PAGE = 4096 };

struct object {
    struct list_head next;
    nv_file_private_t *owner; /* the file that made the client */
    NvHandle client, parent, handle;
    NvU32 class;
    NvU64 size;
    void *page_table;
};
typedef struct object KernelChannel, VideoMemory;
typedef struct {
    nv_state_t *gpu;
    nv_file_private_t *file;
} CALL_CONTEXT;
typedef struct {
    NvU32 paramsSize;
    void *pAllocParams;
} RS_RES_ALLOC_PARAMS_INTERNAL;
/* Types of arguments that are unused here, and that keep the other arguments in their places. */
typedef struct RM_API RM_API;
typedef struct {
    CALL_CONTEXT context;
} API_SECURITY_INFO;

static LIST_HEAD(objects);
static NvHandle last_client = 0xc1d00000;

static struct object *find(NvHandle client, NvHandle handle) {
    struct object *object;
    list_for_each_entry(object, &objects, next)
        if (object->client == client && object->handle == handle) return object;
    return NULL;
}

noinline static void destruct(nv_state_t *gpu, struct object *object) {
    if (object->class == NV01_MEMORY_LOCAL_USER) gpu->fb_used -= object->size;
    if (object->page_table) nv_free_pages(gpu, 1, 1, 0, object->page_table);
    list_del(&object->next);
    os_free_mem(object);
}

/* An object's children go with it. */
static void destruct_tree(nv_state_t *gpu, struct object *object) {
    struct object *child;
    bool again = true;
    while (again) {
        again = false;
        list_for_each_entry(child, &objects, next) {
            if (child == object || child->client != object->client || child->parent != object->handle) continue;
            destruct_tree(gpu, child);
            again = true;
            break;
        }
    }
    destruct(gpu, object);
}

NV_STATUS kchannelConstruct_IMPL(KernelChannel *pKernelChannel, CALL_CONTEXT *pCallContext,
                                 RS_RES_ALLOC_PARAMS_INTERNAL *pParams);
noinline NV_STATUS kchannelConstruct_IMPL(KernelChannel *pKernelChannel, CALL_CONTEXT *pCallContext,
                                          RS_RES_ALLOC_PARAMS_INTERNAL *pParams) {
    NvU64 address;
    COUNT_FUNCTION();
    nv_raise_interrupt(pCallContext->gpu);
    return nv_alloc_pages(pCallContext->gpu, 1, PAGE, 1, 0, 1, 0, -1, &address, &pKernelChannel->page_table);
}

NV_STATUS vidmemConstruct_IMPL(VideoMemory *pVideoMemory, CALL_CONTEXT *pCallContext, RS_RES_ALLOC_PARAMS_INTERNAL *pParams);
noinline NV_STATUS vidmemConstruct_IMPL(VideoMemory *pVideoMemory, CALL_CONTEXT *pCallContext,
                                        RS_RES_ALLOC_PARAMS_INTERNAL *pParams) {
    nv_state_t *gpu = pCallContext->gpu;
    const NV_MEMORY_ALLOCATION_PARAMS *memory = pParams->pAllocParams;
    NV_STATUS status;
    NvU64 address;
    COUNT_FUNCTION();
    if (pParams->paramsSize != sizeof *memory) return NV_ERR_INVALID_PARAM_STRUCT;
    if (!memory->size) return NV_ERR_INVALID_ARGUMENT;
    if (memory->size > gpu->fb_size - gpu->fb_used) return NV_ERR_NO_MEMORY;
    status = nv_alloc_pages(gpu, 1, PAGE, 1, 0, 1, 0, -1, &address, &pVideoMemory->page_table);
    if (status != NV_OK) return status;
    pVideoMemory->size = memory->size;
    gpu->fb_used += memory->size;
    nv_raise_interrupt(gpu);
    return NV_OK;
}

noinline static NV_STATUS construct(struct object *object, CALL_CONTEXT *context, RS_RES_ALLOC_PARAMS_INTERNAL *params) {
    switch (object->class) {
    case NV01_ROOT_CLIENT:
    case NV01_DEVICE_0:
    case NV20_SUBDEVICE_0:
    case FERMI_VASPACE_A:
    case KEPLER_CHANNEL_GROUP_A:
    case HOPPER_USERMODE_A: return NV_OK;
    case HOPPER_CHANNEL_GPFIFO_A: return kchannelConstruct_IMPL(object, context, params);
    case NV01_MEMORY_LOCAL_USER: return vidmemConstruct_IMPL(object, context, params);
    }
    return NV_ERR_INVALID_CLASS;
}

/* Checks the place of a new object and makes it. `params` are in kernel memory. */
noinline static NV_STATUS add_object(CALL_CONTEXT *context, NvHandle client, NvHandle parent, NvHandle *handle, NvU32 class,
                                     RS_RES_ALLOC_PARAMS_INTERNAL *params) {
    struct object *object;
    NV_STATUS status;
    bool is_client = class == NV01_ROOT_CLIENT;
    if (is_client) client = parent = *handle = ++last_client;
    else if (!find(client, client)) return NV_ERR_INVALID_CLIENT;
    else if (!find(client, parent)) return NV_ERR_INVALID_OBJECT_PARENT;
    else if (find(client, *handle)) return NV_ERR_INSERT_DUPLICATE_NAME;
    status = os_alloc_mem((void **)&object, sizeof *object);
    if (status != NV_OK) return status;
    object->owner = context->file;
    object->client = client;
    object->parent = parent;
    object->handle = *handle;
    object->class = class;
    status = construct(object, context, params);
    if (status == NV_OK) list_add(&object->next, &objects);
    else os_free_mem(object);
    return status;
}

NV_STATUS rmapiAllocWithSecInfo(RM_API *pRmApi, NvHandle hClient, NvHandle hParent, NvHandle *phObject, NvU32 hClass,
                                NvP64 pAllocParams, NvU32 paramsSize, NvU32 flags, NvP64 pRightsRequested,
                                API_SECURITY_INFO *pSecInfo);
noinline NV_STATUS rmapiAllocWithSecInfo(RM_API *pRmApi, NvHandle hClient, NvHandle hParent, NvHandle *phObject, NvU32 hClass,
                                         NvP64 pAllocParams, NvU32 paramsSize, NvU32 flags, NvP64 pRightsRequested,
                                         API_SECURITY_INFO *pSecInfo) {
    RS_RES_ALLOC_PARAMS_INTERNAL params = {.paramsSize = paramsSize};
    NV_STATUS status = NV_OK;
    COUNT_FUNCTION();
    if (paramsSize > PARAMS_MAX) return NV_ERR_INVALID_PARAM_STRUCT;
    if (paramsSize) {
        status = os_alloc_mem(&params.pAllocParams, paramsSize);
        if (status == NV_OK) status = os_memcpy_from_user(params.pAllocParams, (void *)pAllocParams, paramsSize);
    }
    if (status == NV_OK) status = add_object(&pSecInfo->context, hClient, hParent, phObject, hClass, &params);
    if (params.pAllocParams) os_free_mem(params.pAllocParams);
    return status;
}

NV_STATUS rmapiFreeWithSecInfo(RM_API *pRmApi, NvHandle hClient, NvHandle hObject, NvU32 flags, API_SECURITY_INFO *pSecInfo);
noinline NV_STATUS rmapiFreeWithSecInfo(RM_API *pRmApi, NvHandle hClient, NvHandle hObject, NvU32 flags,
                                        API_SECURITY_INFO *pSecInfo) {
    struct object *object = find(hClient, hObject);
    COUNT_FUNCTION();
    if (!find(hClient, hClient)) return NV_ERR_INVALID_CLIENT;
    if (!object) return NV_ERR_OBJECT_NOT_FOUND;
    destruct_tree(pSecInfo->context.gpu, object);
    return NV_OK;
}

static NV_STATUS control(NvU32 cmd, void *params, NvU32 size) {
    switch (cmd) {
    case NV0000_CTRL_CMD_GPU_ATTACH_IDS: return os_delay(SLEEP_MS);
    case NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION:
    case NV0000_CTRL_CMD_GPU_GET_PROBED_IDS:
    case NVA06C_CTRL_CMD_GPFIFO_SCHEDULE: return NV_OK;
    case NV2080_CTRL_CMD_GPU_GET_NAME_STRING:
        if (size < 4 + sizeof NV_MODEL) return NV_ERR_INVALID_PARAM_STRUCT;
        strcpy((char *)params + 4, NV_MODEL);
        return NV_OK;
    }
    return NV_ERR_NOT_SUPPORTED;
}

noinline static NV_STATUS _rmapiRmControl(NvHandle hClient, NvHandle hObject, NvU32 cmd, NvP64 pUserParams, NvU32 paramsSize,
                                          NvU32 flags, RM_API *pRmApi, API_SECURITY_INFO *pSecInfo) {
    void *params = NULL;
    NV_STATUS status = NV_OK;
    COUNT_FUNCTION();
    if (!find(hClient, hClient)) return NV_ERR_INVALID_CLIENT;
    if (!find(hClient, hObject)) return NV_ERR_OBJECT_NOT_FOUND;
    if (paramsSize > PARAMS_MAX) return NV_ERR_INVALID_PARAM_STRUCT;
    if (paramsSize) {
        status = os_alloc_mem(&params, paramsSize);
        if (status == NV_OK) status = os_memcpy_from_user(params, (void *)pUserParams, paramsSize);
    }
    if (status == NV_OK) status = control(cmd, params, paramsSize);
    if (status == NV_OK && paramsSize) status = os_memcpy_to_user((void *)pUserParams, params, paramsSize);
    if (params) os_free_mem(params);
    return status;
}

NV_STATUS rmapiControlWithSecInfo(RM_API *pRmApi, NvHandle hClient, NvHandle hObject, NvU32 cmd, NvP64 pParams,
                                  NvU32 paramsSize, NvU32 flags, API_SECURITY_INFO *pSecInfo);
noinline NV_STATUS rmapiControlWithSecInfo(RM_API *pRmApi, NvHandle hClient, NvHandle hObject, NvU32 cmd, NvP64 pParams,
                                           NvU32 paramsSize, NvU32 flags, API_SECURITY_INFO *pSecInfo) {
    COUNT_FUNCTION();
    return _rmapiRmControl(hClient, hObject, cmd, pParams, paramsSize, flags, pRmApi, pSecInfo);
}

NV_STATUS RmIoctl(nv_state_t *pNv, nv_file_private_t *nvfp, NvU32 cmd, void *pData, NvU32 dataSize);
noinline NV_STATUS RmIoctl(nv_state_t *pNv, nv_file_private_t *nvfp, NvU32 cmd, void *pData, NvU32 dataSize) {
    API_SECURITY_INFO security = {.context = {.gpu = pNv, .file = nvfp}};
    COUNT_FUNCTION();
#define ARGUMENT(type)                                              \
    type *a = pData;                                                \
    if (dataSize != sizeof *a) return NV_ERR_INVALID_COMMAND
    switch (cmd) {
    case NV_ESC_RM_ALLOC: {
        ARGUMENT(NVOS64_PARAMETERS);
        a->status = rmapiAllocWithSecInfo(NULL, a->hRoot, a->hObjectParent, &a->hObjectNew, a->hClass, a->pAllocParms,
                                          a->paramsSize, a->flags, a->pRightsRequested, &security);
        return NV_OK;
    }
    case NV_ESC_RM_FREE: {
        ARGUMENT(NVOS00_PARAMETERS);
        a->status = rmapiFreeWithSecInfo(NULL, a->hRoot, a->hObjectOld, 0, &security);
        return NV_OK;
    }
    case NV_ESC_RM_CONTROL: {
        ARGUMENT(NVOS54_PARAMETERS);
        a->status = rmapiControlWithSecInfo(NULL, a->hClient, a->hObject, a->cmd, a->params, a->paramsSize, a->flags,
                                            &security);
        return NV_OK;
    }
    case NV_ESC_RM_MAP_MEMORY: {
        ARGUMENT(nv_ioctl_nvos33_parameters_with_fd);
        a->params.status = find(a->params.hClient, a->params.hMemory) ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
        return NV_OK;
    }
    case NV_ESC_RM_UNMAP_MEMORY: {
        ARGUMENT(NVOS34_PARAMETERS);
        a->status = find(a->hClient, a->hMemory) ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
        return NV_OK;
    }
    }
#undef ARGUMENT
    return NV_ERR_INVALID_COMMAND;
}

noinline NV_STATUS rm_ioctl(nvidia_stack_t *sp, nv_state_t *pNv, nv_file_private_t *nvfp, NvU32 Command, void *pData,
                            NvU32 dataSize) {
    NV_STATUS status;
    COUNT_FUNCTION();
    os_acquire_mutex();
    status = RmIoctl(pNv, nvfp, Command, pData, dataSize);
    os_release_mutex();
    return status;
}

/* The clients that this file has made are freed with it. */
noinline void rm_free_unused_clients(nvidia_stack_t *sp, nv_state_t *pNv, nv_file_private_t *nvfp) {
    struct object *object, *other;
    COUNT_FUNCTION();
    os_acquire_mutex();
    list_for_each_entry_safe(object, other, &objects, next)
        if (object->owner == nvfp) destruct(pNv, object);
    os_release_mutex();
}

noinline NvBool rm_isr(nvidia_stack_t *sp, nv_state_t *pNv, NvU32 *NeedBottomHalf) {
    COUNT_FUNCTION();
    *NeedBottomHalf = 1;
    return 1;
}

noinline void rm_isr_bh(nvidia_stack_t *sp, nv_state_t *pNv) {
    COUNT_FUNCTION();
}

noinline NV_STATUS rm_gpu_ops_dup_memory(nvidia_stack_t *sp, NvHandle hClient, NvHandle hMemory, NvU64 *size) {
    struct object *memory;
    COUNT_FUNCTION();
    os_acquire_mutex();
    memory = find(hClient, hMemory);
    *size = memory ? memory->size : 0;
    os_release_mutex();
    return memory ? NV_OK : NV_ERR_OBJECT_NOT_FOUND;
}

noinline void krcReportXid_IMPL(nv_state_t *pGpu, void *pKernelRc, NvU32 exceptType, const char *pMsg) {
    COUNT_FUNCTION();
    nv_report_error(pGpu->pci_name, exceptType, pMsg);
}
