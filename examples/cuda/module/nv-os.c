// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Services of the kernel for the resource manager. */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "calls.h"
#include "nv.h"

NV_STATUS os_alloc_mem(void **address, NvU64 size) {
    COUNT_FUNCTION();
    *address = kzalloc(size, GFP_KERNEL);
    return *address ? NV_OK : NV_ERR_NO_MEMORY;
}

void os_free_mem(void *address) {
    COUNT_FUNCTION();
    kfree(address);
}

NV_STATUS os_memcpy_from_user(void *to, const void *from, NvU32 n) {
    COUNT_FUNCTION();
    return copy_from_user(to, (const void __user *)from, n) ? NV_ERR_INVALID_ADDRESS : NV_OK;
}

NV_STATUS os_memcpy_to_user(void *to, const void *from, NvU32 n) {
    COUNT_FUNCTION();
    return copy_to_user((void __user *)to, from, n) ? NV_ERR_INVALID_ADDRESS : NV_OK;
}

NV_STATUS os_delay(NvU32 milliseconds) {
    COUNT_FUNCTION();
    usleep_range(milliseconds * 1000, milliseconds * 1000 + 100);
    return NV_OK;
}

/* The resource manager's one lock. */
static DEFINE_MUTEX(rm_lock);

void os_acquire_mutex(void) {
    mutex_lock(&rm_lock);
}

void os_release_mutex(void) {
    mutex_unlock(&rm_lock);
}

NvU32 os_get_current_process(void) {
    return task_tgid_nr(current);
}

NV_STATUS nv_alloc_pages(nv_state_t *nv, NvU32 page_count, NvU64 page_size, NvBool contiguous, NvU32 cache_type, NvBool zeroed,
                         NvBool unencrypted, NvS32 node_id, NvU64 *pte_array, void **priv_data) {
    void *pages;
    COUNT_FUNCTION();
    pages = alloc_pages_exact((size_t)page_count * page_size, GFP_KERNEL | (zeroed ? __GFP_ZERO : 0));
    if (!pages) return NV_ERR_NO_MEMORY;
    pte_array[0] = virt_to_phys(pages);
    *priv_data = pages;
    return NV_OK;
}

NV_STATUS nv_free_pages(nv_state_t *nv, NvU32 page_count, NvBool contiguous, NvU32 cache_type, void *priv_data) {
    COUNT_FUNCTION();
    free_pages_exact(priv_data, (size_t)page_count * PAGE_SIZE);
    return NV_OK;
}
