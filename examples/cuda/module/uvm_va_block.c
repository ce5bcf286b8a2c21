// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Pages and their places. There is one copy of each page: a migration unmaps it and changes its place. */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "calls.h"
#include "uvm.h"

uvm_va_block_t *uvm_va_block_find_create(uvm_va_space_t *va_space, NvU64 address) {
    unsigned long index = address >> UVM_BLOCK_SHIFT;
    uvm_va_block_t *block = xa_load(&va_space->va_blocks, index);
    if (block) return block;
    mutex_lock(&va_space->lock);
    block = xa_load(&va_space->va_blocks, index);
    if (!block) {
        block = kvzalloc(sizeof *block, GFP_KERNEL);
        if (block) {
            block->va_space = va_space;
            block->start = (NvU64)index << UVM_BLOCK_SHIFT;
            block->end = block->start + (1ull << UVM_BLOCK_SHIFT) - 1;
            mutex_init(&block->lock);
            if (xa_is_err(xa_store(&va_space->va_blocks, index, block, GFP_KERNEL))) {
                kvfree(block);
                block = NULL;
            }
        }
    }
    mutex_unlock(&va_space->lock);
    return block;
}

uvm_regions_t uvm_regions(NvU64 start, NvU64 length) {
    return (uvm_regions_t){.next = start & PAGE_MASK, .end = PAGE_ALIGN(start + length)};
}

/* `create`: blocks that do not exist yet are made, not left out. */
bool uvm_next_region(uvm_va_space_t *va_space, uvm_regions_t *regions, bool create) {
    while (regions->next < regions->end) {
        NvU64 from = regions->next, to = min((from | ((1ull << UVM_BLOCK_SHIFT) - 1)) + 1, regions->end);
        uvm_va_block_t *block = create ? uvm_va_block_find_create(va_space, from)
                                       : xa_load(&va_space->va_blocks, from >> UVM_BLOCK_SHIFT);
        regions->next = to;
        if (!block) continue;
        regions->block = block;
        regions->region.first = (from - block->start) >> PAGE_SHIFT;
        regions->region.outer = (to - block->start) >> PAGE_SHIFT;
        return true;
    }
    return false;
}

void uvm_va_block_destroy(uvm_va_block_t *va_block) {
    int page;
    for (page = 0; page < UVM_BLOCK_PAGES; page++)
        if (va_block->pages[page]) put_page(va_block->pages[page]);
    kvfree(va_block);
}

/* Nobody listens here but tracers. */
noinline void uvm_perf_event_notify(uvm_perf_va_space_events_t *va_space_events, uvm_perf_event_t event_id,
                                    uvm_perf_event_data_t *event_data) {
    COUNT_FUNCTION();
    barrier_data(event_data);
}

/* The next access of the process faults. */
void uvm_unmap_range(uvm_va_space_t *va_space, NvU64 start, NvU64 length) {
    unmap_mapping_range(&va_space->mapping, start, length, 1);
}

/* Frees the pages of a range, whose addresses another allocation may get. */
void uvm_forget_range(uvm_va_space_t *va_space, NvU64 start, NvU64 length) {
    uvm_regions_t at = uvm_regions(start, length);
    uvm_unmap_range(va_space, start, length);
    while (uvm_next_region(va_space, &at, false)) {
        int page;
        mutex_lock(&at.block->lock);
        for (page = at.region.first; page < at.region.outer; page++) {
            if (at.block->pages[page]) put_page(at.block->pages[page]);
            at.block->pages[page] = NULL;
        }
        bitmap_clear(at.block->on_gpu, at.region.first, at.region.outer - at.region.first);
        mutex_unlock(&at.block->lock);
    }
}

