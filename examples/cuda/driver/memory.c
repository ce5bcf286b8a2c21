/*
 * Allocation: device, managed and page-locked host memory, each backed by this process's own memory.
 *
 * A device address is therefore readable by the program too, which no correct program notices. Capacity of the device:
 * CUDASIM_MEMORY (default 1G). Page-locked memory has no limit that matters here.
 */
#include <pthread.h>
#include <stdlib.h>

#include "sim.h"

enum { PITCH_ALIGN = 512 };
static const uint64_t ADDRESS_SPACE = 64ull << 30;

static struct arena *device, *host;

static void make_arenas(void) {
    uint64_t capacity = env_bytes("CUDASIM_MEMORY", 1ull << 30);
    uint64_t space = ADDRESS_SPACE;
    while (space < 4 * capacity) space *= 2;
    device = arena_new(space, capacity);
    host = arena_new(ADDRESS_SPACE, ADDRESS_SPACE);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

struct arena *device_arena(void) {
    pthread_once(&once, make_arenas);
    return device;
}

struct arena *host_arena(void) {
    pthread_once(&once, make_arenas);
    return host;
}

void memory_reset(void) {
    arena_reset(device_arena(), TAG_POOL, kernel_driver_free); /* pools are the device's, not the context's */
}

bool device_range(CUdeviceptr start, uint64_t bytes) {
    void *base;
    uint64_t size;
    unsigned tag;
    const char *at = (const char *)(uintptr_t)start;
    if (mapped_range(start, bytes)) return true;
    return arena_find(device_arena(), at, &base, &size, &tag) && bytes <= size - (uint64_t)(at - (char *)base);
}

CUresult device_alloc(CUdeviceptr *out, uint64_t bytes, unsigned tag) {
    struct context *context;
    TRY(need_context(&context));
    spend_ns(NS_ALLOC);
    if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
    uint64_t least = kernel_driver_least_bytes(tag);
    void *at = arena_alloc(device_arena(), bytes < least ? least : bytes, tag);
    if (!at) {
        kernel_driver_alloc_too_much(bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = kernel_driver_alloc(at, bytes, tag);
    if (result) arena_free(device_arena(), at, (int)tag);
    else *out = (CUdeviceptr)(uintptr_t)at;
    return result;
}

bool device_free(void *start, int tag) {
    void *found;
    uint64_t bytes;
    unsigned actual;
    if (kernel_driver_is_open()) {
        bool live = arena_find(device_arena(), start, &found, &bytes, &actual) && found == start;
        if (live && (tag < 0 || (unsigned)tag == actual)) kernel_driver_free(start, bytes, actual);
    }
    return arena_free(device_arena(), start, tag);
}

CUresult SIM(cuMemAlloc_v2)(CUdeviceptr *out, size_t bytes) {
    return device_alloc(out, bytes, TAG_DEVICE);
}

CUresult SIM(cuMemAllocManaged)(CUdeviceptr *out, size_t bytes, unsigned flags) {
    if (flags != 1 && flags != 2) return CUDA_ERROR_INVALID_VALUE; /* attach global, attach host */
    return device_alloc(out, bytes, TAG_MANAGED);
}

CUresult SIM(cuMemAllocPitch_v2)(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    if (!pitch || !width || !height) return CUDA_ERROR_INVALID_VALUE;
    if (element != 4 && element != 8 && element != 16) return CUDA_ERROR_INVALID_VALUE;
    size_t row = (width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN;
    TRY(device_alloc(out, row * height, TAG_DEVICE));
    *pitch = row;
    return CUDA_SUCCESS;
}

/* Waits for queued work, as the real one does, since a kernel may still use the memory. */
CUresult SIM(cuMemFree_v2)(CUdeviceptr pointer) {
    struct context *context;
    TRY(need_context(&context));
    spend_ns(NS_FREE);
    if (!pointer) return CUDA_SUCCESS;
    context_wait(context);
    bool freed = device_free((void *)(uintptr_t)pointer, -1);
    linger();
    return freed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SIM(cuMemGetInfo_v2)(size_t *unused, size_t *total) {
    struct context *context;
    uint64_t f, t;
    TRY(need_context(&context));
    if (!unused || !total) return CUDA_ERROR_INVALID_VALUE;
    arena_room(device_arena(), &f, &t);
    *unused = f;
    *total = t;
    return CUDA_SUCCESS;
}

/* The 32-bit form is limited to its range. */
CUresult SIM(cuMemGetInfo)(unsigned *unused, unsigned *total) {
    size_t f, t;
    if (!unused || !total) return CUDA_ERROR_INVALID_VALUE;
    TRY(SIM(cuMemGetInfo_v2)(&f, &t));
    *unused = f > UINT32_MAX ? UINT32_MAX : (unsigned)f;
    *total = t > UINT32_MAX ? UINT32_MAX : (unsigned)t;
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemGetAddressRange_v2)(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    struct context *context;
    void *start;
    uint64_t size;
    unsigned tag;
    TRY(need_context(&context));
    if (!arena_find(device_arena(), (void *)(uintptr_t)pointer, &start, &size, &tag)) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = (CUdeviceptr)(uintptr_t)start;
    if (bytes) *bytes = size;
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemHostAlloc)(void **out, size_t bytes, unsigned flags) {
    struct context *context;
    (void)flags;
    TRY(need_context(&context));
    spend_ns(NS_HOST_ALLOC);
    if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
    *out = arena_alloc(host_arena(), bytes, TAG_HOST);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult SIM(cuMemAllocHost_v2)(void **out, size_t bytes) {
    return SIM(cuMemHostAlloc)(out, bytes, 0);
}

CUresult SIM(cuMemAllocHost)(void **out, unsigned bytes) {
    return SIM(cuMemHostAlloc)(out, bytes, 0);
}

CUresult SIM(cuMemFreeHost)(void *pointer) {
    struct context *context;
    TRY(need_context(&context));
    spend_ns(NS_FREE);
    if (!pointer) return CUDA_SUCCESS;
    context_wait(context);
    return arena_free(host_arena(), pointer, TAG_HOST) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool pinned(const void *pointer) {
    void *start;
    uint64_t size;
    unsigned tag;
    return arena_find(host_arena(), pointer, &start, &size, &tag);
}

/* Memory that the program allocated itself and registered: a short list, since programs register few ranges. */
static struct registration {
    struct registration *next;
    char *start;
    size_t bytes;
} *registrations;
static pthread_mutex_t registration_lock = PTHREAD_MUTEX_INITIALIZER;

static struct registration **registration_of(const void *pointer) {
    struct registration **at = &registrations;
    while (*at && ((const char *)pointer < (*at)->start || (const char *)pointer >= (*at)->start + (*at)->bytes))
        at = &(*at)->next;
    return at;
}

static bool registered(const void *pointer) {
    pthread_mutex_lock(&registration_lock);
    bool found = *registration_of(pointer) != NULL;
    pthread_mutex_unlock(&registration_lock);
    return found;
}

enum memory_kind memory_kind_of(const void *pointer) {
    void *start;
    uint64_t size;
    unsigned tag;
    if (!arena_find(device_arena(), pointer, &start, &size, &tag)) {
        if (mapped_range((CUdeviceptr)(uintptr_t)pointer, 1)) return MEMORY_DEVICE;
        return pinned(pointer) || registered(pointer) ? MEMORY_PINNED : MEMORY_PAGEABLE;
    }
    return tag == TAG_MANAGED ? MEMORY_MANAGED : tag == TAG_ARRAY ? MEMORY_ARRAY : MEMORY_DEVICE;
}

CUresult SIM(cuMemHostRegister_v2)(void *pointer, size_t bytes, unsigned flags) {
    struct context *context;
    (void)flags;
    TRY(need_context(&context));
    if (!pointer || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (pinned(pointer) || registered(pointer)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    struct registration *entry = malloc(sizeof *entry);
    if (!entry) return CUDA_ERROR_OUT_OF_MEMORY;
    spend_ns(NS_HOST_ALLOC);
    pthread_mutex_lock(&registration_lock);
    *entry = (struct registration){registrations, pointer, bytes};
    registrations = entry;
    pthread_mutex_unlock(&registration_lock);
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemHostUnregister)(void *pointer) {
    struct context *context;
    TRY(need_context(&context));
    pthread_mutex_lock(&registration_lock);
    struct registration **at = registration_of(pointer), *entry = *at;
    bool found = entry && entry->start == pointer;
    if (found) *at = entry->next;
    pthread_mutex_unlock(&registration_lock);
    if (found) free(entry);
    return found ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* One address space: the device sees page-locked memory where the host does. */
CUresult SIM(cuMemHostGetDevicePointer_v2)(CUdeviceptr *out, void *pointer, unsigned flags) {
    struct context *context;
    TRY(need_context(&context));
    if (!out || flags || !(pinned(pointer) || registered(pointer))) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUdeviceptr)(uintptr_t)pointer;
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemHostGetFlags)(unsigned *out, void *pointer) {
    struct context *context;
    TRY(need_context(&context));
    if (!out || !pinned(pointer)) return CUDA_ERROR_INVALID_VALUE;
    *out = 2; /* CU_MEMHOSTALLOC_DEVICEMAP */
    return CUDA_SUCCESS;
}

/* CUpointer_attribute: context, memory type, device pointer, host pointer, is managed, ordinal, range start, range size. */
CUresult SIM(cuPointerGetAttribute)(void *out, int attribute, CUdeviceptr pointer) {
    void *start, *at = (void *)(uintptr_t)pointer;
    uint64_t bytes;
    unsigned tag;
    TRY(need_init());
    bool on_device = arena_find(device_arena(), at, &start, &bytes, &tag);
    if (!out || (!on_device && !arena_find(host_arena(), at, &start, &bytes, &tag))) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case 1: *(CUcontext *)out = (CUcontext)context_current(); return CUDA_SUCCESS;
    case 2: *(unsigned *)out = on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST; return CUDA_SUCCESS;
    case 3: *(CUdeviceptr *)out = pointer; return CUDA_SUCCESS;
    case 4:
        if (on_device && tag != TAG_MANAGED) return CUDA_ERROR_INVALID_VALUE;
        *(void **)out = at;
        return CUDA_SUCCESS;
    case 8: *(unsigned *)out = tag == TAG_MANAGED; return CUDA_SUCCESS;
    case 9: *(int *)out = 0; return CUDA_SUCCESS;
    case 11: *(CUdeviceptr *)out = (CUdeviceptr)(uintptr_t)start; return CUDA_SUCCESS;
    case 12: *(size_t *)out = bytes; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

/* CUmemLocation: its type, then its number. */
enum { CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_DEVICE_CPU = -1 };

/* Hints about managed memory: checked, without effect. */
CUresult SIM(cuMemAdvise)(CUdeviceptr pointer, size_t bytes, int advice, CUdevice where) {
    (void)advice, (void)where;
    return device_range(pointer, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SIM(cuMemAdvise_v2)(CUdeviceptr pointer, size_t bytes, int advice, uint64_t location) {
    (void)advice, (void)location;
    return device_range(pointer, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SIM(cuMemPrefetchAsync)(CUdeviceptr pointer, size_t bytes, CUdevice where, CUstream stream) {
    if (!device_range(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
    kernel_driver_migrate(pointer, bytes, where == CU_DEVICE_CPU);
    return stream_submit(stream, &(struct work){.kind = WORK_NOTHING}, false);
}

CUresult SIM(cuMemPrefetchAsync_v2)(CUdeviceptr pointer, size_t bytes, uint64_t location, unsigned flags, CUstream stream) {
    (void)flags;
    CUdevice where = (uint32_t)location == CU_MEM_LOCATION_TYPE_DEVICE ? (CUdevice)(location >> 32) : CU_DEVICE_CPU;
    return SIM(cuMemPrefetchAsync)(pointer, bytes, where, stream);
}
