// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Faults of the GPU. The device puts them into a buffer and interrupts; a kernel thread serves them, so the current process
 * there is not the one that uses the GPU.
 *
 * The simulated GPU is the process itself, so it reports what it touches: it writes `touch ADDRESS LENGTH` to
 * /proc/driver/nvidia-uvm/gpu before a GPU kernel runs, and `done ADDRESS LENGTH` when it ends. In between the pages, which
 * are on the GPU, are mapped.
 */
#include <linux/completion.h>
#include <linux/mm.h>
#include <linux/proc_fs.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>

#include "calls.h"
#include "nv-kthread-q.h"
#include "uvm.h"

static nv_kthread_q_t bottom_half_q;
static uvm_parent_gpu_t parent_gpu = {.uuid = {"simulated-gpu-0"}, .name = "GPU1"};

/* The buffer has room for one, with a lock for its writers. */
static DEFINE_MUTEX(buffer_lock);
static struct {
    nv_kthread_q_item_t item;
    uvm_va_space_t *va_space;
    NvU64 address, length;
    struct completion served;
} fault;

static bool is_on_gpu(const uvm_regions_t *at) {
    return find_next_zero_bit(at->block->on_gpu, at->region.outer, at->region.first) >= at->region.outer;
}

NV_STATUS service_fault_batch(uvm_parent_gpu_t *parent_gpu);
noinline NV_STATUS service_fault_batch(uvm_parent_gpu_t *parent_gpu) {
    uvm_service_block_context_t context = {.operation = UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT};
    uvm_regions_t at = uvm_regions(fault.address, fault.length);
    NV_STATUS status = NV_OK;
    COUNT_FUNCTION();
    while (status == NV_OK && uvm_next_region(fault.va_space, &at, true)) {
        mutex_lock(&at.block->lock);
        if (!is_on_gpu(&at)) {
            uvm_perf_event_data_t faults = {.fault = {.space = fault.va_space, .block = at.block, .proc_id = UVM_ID_GPU0}};
            uvm_perf_event_notify(&fault.va_space->perf_events, UVM_PERF_EVENT_FAULT, &faults);
        }
        if (!is_on_gpu(&at)) status = uvm_va_block_service_locked(UVM_ID_GPU0, at.block, NULL, &context, at.region);
        mutex_unlock(&at.block->lock);
    }
    return status;
}

void uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *parent_gpu);
noinline void uvm_parent_gpu_service_replayable_faults(uvm_parent_gpu_t *parent_gpu) {
    COUNT_FUNCTION();
    service_fault_batch(parent_gpu);
}

static void replayable_faults_isr_bottom_half_entry(void *args) {
    uvm_parent_gpu_service_replayable_faults(args);
    complete(&fault.served);
}

/* Whether a page of the range is not on the GPU. */
static bool is_missing(uvm_va_space_t *va_space, NvU64 address, NvU64 length) {
    uvm_regions_t at = uvm_regions(address, length);
    while (uvm_next_region(va_space, &at, true))
        if (!is_on_gpu(&at)) return true;
    return false;
}

static void raise_fault(uvm_va_space_t *va_space, NvU64 address, NvU64 length) {
    mutex_lock(&buffer_lock);
    fault.va_space = va_space;
    fault.address = address;
    fault.length = length;
    reinit_completion(&fault.served);
    nv_kthread_q_schedule_q_item(&bottom_half_q, &fault.item);
    wait_for_completion(&fault.served);
    mutex_unlock(&buffer_lock);
}

/* Maps the pages for the process, whose addresses the simulated GPU uses. */
static void map_for_gpu(uvm_va_space_t *va_space, NvU64 address, NvU64 length) {
    uvm_regions_t at = uvm_regions(address, length);
    mmap_read_lock(current->mm);
    while (uvm_next_region(va_space, &at, false)) {
        int page;
        for (page = at.region.first; page < at.region.outer; page++) {
            NvU64 here = at.block->start + page * PAGE_SIZE;
            struct vm_area_struct *vma = find_vma(current->mm, here);
            bool is_ours = vma && vma->vm_start <= here && vma->vm_file && vma->vm_file->f_mapping == &va_space->mapping;
            if (is_ours && at.block->pages[page]) vm_insert_page(vma, here, at.block->pages[page]);
        }
    }
    mmap_read_unlock(current->mm);
}

static ssize_t gpu_write(struct file *file, const char __user *from, size_t length, loff_t *at) {
    uvm_va_space_t *va_space = uvm_va_space_of_mm(current->mm);
    char text[64] = "", word[8];
    unsigned long long start, bytes;
    if (!va_space) return -ENODEV;
    if (length >= sizeof text || copy_from_user(text, from, length)) return -EINVAL;
    if (sscanf(text, "%7s %llx %llx", word, &start, &bytes) != 3) return -EINVAL;
    if (!strcmp(word, "done")) {
        uvm_unmap_range(va_space, start & PAGE_MASK, PAGE_ALIGN(start + bytes) - (start & PAGE_MASK));
        return length;
    }
    if (is_missing(va_space, start, bytes)) raise_fault(va_space, start, bytes);
    map_for_gpu(va_space, start, bytes);
    return length;
}

static const struct proc_ops gpu_operations = {.proc_write = gpu_write};

int uvm_faults_init(struct proc_dir_entry *folder) {
    int error = nv_kthread_q_init(&bottom_half_q, "UVM GPU1 BH");
    if (error) return error;
    init_completion(&fault.served);
    nv_kthread_q_item_init(&fault.item, replayable_faults_isr_bottom_half_entry, &parent_gpu);
    proc_create("gpu", 0222, folder, &gpu_operations);
    return 0;
}

void uvm_faults_exit(void) {
    nv_kthread_q_stop(&bottom_half_q);
}
