/*
 * Virtual memory management: physical memory by handle, reserved addresses, and the mapping of one to the other.
 *
 * Physical memory is a file without a name, so that mapping it twice shows the same bytes. It lives as long as it has a holder
 * or a mapping.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"

enum { GRANULARITY = 2 << 20, MAX_MAPPINGS = 256 };

struct physical {
    struct object head;
    uint64_t bytes;
    int file, holders, mappings;
};
static struct mapping {
    char *start;
    uint64_t bytes;
    struct physical *physical;
} mappings[MAX_MAPPINGS]; /* a NULL start: free */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool odd(uint64_t bytes) {
    return !bytes || bytes % GRANULARITY;
}

CUresult SIM(cuMemGetAllocationGranularity)(size_t *out, const void *properties, int option) {
    (void)option;
    TRY(need_init());
    if (!out || !properties) return CUDA_ERROR_INVALID_VALUE;
    *out = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemCreate)(unsigned long long *out, size_t bytes, const void *properties, unsigned long long flags) {
    TRY(need_init());
    if (!out || !properties || flags || odd(bytes)) return CUDA_ERROR_INVALID_VALUE;
    struct physical *physical = object_new(PHYSICAL);
    if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
    physical->bytes = bytes;
    physical->holders = 1;
    physical->mappings = 0;
    physical->file = memfd_create("physical", MFD_CLOEXEC);
    if (physical->file < 0 || ftruncate(physical->file, (off_t)bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    spend_ns(NS_ALLOC);
    *out = (unsigned long long)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

/* With the lock held. */
static void drop_if_unused(struct physical *physical) {
    if (physical->holders || physical->mappings) return;
    close(physical->file);
    object_delete(physical);
}

CUresult SIM(cuMemRelease)(unsigned long long handle) {
    struct physical *physical = (struct physical *)(uintptr_t)handle;
    TRY(need_init());
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!object_is(physical, PHYSICAL) || !physical->holders) result = CUDA_ERROR_INVALID_VALUE;
    else {
        physical->holders--;
        drop_if_unused(physical);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult SIM(cuMemAddressReserve)(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags) {
    (void)wanted, (void)alignment;
    TRY(need_init());
    if (!out || flags || odd(bytes)) return CUDA_ERROR_INVALID_VALUE;
    char *at = mmap(NULL, bytes + GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = ((CUdeviceptr)(uintptr_t)at + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemAddressFree)(CUdeviceptr pointer, size_t bytes) {
    TRY(need_init());
    if (!pointer || odd(bytes)) return CUDA_ERROR_INVALID_VALUE;
    return munmap((void *)(uintptr_t)pointer, bytes) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult SIM(cuMemMap)(CUdeviceptr pointer, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags) {
    struct physical *physical = (struct physical *)(uintptr_t)handle;
    TRY(need_init());
    if (!object_is(physical, PHYSICAL) || flags || odd(bytes) || offset || bytes > physical->bytes) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    for (struct mapping *m = mappings; result && m < mappings + MAX_MAPPINGS; m++) {
        if (m->start) continue;
        void *start = (void *)(uintptr_t)pointer;
        if (mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical->file, 0) == MAP_FAILED) break;
        *m = (struct mapping){start, bytes, physical};
        physical->mappings++;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult SIM(cuMemSetAccess)(CUdeviceptr pointer, size_t bytes, const void *access, size_t count) {
    TRY(need_init());
    return !pointer || !bytes || !access || !count ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* A range may hold several mappings, each as a whole. */
CUresult SIM(cuMemUnmap)(CUdeviceptr pointer, size_t bytes) {
    char *start = (char *)(uintptr_t)pointer;
    uint64_t found = 0;
    TRY(need_init());
    pthread_mutex_lock(&lock);
    for (struct mapping *m = mappings; m < mappings + MAX_MAPPINGS; m++) {
        if (!m->start || m->start < start || m->start + m->bytes > start + bytes) continue;
        mmap(m->start, m->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        found += m->bytes;
        m->physical->mappings--;
        drop_if_unused(m->physical);
        m->start = NULL;
    }
    pthread_mutex_unlock(&lock);
    return found == bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool mapped_range(CUdeviceptr pointer, uint64_t bytes) {
    char *start = (char *)(uintptr_t)pointer;
    bool found = false;
    pthread_mutex_lock(&lock);
    for (struct mapping *m = mappings; m < mappings + MAX_MAPPINGS; m++)
        found |= m->start && start >= m->start && start + bytes <= m->start + m->bytes;
    pthread_mutex_unlock(&lock);
    return found;
}
