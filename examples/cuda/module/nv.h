/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The parts of nvidia.ko.
 *
 * nv.c     device files, interrupts, Xid reports            nv-os.c  services of the kernel for the resource manager
 * rm.c     the resource manager: clients, objects, control calls; compiled as NVIDIA's binary part is (see Kbuild)
 */
#ifndef NV_H
#define NV_H

#include <linux/types.h>

#include <nvidia_ioctl.h>

typedef struct nvidia_stack_s nvidia_stack_t;

typedef struct nv_state_t {
    NvU32 gpu_id;
    const char *pci_name;
    NvU64 fb_size, fb_used; /* bytes of device memory */
} nv_state_t;

typedef struct nv_file_private_t {
    nv_state_t *nvptr;
    NvU32 minor;
    void *ctl_nvfp;
    void *pages; /* of mmap */
} nv_file_private_t;

/* ---- nv.c ---- */
void nv_raise_interrupt(nv_state_t *nv);
void nv_report_error(const char *pci_name, NvU32 error_number, const char *message);

/* ---- nv-os.c ---- */
NV_STATUS os_alloc_mem(void **address, NvU64 size);
void os_free_mem(void *address);
NV_STATUS os_memcpy_from_user(void *to, const void *from, NvU32 n);
NV_STATUS os_memcpy_to_user(void *to, const void *from, NvU32 n);
NV_STATUS os_delay(NvU32 milliseconds);
void os_acquire_mutex(void);
void os_release_mutex(void);
NvU32 os_get_current_process(void);
NV_STATUS os_queue_work_item(void *pWorkItem);
NV_STATUS nv_alloc_pages(nv_state_t *nv, NvU32 page_count, NvU64 page_size, NvBool contiguous, NvU32 cache_type, NvBool zeroed,
                         NvBool unencrypted, NvS32 node_id, NvU64 *pte_array, void **priv_data);
NV_STATUS nv_free_pages(nv_state_t *nv, NvU32 page_count, NvBool contiguous, NvU32 cache_type, void *priv_data);

/* ---- rm.c ---- */
NV_STATUS rm_ioctl(nvidia_stack_t *sp, nv_state_t *pNv, nv_file_private_t *nvfp, NvU32 Command, void *pData, NvU32 dataSize);
void rm_free_unused_clients(nvidia_stack_t *sp, nv_state_t *pNv, nv_file_private_t *nvfp);
NvBool rm_isr(nvidia_stack_t *sp, nv_state_t *pNv, NvU32 *NeedBottomHalf);
void rm_isr_bh(nvidia_stack_t *sp, nv_state_t *pNv);
NV_STATUS rm_gpu_ops_dup_memory(nvidia_stack_t *sp, NvHandle hClient, NvHandle hMemory, NvU64 *size);
void krcReportXid_IMPL(nv_state_t *pGpu, void *pKernelRc, NvU32 exceptType, const char *pMsg);

#endif
