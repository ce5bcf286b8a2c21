/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The parts of nvidia-uvm.ko: managed memory, whose pages move between CPU and GPU when one of them touches them.
 *
 * uvm.c            the device file and its ioctls
 * uvm_va_block.c   pages of 2 MiB of addresses and their places, faults of the CPU, migrations
 * uvm_faults.c     faults of the GPU, which a kernel thread handles
 *
 * The simulated GPU is the process itself: it touches the same pages through the same addresses. See uvm_faults.c.
 */
#ifndef UVM_H
#define UVM_H

#include <linux/fs.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/xarray.h>

#include <nvidia_ioctl.h>

enum { UVM_BLOCK_SHIFT = 21, UVM_BLOCK_PAGES = 1 << (UVM_BLOCK_SHIFT - PAGE_SHIFT) };

typedef struct {
    unsigned int val; /* 0: the CPU, 1: the GPU */
} uvm_processor_id_t;
#define UVM_ID_CPU ((uvm_processor_id_t){0})
#define UVM_ID_GPU0 ((uvm_processor_id_t){1})

typedef struct {
    __u16 first, outer; /* pages of a block */
} uvm_va_block_region_t;

typedef enum {
    UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT,
    UVM_MAKE_RESIDENT_CAUSE_NON_REPLAYABLE_FAULT,
    UVM_MAKE_RESIDENT_CAUSE_ACCESS_COUNTER,
    UVM_MAKE_RESIDENT_CAUSE_PREFETCH,
    UVM_MAKE_RESIDENT_CAUSE_EVICTION,
    UVM_MAKE_RESIDENT_CAUSE_API_TOOLS,
    UVM_MAKE_RESIDENT_CAUSE_API_MIGRATE,
} uvm_make_resident_cause_t;

typedef enum {
    UVM_PERF_EVENT_BLOCK_DESTROY,
    UVM_PERF_EVENT_BLOCK_SHRINK,
    UVM_PERF_EVENT_BLOCK_MUNMAP,
    UVM_PERF_EVENT_RANGE_DESTROY,
    UVM_PERF_EVENT_RANGE_SHRINK,
    UVM_PERF_EVENT_MODULE_UNLOAD,
    UVM_PERF_EVENT_FAULT,
    UVM_PERF_EVENT_MIGRATION,
    UVM_PERF_EVENT_REVOCATION,
} uvm_perf_event_t;

/* What an event tells its listeners; of the real fields those that a tracer reads. */
typedef union {
    struct {
        struct uvm_va_space *space;
        struct uvm_va_block *block;
        uvm_processor_id_t proc_id, preferred_location;
        union {
            struct {
                void *buffer_entry;
                NvU32 batch_id;
                bool is_duplicate;
            } gpu;
            struct {
                NvU64 fault_va;
                bool is_write;
                NvU64 pc;
            } cpu;
        };
    } fault;
    struct {
        void *push;
        struct uvm_va_block *block;
        uvm_processor_id_t dst, src;
        __u16 dst_nid, src_nid;
        NvU64 address, bytes;
        unsigned int transfer_mode;
        uvm_make_resident_cause_t cause;
    } migration;
} uvm_perf_event_data_t;

typedef struct {
    struct uvm_va_space *va_space;
} uvm_perf_va_space_events_t;

typedef enum { UVM_MIGRATE_MODE_MAKE_RESIDENT, UVM_MIGRATE_MODE_MAKE_RESIDENT_AND_MAP } uvm_migrate_mode_t;

typedef struct uvm_va_space {
    struct address_space mapping; /* the file's own, so that its pages can be unmapped */
    struct mm_struct *va_space_mm; /* of the process that initialised it; not NULL since then */
    uvm_perf_va_space_events_t perf_events;
    struct list_head list_node;
    struct xarray va_blocks; /* by address >> UVM_BLOCK_SHIFT */
    struct mutex lock;
    NvU64 last_range_group;
} uvm_va_space_t;