/* Allocates the pages of the region that are missing, and moves those that are elsewhere. With the block's lock. */
noinline NV_STATUS uvm_va_block_make_resident(uvm_va_block_t *va_block, uvm_va_block_retry_t *va_block_retry,
                                              uvm_va_block_context_t *va_block_context, uvm_processor_id_t dest_id,
                                              uvm_va_block_region_t region, const uvm_page_mask_t *page_mask,
                                              const uvm_page_mask_t *prefetch_page_mask, uvm_make_resident_cause_t cause) {
    int page, moved = 0;
    COUNT_FUNCTION();
    for (page = region.first; page < region.outer; page++) {
        if (!va_block->pages[page]) {
            va_block->pages[page] = alloc_page(GFP_KERNEL | __GFP_ZERO);
            if (!va_block->pages[page]) return NV_ERR_NO_MEMORY;
        } else if (test_bit(page, va_block->on_gpu) != !!dest_id.val) {
            moved++;
        }
        if (dest_id.val) set_bit(page, va_block->on_gpu);
        else clear_bit(page, va_block->on_gpu);
    }
    if (moved) {
        uvm_perf_event_data_t moves = {.migration = {.block = va_block, .dst = dest_id, .cause = cause}};
        moves.migration.src = dest_id.val ? UVM_ID_CPU : UVM_ID_GPU0;
        moves.migration.address = va_block->start + region.first * PAGE_SIZE;
        moves.migration.bytes = moved * PAGE_SIZE;
        uvm_perf_event_notify(&va_block->va_space->perf_events, UVM_PERF_EVENT_MIGRATION, &moves);
    }
    if (dest_id.val) {
        uvm_unmap_range(va_block->va_space, va_block->start + region.first * PAGE_SIZE,
                        (region.outer - region.first) * PAGE_SIZE);
        COUNT_CALL("bytes", "to_gpu", moved * PAGE_SIZE);
    } else {
        COUNT_CALL("bytes", "to_cpu", moved * PAGE_SIZE);
    }
    return NV_OK;
}

noinline NV_STATUS uvm_va_block_service_locked(uvm_processor_id_t processor_id, uvm_va_block_t *va_block,
                                               uvm_va_block_retry_t *block_retry, uvm_service_block_context_t *service_context,
                                               uvm_va_block_region_t region) {
    COUNT_FUNCTION();
    return uvm_va_block_make_resident(va_block, block_retry, NULL, processor_id, region, NULL, NULL,
                                      service_context->operation);
}

noinline NV_STATUS uvm_va_block_cpu_fault(uvm_va_block_t *va_block, NvU64 fault_addr, bool is_write,
                                          uvm_service_block_context_t *service_context) {
    __u16 page = (fault_addr - va_block->start) >> PAGE_SHIFT;
    uvm_va_block_region_t region = {.first = page, .outer = page + 1};
    uvm_perf_event_data_t faults = {.fault = {.space = va_block->va_space, .block = va_block, .proc_id = UVM_ID_CPU}};
    NV_STATUS status;
    COUNT_FUNCTION();
    faults.fault.cpu.fault_va = fault_addr;
    faults.fault.cpu.is_write = is_write;
    mutex_lock(&va_block->lock);
    uvm_perf_event_notify(&va_block->va_space->perf_events, UVM_PERF_EVENT_FAULT, &faults);
    service_context->operation = UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT;
    status = uvm_va_block_service_locked(UVM_ID_CPU, va_block, NULL, service_context, region);
    mutex_unlock(&va_block->lock);
    return status;
}

noinline NV_STATUS uvm_va_block_migrate_locked(uvm_va_block_t *va_block, uvm_va_block_retry_t *va_block_retry,
                                               uvm_service_block_context_t *service_context, uvm_va_block_region_t region,
                                               uvm_processor_id_t dest_id, uvm_migrate_mode_t mode,
                                               uvm_tracker_t *out_tracker) {
    COUNT_FUNCTION();
    return uvm_va_block_make_resident(va_block, va_block_retry, NULL, dest_id, region, NULL, NULL,
                                      UVM_MAKE_RESIDENT_CAUSE_API_MIGRATE);
}

noinline NV_STATUS uvm_migrate(uvm_va_space_t *va_space, struct mm_struct *mm, NvU64 base, NvU64 length,
                               uvm_processor_id_t dest_id, NvU32 migrate_flags, uvm_tracker_t *out_tracker) {
    uvm_service_block_context_t context = {.operation = UVM_MAKE_RESIDENT_CAUSE_API_MIGRATE};
    uvm_regions_t at = uvm_regions(base, length);
    NV_STATUS status = NV_OK;
    COUNT_FUNCTION();
    while (status == NV_OK && uvm_next_region(va_space, &at, true)) {
        mutex_lock(&at.block->lock);
        status = uvm_va_block_migrate_locked(at.block, NULL, &context, at.region, dest_id, UVM_MIGRATE_MODE_MAKE_RESIDENT,
                                             out_tracker);
        mutex_unlock(&at.block->lock);
    }
    return status;
}
