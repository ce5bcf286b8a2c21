// SPDX-License-Identifier: GPL-2.0 OR MIT
/* The device file of a stand-in for NVIDIA's driver for unified memory, and its ioctls. See uvm.h. */
#include <linux/cdev.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "calls.h"
#include "uvm.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static void vm_flags_set(struct vm_area_struct *vma, unsigned long flags) {
    vma->vm_flags |= flags;
}
#endif

static LIST_HEAD(va_spaces);
static DEFINE_MUTEX(va_spaces_lock);

uvm_va_space_t *uvm_va_space_of_mm(struct mm_struct *mm) {
    uvm_va_space_t *va_space, *found = NULL;
    mutex_lock(&va_spaces_lock);
    list_for_each_entry(va_space, &va_spaces, list_node)
        if (va_space->va_space_mm == mm) found = va_space;
    mutex_unlock(&va_spaces_lock);
    return found;
}

/* ---- ioctls ---- */
noinline static NV_STATUS uvm_api_initialize(UVM_INITIALIZE_PARAMS *params, struct file *filp) {
    uvm_va_space_t *va_space = filp->private_data;
    COUNT_FUNCTION();
    va_space->va_space_mm = current->mm;
    return NV_OK;
}

noinline static NV_STATUS uvm_api_create_range_group(UVM_CREATE_RANGE_GROUP_PARAMS *params, struct file *filp) {
    uvm_va_space_t *va_space = filp->private_data;
    COUNT_FUNCTION();
    params->rangeGroupId = ++va_space->last_range_group;
    return NV_OK;
}

noinline static NV_STATUS uvm_api_register_gpu(UVM_REGISTER_GPU_PARAMS *params, struct file *filp) {
    COUNT_FUNCTION();
    params->numaNodeId = -1;
    return nvUvmInterfaceRegisterGpu(&params->gpu_uuid);
}

noinline static NV_STATUS uvm_api_register_gpu_va_space(UVM_REGISTER_GPU_VASPACE_PARAMS *params, struct file *filp) {
    COUNT_FUNCTION();
    return NV_OK;
}

noinline static NV_STATUS uvm_api_register_channel(UVM_REGISTER_CHANNEL_PARAMS *params, struct file *filp) {
    COUNT_FUNCTION();
    return NV_OK;
}

noinline static NV_STATUS uvm_api_unregister_channel(UVM_UNREGISTER_CHANNEL_PARAMS *params, struct file *filp) {
    COUNT_FUNCTION();
    return NV_OK;
}

noinline static NV_STATUS uvm_api_pageable_mem_access(UVM_PAGEABLE_MEM_ACCESS_PARAMS *params, struct file *filp) {
    COUNT_FUNCTION();
    params->pageableMemAccess = 0;
    return NV_OK;
}

noinline static NV_STATUS uvm_api_create_external_range(UVM_CREATE_EXTERNAL_RANGE_PARAMS *params, struct file *filp) {
    COUNT_FUNCTION();
    return params->length ? NV_OK : NV_ERR_INVALID_ADDRESS;
}

noinline static NV_STATUS uvm_map_external_allocation(uvm_va_space_t *va_space, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS *params) {
    NvU64 size;
    NV_STATUS status;
    COUNT_FUNCTION();
    status = nvUvmInterfaceDupMemory(params->hClient, params->hMemory, &size);
    if (status == NV_OK && params->offset + params->length > PAGE_ALIGN(size)) status = NV_ERR_INVALID_ADDRESS;
    return status;
}

noinline static NV_STATUS uvm_api_map_external_allocation(UVM_MAP_EXTERNAL_ALLOCATION_PARAMS *params, struct file *filp) {
    COUNT_FUNCTION();
    if (!params->gpuAttributesCount || params->gpuAttributesCount > UVM_MAX_GPUS) return NV_ERR_INVALID_ARGUMENT;
    return uvm_map_external_allocation(filp->private_data, params);
}

noinline static NV_STATUS uvm_free(uvm_va_space_t *va_space, NvU64 base, NvU64 length) {
    COUNT_FUNCTION();
    if (!length || base + length < base || base + length > TASK_SIZE_MAX) return NV_ERR_INVALID_ADDRESS;
    uvm_forget_range(va_space, base, length);
    return NV_OK;
}

noinline static NV_STATUS uvm_api_free(UVM_FREE_PARAMS *params, struct file *filp) {
    COUNT_FUNCTION();
    return uvm_free(filp->private_data, params->base, params->length);
}