typedef struct uvm_va_block {
    uvm_va_space_t *va_space;
    NvU64 start, end; /* of its addresses; `end` is the last one */
    struct mutex lock;
    struct page *pages[UVM_BLOCK_PAGES]; /* NULL: never touched */
    DECLARE_BITMAP(on_gpu, UVM_BLOCK_PAGES);
} uvm_va_block_t;

struct proc_dir_entry;
/* Types of arguments that are unused here, and that keep the other arguments in their places. */
typedef struct uvm_va_block_retry uvm_va_block_retry_t;
typedef struct uvm_va_block_context uvm_va_block_context_t;
typedef struct uvm_page_mask uvm_page_mask_t;
typedef struct uvm_tracker uvm_tracker_t;

typedef struct {
    uvm_make_resident_cause_t operation;
    unsigned int num_retries;
} uvm_service_block_context_t;

typedef struct uvm_parent_gpu {
    NvProcessorUuid uuid;
    char name[16];
} uvm_parent_gpu_t;

/* ---- uvm.c ---- */
uvm_va_space_t *uvm_va_space_of_mm(struct mm_struct *mm);

/* ---- uvm_va_block.c ---- */
void uvm_perf_event_notify(uvm_perf_va_space_events_t *va_space_events, uvm_perf_event_t event_id,
                           uvm_perf_event_data_t *event_data);
uvm_va_block_t *uvm_va_block_find_create(uvm_va_space_t *va_space, NvU64 address);
void uvm_va_block_destroy(uvm_va_block_t *va_block);
NV_STATUS uvm_va_block_cpu_fault(uvm_va_block_t *va_block, NvU64 fault_addr, bool is_write,
                                 uvm_service_block_context_t *service_context);
NV_STATUS uvm_va_block_make_resident(uvm_va_block_t *va_block, uvm_va_block_retry_t *va_block_retry,
                                     uvm_va_block_context_t *va_block_context, uvm_processor_id_t dest_id,
                                     uvm_va_block_region_t region, const uvm_page_mask_t *page_mask,
                                     const uvm_page_mask_t *prefetch_page_mask, uvm_make_resident_cause_t cause);
NV_STATUS uvm_va_block_migrate_locked(uvm_va_block_t *va_block, uvm_va_block_retry_t *va_block_retry,
                                      uvm_service_block_context_t *service_context, uvm_va_block_region_t region,
                                      uvm_processor_id_t dest_id, uvm_migrate_mode_t mode, uvm_tracker_t *out_tracker);
NV_STATUS uvm_va_block_service_locked(uvm_processor_id_t processor_id, uvm_va_block_t *va_block,
                                      uvm_va_block_retry_t *block_retry, uvm_service_block_context_t *service_context,
                                      uvm_va_block_region_t region);
NV_STATUS uvm_migrate(uvm_va_space_t *va_space, struct mm_struct *mm, NvU64 base, NvU64 length, uvm_processor_id_t dest_id,
                      NvU32 migrate_flags, uvm_tracker_t *out_tracker);
void uvm_unmap_range(uvm_va_space_t *va_space, NvU64 start, NvU64 length);
void uvm_forget_range(uvm_va_space_t *va_space, NvU64 start, NvU64 length);

/* The blocks of a range of addresses, and the part of each that the range covers. */
typedef struct {
    uvm_va_block_t *block;
    uvm_va_block_region_t region;
    NvU64 next, end; /* addresses */
} uvm_regions_t;
uvm_regions_t uvm_regions(NvU64 start, NvU64 length);
bool uvm_next_region(uvm_va_space_t *va_space, uvm_regions_t *regions, bool create);

/* ---- uvm_faults.c ---- */
int uvm_faults_init(struct proc_dir_entry *folder);
void uvm_faults_exit(void);

/* ---- nvidia.ko ---- */
NV_STATUS nvUvmInterfaceRegisterGpu(const NvProcessorUuid *gpuUuid);
NV_STATUS nvUvmInterfaceDupMemory(NvHandle hClient, NvHandle hMemory, NvU64 *size);

#endif
