/*
 * Copies: every cuMemcpy* function describes its operands as regions and hands one piece of work to a stream.
 *
 * Device operands must lie inside live allocations; host operands are trusted, as the real driver must trust them.
 */
#include "sim.h"

#define DEVICE(pointer) ((char *)(uintptr_t)(pointer))

/* Copies `bytes` in one row. The default stream and waiting for it make the synchronous forms. */
static CUresult copy_row(void *to, const void *from, size_t bytes, CUstream stream, bool wait) {
    struct context *context;
    TRY(need_context(&context));
    if (!bytes) return CUDA_SUCCESS;
    if (!to || !from) return CUDA_ERROR_INVALID_VALUE;
    struct region target = {to, bytes, bytes}, source = {(char *)(uintptr_t)from, bytes, bytes};
    struct work work = {.kind = WORK_COPY, .copy = {.to = target, .from = source, .width = bytes, .height = 1, .depth = 1}};
    spend_ns(wait ? NS_COPY : NS_SUBMIT);
    return stream_submit(stream, &work, wait);
}

static bool bad(CUdeviceptr pointer, size_t bytes) {
    return bytes && !device_range(pointer, bytes);
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream, bool wait) {
    if (bad(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return copy_row(DEVICE(to), from, bytes, stream, wait);
}

static CUresult to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait) {
    if (bad(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return copy_row(to, DEVICE(from), bytes, stream, wait);
}

static CUresult inside_device(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (bad(to, bytes) || bad(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return copy_row(DEVICE(to), DEVICE(from), bytes, stream, false);
}

CUresult SIM(cuMemcpyHtoD_v2)(CUdeviceptr to, const void *from, size_t bytes) {
    OBSERVED(276, to_device(to, from, bytes, NULL, true));
}
CUresult SIM(cuMemcpyHtoDAsync_v2)(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    OBSERVED(277, to_device(to, from, bytes, stream, false));
}
CUresult SIM(cuMemcpyDtoH_v2)(void *to, CUdeviceptr from, size_t bytes) {
    OBSERVED(278, to_host(to, from, bytes, NULL, true));
}
CUresult SIM(cuMemcpyDtoHAsync_v2)(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    OBSERVED(279, to_host(to, from, bytes, stream, false));
}
CUresult SIM(cuMemcpyDtoD_v2)(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    OBSERVED(280, inside_device(to, from, bytes, NULL));
}
CUresult SIM(cuMemcpyDtoDAsync_v2)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    OBSERVED(281, inside_device(to, from, bytes, stream));
}
/* Unified addressing: each side may be host or device memory. */
CUresult SIM(cuMemcpy)(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    OBSERVED(305, copy_row(DEVICE(to), DEVICE(from), bytes, NULL, true));
}
CUresult SIM(cuMemcpyAsync)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    OBSERVED(306, copy_row(DEVICE(to), DEVICE(from), bytes, stream, false));
}
CUresult SIM(cuMemcpyAsync_ptsz)(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    OBSERVED(418, copy_row(DEVICE(to), DEVICE(from), bytes, stream, false));
}

/* All devices share one memory: a copy between them is one within it. */
static CUresult between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                        CUstream stream) {
    struct context *context, *target = (struct context *)to_context, *source = (struct context *)from_context;
    if (bad(to, bytes) || bad(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    TRY(need_context(&context));
    if (!object_is(target, CONTEXT)) target = context;
    if (!object_is(source, CONTEXT)) source = context;
    if (!bytes) return CUDA_SUCCESS;
    struct work work = {.kind = WORK_COPY, .copy = {{DEVICE(to), bytes, bytes}, {DEVICE(from), bytes, bytes}, bytes, 1, 1, true,
                        source->device, target->device, source->head.serial, target->head.serial}};
    spend_ns(NS_SUBMIT);
    return stream_submit(stream, &work, false);
}

CUresult SIM(cuMemcpyPeer)(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes) {
    return between(to, to_context, from, from_context, bytes, NULL);
}
CUresult SIM(cuMemcpyPeerAsync)(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                size_t bytes, CUstream stream) {
    return between(to, to_context, from, from_context, bytes, stream);
}

/* ---- arrays, by byte offset ---- */

/* The bytes at `offset` of an array; arrays are stored row by row, so that a row may run into the next. */
static CUresult array_at(CUarray handle, size_t offset, size_t bytes, char **out) {
    if (!object_is(handle, ARRAY)) return CUDA_ERROR_INVALID_HANDLE;
    const struct array *array = (struct array *)handle;
    uint64_t size = array->row_bytes * array->height * array->depth;
    if (offset > size || bytes > size - offset) return CUDA_ERROR_INVALID_VALUE;
    *out = array->data + offset;
    return CUDA_SUCCESS;
}

static CUresult into_array(CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream, bool wait) {
    char *target;
    TRY(array_at(to, offset, bytes, &target));
    return copy_row(target, from, bytes, stream, wait);
}

static CUresult out_of_array(void *to, CUarray from, size_t offset, size_t bytes, CUstream stream, bool wait) {
    char *source;
    TRY(array_at(from, offset, bytes, &source));
    return copy_row(to, source, bytes, stream, wait);
}

CUresult SIM(cuMemcpyHtoA_v2)(CUarray to, size_t offset, const void *from, size_t bytes) {
    return into_array(to, offset, from, bytes, NULL, true);
}
CUresult SIM(cuMemcpyHtoAAsync_v2)(CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream) {
    return into_array(to, offset, from, bytes, stream, false);
}
CUresult SIM(cuMemcpyAtoH_v2)(void *to, CUarray from, size_t offset, size_t bytes) {
    return out_of_array(to, from, offset, bytes, NULL, true);
}
CUresult SIM(cuMemcpyAtoHAsync_v2)(void *to, CUarray from, size_t offset, size_t bytes, CUstream stream) {
    return out_of_array(to, from, offset, bytes, stream, false);
}
CUresult SIM(cuMemcpyDtoA_v2)(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
    if (bad(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return into_array(to, offset, DEVICE(from), bytes, NULL, false);
}
CUresult SIM(cuMemcpyAtoD_v2)(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
    if (bad(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return out_of_array(DEVICE(to), from, offset, bytes, NULL, false);
}
CUresult SIM(cuMemcpyAtoA_v2)(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes) {
    char *source;
    TRY(array_at(from, from_offset, bytes, &source));
    return into_array(to, to_offset, source, bytes, NULL, false);
}

/* ---- boxes ---- */

/* One side of a 2-D or 3-D copy, as the two parameter structs spell it. */
struct side {
    unsigned type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t x, y, z, pitch, height;
};

static CUresult side_region(const struct side *s, size_t width, size_t height, size_t depth, struct region *out) {
    uint64_t pitch = s->pitch ? s->pitch : width, rows = s->height ? s->height : height;
    char *base;
    switch (s->type) {
    case CU_MEMORYTYPE_HOST: base = (char *)(uintptr_t)s->host; break;
    case CU_MEMORYTYPE_UNIFIED:
    case CU_MEMORYTYPE_DEVICE: base = DEVICE(s->device); break;
    case CU_MEMORYTYPE_ARRAY: {
        if (!object_is(s->array, ARRAY)) return CUDA_ERROR_INVALID_HANDLE;
        const struct array *array = (struct array *)s->array;
        if (s->x + width > array->row_bytes || s->y + height > array->height || s->z + depth > array->depth)
            return CUDA_ERROR_INVALID_VALUE;
        base = array->data, pitch = array->row_bytes, rows = array->height;
        break;
    }
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    if (!base || pitch < width) return CUDA_ERROR_INVALID_VALUE;
    *out = (struct region){base + s->z * pitch * rows + s->y * pitch + s->x, pitch, pitch * rows};
    uint64_t span = (depth - 1) * out->slice + (height - 1) * pitch + width;
    bool on_device = s->type == CU_MEMORYTYPE_DEVICE;
    return on_device && bad((CUdeviceptr)(uintptr_t)out->start, span) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult copy_box(const struct side *to, const struct side *from, size_t width, size_t height, size_t depth,
                         CUstream stream, bool wait) {
    struct context *context;
    struct work work = {.kind = WORK_COPY};
    TRY(need_context(&context));
    if (!width || !height || !depth) return CUDA_SUCCESS;
    TRY(side_region(to, width, height, depth, &work.copy.to));
    TRY(side_region(from, width, height, depth, &work.copy.from));
    work.copy.width = width;
    work.copy.height = height;
    work.copy.depth = depth;
    spend_ns(wait ? NS_COPY : NS_SUBMIT);
    return stream_submit(stream, &work, wait);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool wait) {
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    struct side to = {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes, p->dstY, 0, p->dstPitch, 0};
    struct side from = {p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes, p->srcY, 0, p->srcPitch, 0};
    return copy_box(&to, &from, p->WidthInBytes, p->Height, 1, stream, wait);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool wait) {
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    struct side to = {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, p->dstXInBytes,
                      p->dstY,          p->dstZ,    p->dstPitch,  p->dstHeight};
    struct side from = {p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, p->srcXInBytes,
                        p->srcY,          p->srcZ,    p->srcPitch,  p->srcHeight};
    return copy_box(&to, &from, p->WidthInBytes, p->Height, p->Depth, stream, wait);
}

CUresult SIM(cuMemcpy2D_v2)(const CUDA_MEMCPY2D *p) {
    return copy_2d(p, NULL, true);
}
CUresult SIM(cuMemcpy2DUnaligned_v2)(const CUDA_MEMCPY2D *p) {
    return copy_2d(p, NULL, true);
}
CUresult SIM(cuMemcpy2DAsync_v2)(const CUDA_MEMCPY2D *p, CUstream stream) {
    return copy_2d(p, stream, false);
}
CUresult SIM(cuMemcpy3D_v2)(const CUDA_MEMCPY3D *p) {
    return copy_3d(p, NULL, true);
}
CUresult SIM(cuMemcpy3DAsync_v2)(const CUDA_MEMCPY3D *p, CUstream stream) {
    return copy_3d(p, stream, false);
}

/* ---- many at once ---- */

static CUresult copy_rows(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUstream stream) {
    for (size_t i = 0; i < count; i++) TRY(copy_row(DEVICE(to[i]), DEVICE(from[i]), bytes[i], stream, false));
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemcpyBatchAsync_v2)(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, void *attributes,
                                    size_t *attribute_of, size_t attribute_count, CUstream stream) {
    (void)attributes, (void)attribute_of, (void)attribute_count;
    if (!to || !from || !bytes || !count) return CUDA_ERROR_INVALID_VALUE;
    OBSERVED(0, copy_rows(to, from, bytes, count, stream));
}

CUresult SIM(cuMemcpyBatchAsync)(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, void *attributes,
                                 size_t *attribute_of, size_t attribute_count, size_t *failed, CUstream stream) {
    if (failed) *failed = SIZE_MAX;
    return SIM(cuMemcpyBatchAsync_v2)(to, from, bytes, count, attributes, attribute_of, attribute_count, stream);
}

/* CUDA_MEMCPY3D_BATCH_OP, whose operands are here addresses alone. */
struct operand {
    int type; /* 1: an address */
    CUdeviceptr pointer;
    size_t row, layer, hint;
};
struct box {
    struct operand from, to;
    size_t width, height, depth;
    unsigned order, flags;
};
_Static_assert(sizeof(struct box) == 112, "as CUDA has it");

CUresult SIM(cuMemcpy3DBatchAsync_v2)(size_t count, const struct box *boxes, unsigned long long flags, CUstream stream) {
    if (!count || !boxes || flags) return CUDA_ERROR_INVALID_VALUE;
    for (const struct box *box = boxes; box < boxes + count; box++) {
        if (box->from.type != 1 || box->to.type != 1) return CUDA_ERROR_NOT_SUPPORTED;
        struct side to = {.type = CU_MEMORYTYPE_UNIFIED, .device = box->to.pointer, .pitch = box->to.row, .height = box->to.layer};
        struct side from = {.type = CU_MEMORYTYPE_UNIFIED, .device = box->from.pointer, .pitch = box->from.row, .height = box->from.layer};
        TRY(copy_box(&to, &from, box->width, box->height, box->depth, stream, false));
    }
    return CUDA_SUCCESS;
}

CUresult SIM(cuMemcpy3DBatchAsync)(size_t count, const struct box *boxes, size_t *failed, unsigned long long flags, CUstream stream) {
    if (failed) *failed = SIZE_MAX;
    return SIM(cuMemcpy3DBatchAsync_v2)(count, boxes, flags, stream);
}
