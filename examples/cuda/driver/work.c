/*
 * The simulated GPU: does work immediately on the calling thread, and computes the time that a GPU would need.
 */
#include <string.h>

#include "sim.h"

static void run_copy(const struct copy *c) {
    for (uint64_t z = 0; z < c->depth; z++)
        for (uint64_t y = 0; y < c->height; y++)
            memmove(c->to.start + z * c->to.slice + y * c->to.pitch,
                    c->from.start + z * c->from.slice + y * c->from.pitch, c->width);
}

static void fill_row(char *at, const struct fill *f) {
    for (uint64_t x = 0; x < f->width; x++) memcpy(at + x * f->element_bytes, &f->value, f->element_bytes);
}

static void run_fill(const struct fill *f) {
    for (uint64_t y = 0; y < f->height; y++) {
        if (f->element_bytes == 1) memset(f->to.start + y * f->to.pitch, (int)f->value, f->width);
        else fill_row(f->to.start + y * f->to.pitch, f);
    }
}

static uint64_t threads_of(const struct kernel_launch *k) {
    return (uint64_t)k->grid[0] * k->grid[1] * k->grid[2] * k->block[0] * k->block[1] * k->block[2];
}

static void run_host(const struct host_call *h) {
    if (h->callback) h->callback(h->stream, CUDA_SUCCESS, h->data);
    else h->function(h->data);
}

static CUresult run(const struct work *work) {
    switch (work->kind) {
    case WORK_NOTHING: break;
    case WORK_COPY: run_copy(&work->copy); break;
    case WORK_FILL: run_fill(&work->fill); break;
    case WORK_HOST: run_host(&work->host); break;
    case WORK_KERNEL: {
        const struct builtin *body = work->kernel.function->body;
        if (body) return body->run(work->kernel.args, threads_of(&work->kernel));
    }
    }
    return CUDA_SUCCESS;
}

CUresult work_run(const struct work *work) {
    kernel_driver_gpu_begins(work);
    CUresult result = run(work);
    kernel_driver_gpu_ends(work);
    if (result) kernel_driver_gpu_faults();
    return result;
}

uint64_t work_cost_ns(const struct work *work) {
    switch (work->kind) {
    case WORK_NOTHING: return 0;
    case WORK_COPY: return 2000 + work->copy.width * work->copy.height * work->copy.depth / 16; /* 16 GB/s */
    case WORK_FILL: return 2000 + work->fill.width * work->fill.height * work->fill.element_bytes / 512;
    case WORK_HOST: return 5000;
    case WORK_KERNEL: return 5000 + threads_of(&work->kernel) / 32;
    }
    return 0;
}