noinline static NV_STATUS uvm_api_validate_va_range(UVM_VALIDATE_VA_RANGE_PARAMS *params, struct file *filp) {
    COUNT_FUNCTION();
    return params->base & ~PAGE_MASK ? NV_ERR_INVALID_ADDRESS : NV_OK;
}

noinline static NV_STATUS uvm_api_migrate(UVM_MIGRATE_PARAMS *params, struct file *filp) {
    static const NvProcessorUuid cpu;
    bool to_cpu = !memcmp(&params->destinationUuid, &cpu, sizeof cpu);
    COUNT_FUNCTION();
    if (params->base & ~PAGE_MASK || !params->length || params->length > 1ull << 34) return NV_ERR_INVALID_ADDRESS;
    return uvm_migrate(filp->private_data, current->mm, params->base, params->length, to_cpu ? UVM_ID_CPU : UVM_ID_GPU0,
                       params->flags, NULL);
}

static void count_ioctl(unsigned int cmd, long result, NV_STATUS status) {
    switch (cmd) {
#define COUNT(NAME, NUMBER, FUNCTION)                                \
    case NAME:                                                       \
        COUNT_CALL("ioctl", #NAME, 1);                               \
        if (result) COUNT_CALL("failed", #NAME, 1);                  \
        else if (status != NV_OK) COUNT_CALL("status", #NAME, 1);    \
        break;
        UVM_IOCTLS(COUNT)
#undef COUNT
    default: COUNT_CALL("ioctl", "unknown", 1);
    }
}

/* Copies the argument in, and with its status out. A file that is not initialised takes no other call. */
#define ROUTE(NAME, NUMBER, FUNCTION)                                                      \
    case NAME: {                                                                           \
        NAME##_PARAMS *params = memdup_user((void __user *)arg, sizeof *params);           \
        NV_STATUS status;                                                                  \
        if (IS_ERR(params)) {                                                              \
            count_ioctl(cmd, PTR_ERR(params), NV_OK);                                      \
            return PTR_ERR(params);                                                        \
        }                                                                                  \
        status = !is_initialised && NAME != UVM_INITIALIZE ? NV_ERR_ILLEGAL_ACTION : FUNCTION(params, filp); \
        params->rmStatus = status;                                                         \
        result = copy_to_user((void __user *)arg, params, sizeof *params) ? -EFAULT : 0;   \
        kfree(params);                                                                     \
        count_ioctl(cmd, result, status);                                                  \
        return result;                                                                     \
    }

long uvm_ioctl(struct file *filp, unsigned int cmd, unsigned long arg);
noinline long uvm_ioctl(struct file *filp, unsigned int cmd, unsigned long arg) {
    bool is_initialised = ((uvm_va_space_t *)filp->private_data)->va_space_mm;
    long result;
    COUNT_FUNCTION();
    switch (cmd) { UVM_IOCTLS(ROUTE) }
    count_ioctl(cmd, -EINVAL, NV_OK);
    return -EINVAL;
}

noinline static long uvm_unlocked_ioctl(struct file *filp, unsigned int cmd, unsigned long arg) {
    COUNT_FUNCTION();
    return uvm_ioctl(filp, cmd, arg);
}

noinline static long uvm_unlocked_ioctl_entry(struct file *filp, unsigned int cmd, unsigned long arg) {
    COUNT_FUNCTION();
    return uvm_unlocked_ioctl(filp, cmd, arg);
}

/* ---- memory ---- */
noinline static vm_fault_t uvm_vm_fault(struct vm_area_struct *vma, struct vm_fault *vmf) {
    uvm_va_space_t *va_space = vma->vm_file->private_data;
    uvm_service_block_context_t context = {};
    uvm_va_block_t *block = uvm_va_block_find_create(va_space, vmf->address);
    struct page *page;
    NV_STATUS status;
    COUNT_FUNCTION();
    if (!block) return VM_FAULT_OOM;
    status = uvm_va_block_cpu_fault(block, vmf->address & PAGE_MASK, vmf->flags & FAULT_FLAG_WRITE, &context);
    if (status != NV_OK) return VM_FAULT_OOM;
    mutex_lock(&block->lock);
    page = block->pages[(vmf->address - block->start) >> PAGE_SHIFT];
    if (page) get_page(page);
    mutex_unlock(&block->lock);
    vmf->page = page;
    return page ? 0 : VM_FAULT_SIGBUS; /* freed meanwhile */
}

noinline static vm_fault_t uvm_vm_fault_entry(struct vm_fault *vmf) {
    COUNT_FUNCTION();
    return uvm_vm_fault(vmf->vma, vmf);
}

static const struct vm_operations_struct uvm_vm_ops_managed = {.fault = uvm_vm_fault_entry};

noinline static int uvm_mmap(struct file *filp, struct vm_area_struct *vma) {
    uvm_va_space_t *va_space = filp->private_data;
    COUNT_FUNCTION();
    if (!va_space->va_space_mm) return -EBADFD;
    /* The offset in the file is the address: one address space for CPU and GPU. */
    if (vma->vm_pgoff != vma->vm_start >> PAGE_SHIFT || !(vma->vm_flags & VM_SHARED)) return -EINVAL;
    vma->vm_ops = &uvm_vm_ops_managed;
    vm_flags_set(vma, VM_MIXEDMAP | VM_DONTEXPAND);
    return 0;
}

noinline static int uvm_mmap_entry(struct file *filp, struct vm_area_struct *vma) {
    COUNT_FUNCTION();
    return uvm_mmap(filp, vma);
}

noinline static int uvm_open(struct inode *inode, struct file *filp) {
    uvm_va_space_t *va_space = kzalloc(sizeof *va_space, GFP_KERNEL);
    COUNT_FUNCTION();
    if (!va_space) return -ENOMEM;
    xa_init(&va_space->va_blocks);
    mutex_init(&va_space->lock);
    va_space->perf_events.va_space = va_space;
    address_space_init_once(&va_space->mapping);
    va_space->mapping.host = inode;
    va_space->mapping.a_ops = inode->i_mapping->a_ops;
    filp->f_mapping = &va_space->mapping;
    filp->private_data = va_space;
    mutex_lock(&va_spaces_lock);
    list_add(&va_space->list_node, &va_spaces);
    mutex_unlock(&va_spaces_lock);
    return 0;
}

noinline static int uvm_open_entry(struct inode *inode, struct file *filp) {
    COUNT_FUNCTION();
    return uvm_open(inode, filp);
}

void uvm_va_space_destroy(uvm_va_space_t *va_space);
noinline void uvm_va_space_destroy(uvm_va_space_t *va_space) {
    uvm_va_block_t *block;
    unsigned long index;
    COUNT_FUNCTION();
    mutex_lock(&va_spaces_lock);
    list_del(&va_space->list_node);
    mutex_unlock(&va_spaces_lock);
    xa_for_each(&va_space->va_blocks, index, block) uvm_va_block_destroy(block);
    xa_destroy(&va_space->va_blocks);
    kfree(va_space);
}

noinline static int uvm_release(struct inode *inode, struct file *filp) {
    uvm_va_space_t *va_space = filp->private_data;
    COUNT_FUNCTION();
    filp->f_mapping = &inode->i_data;
    uvm_va_space_destroy(va_space);
    return 0;
}

noinline static int uvm_release_entry(struct inode *inode, struct file *filp) {
    COUNT_FUNCTION();
    return uvm_release(inode, filp);
}

static const struct file_operations uvm_fops = {
    .owner = THIS_MODULE,
    .open = uvm_open_entry,
    .release = uvm_release_entry,
    .mmap = uvm_mmap_entry,
    .unlocked_ioctl = uvm_unlocked_ioctl_entry,
};

/* ---- the module ---- */
static struct proc_dir_entry *proc_folder;
static struct cdev cdev;
static dev_t device;

static int __init uvm_init_entry(void) {
    int error = alloc_chrdev_region(&device, 0, 1, "nvidia-uvm");
    if (error) return error;
    proc_folder = proc_mkdir("driver/nvidia-uvm", NULL);
    calls_add_file(proc_folder);
    error = uvm_faults_init(proc_folder);
    if (error) goto no_faults;
    cdev_init(&cdev, &uvm_fops);
    cdev.owner = THIS_MODULE;
    error = cdev_add(&cdev, device, 1);
    if (!error) return 0;
    uvm_faults_exit();
no_faults:
    proc_remove(proc_folder);
    unregister_chrdev_region(device, 1);
    return error;
}

static void __exit uvm_exit_entry(void) {
    cdev_del(&cdev);
    proc_remove(proc_folder);
    uvm_faults_exit();
    unregister_chrdev_region(device, 1);
}

module_init(uvm_init_entry);
module_exit(uvm_exit_entry);
MODULE_DESCRIPTION("Stand-in for NVIDIA's driver for unified memory, without a device");
MODULE_VERSION(NV_DRIVER_VERSION);
MODULE_LICENSE("Dual MIT/GPL");
