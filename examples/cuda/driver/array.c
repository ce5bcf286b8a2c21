/*
 * Arrays: shaped device memory with a format. Stored row by row; a real device tiles them, which no call shows.
 */
#include "sim.h"

/* Bytes of one channel by CUarray_format; 0 for formats that we do not store. */
static unsigned channel_bytes(unsigned format) {
    switch (format) {
    case 0x01: case 0x08: return 1;             /* 8-bit integers */
    case 0x02: case 0x09: case 0x10: return 2;  /* 16-bit integers, half */
    case 0x03: case 0x0a: case 0x20: return 4;  /* 32-bit integers, float */
    default: return 0;
    }
}

CUresult SIM(cuArray3DCreate_v2)(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    if (!out || !shape || !shape->Width) return CUDA_ERROR_INVALID_VALUE;
    uint64_t element = (uint64_t)channel_bytes(shape->Format) * shape->NumChannels;
    if (!element || shape->NumChannels == 3 || shape->NumChannels > 4) return CUDA_ERROR_INVALID_VALUE;
    uint64_t row = shape->Width * element, height = shape->Height ? shape->Height : 1;
    uint64_t depth = shape->Depth ? shape->Depth : 1;
    CUdeviceptr data;
    TRY(device_alloc(&data, row * height * depth, TAG_ARRAY));
    struct array *array = object_new(ARRAY);
    if (!array) return CUDA_ERROR_OUT_OF_MEMORY;
    array->data = (char *)(uintptr_t)data;
    array->row_bytes = row;
    array->height = height;
    array->depth = depth;
    array->shape = *shape;
    *out = (CUarray)array;
    return CUDA_SUCCESS;
}

CUresult SIM(cuArrayCreate_v2)(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *shape) {
    if (!shape) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR full = {shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0};
    return SIM(cuArray3DCreate_v2)(out, &full);
}

CUresult SIM(cuArray3DGetDescriptor_v2)(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray handle) {
    if (!object_is(handle, ARRAY)) return CUDA_ERROR_INVALID_HANDLE;
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = ((struct array *)handle)->shape;
    return CUDA_SUCCESS;
}

CUresult SIM(cuArrayGetDescriptor_v2)(CUDA_ARRAY_DESCRIPTOR *out, CUarray handle) {
    CUDA_ARRAY3D_DESCRIPTOR full;
    TRY(SIM(cuArray3DGetDescriptor_v2)(&full, handle));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUDA_ARRAY_DESCRIPTOR){full.Width, full.Height, full.Format, full.NumChannels};
    return CUDA_SUCCESS;
}

CUresult SIM(cuArrayDestroy)(CUarray handle) {
    struct context *context;
    TRY(need_context(&context));
    if (!object_is(handle, ARRAY)) return CUDA_ERROR_INVALID_HANDLE;
    context_wait(context);
    device_free(((struct array *)handle)->data, TAG_ARRAY);
    object_delete(handle);
    return CUDA_SUCCESS;
}

/* ---- mipmapped arrays: an array for each level ---- */

enum { MAX_LEVELS = 16, LAYERED = 1 };
struct mipmap {
    struct object head;
    unsigned levels;
    CUarray level[MAX_LEVELS];
};

static size_t halved(size_t side, unsigned level) {
    return !side ? 0 : side >> level ? side >> level : 1;
}

CUresult SIM(cuMipmappedArrayCreate)(void **out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    if (!out || !shape || !levels || levels > MAX_LEVELS) return CUDA_ERROR_INVALID_VALUE;
    struct mipmap *mipmap = object_new(MIPMAP);
    if (!mipmap) return CUDA_ERROR_OUT_OF_MEMORY;
    for (mipmap->levels = 0; mipmap->levels < levels; mipmap->levels++) {
        unsigned level = mipmap->levels;
        CUDA_ARRAY3D_DESCRIPTOR part = *shape;
        part.Width = halved(shape->Width, level);
        part.Height = halved(shape->Height, level);
        part.Depth = shape->Flags & LAYERED ? shape->Depth : halved(shape->Depth, level);
        TRY(SIM(cuArray3DCreate_v2)(&mipmap->level[level], &part));
    }
    *out = mipmap;
    return CUDA_SUCCESS;
}

CUresult SIM(cuMipmappedArrayGetLevel)(CUarray *out, void *handle, unsigned level) {
    struct mipmap *mipmap = handle;
    if (!object_is(handle, MIPMAP)) return CUDA_ERROR_INVALID_HANDLE;
    if (!out || level >= mipmap->levels) return CUDA_ERROR_INVALID_VALUE;
    *out = mipmap->level[level];
    return CUDA_SUCCESS;
}

CUresult SIM(cuMipmappedArrayDestroy)(void *handle) {
    struct mipmap *mipmap = handle;
    if (!object_is(handle, MIPMAP)) return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < mipmap->levels; i++) TRY(SIM(cuArrayDestroy)(mipmap->level[i]));
    object_delete(mipmap);
    return CUDA_SUCCESS;
}
