/*
 * What the simulated GPU does is passed on here: to an observer (observe.h) and to the totals (truth.c).
 *
 * Calls get their correlation ids here. A piece of work has the id of the call that the thread is in, or one of its own where
 * that call is not among the observed ones. Without an observer the price is one load and one branch.
 */
#include <string.h>

#include "sim.h"

atomic_bool gpu_watched;

static _Atomic(const struct observer *) observer;
static bool totals;
static _Thread_local uint32_t correlation; /* of the call that this thread is in; 0: none */

static void set_observer(const struct observer *to) {
    atomic_store(&observer, to);
    atomic_store(&gpu_watched, to || totals);
}

/* Observers that have ended, and one more. */
static atomic_uint generation = 1;

static void end_observer(void) {
    atomic_fetch_add(&generation, 1);
}

unsigned observer_generation(void) {
    const struct observer *to = atomic_load(&observer);
    return to && to->changes_graphs() ? atomic_load(&generation) : 0;
}

bool observer_has_ended(unsigned of) {
    return of && of != atomic_load(&generation);
}

__attribute__((constructor)) static void begin(void) {
    totals = truth_begin();
    set_observer(NULL);
}

CUresult SIM(cuGetExportTable)(const void **out, const CUuuid *id) {
    static const struct observer_table TABLE = {sizeof TABLE, set_observer, end_observer};
    if (!out || !id) return CUDA_ERROR_INVALID_VALUE;
    if (memcmp(id->bytes, OBSERVER_TABLE_ID, sizeof id->bytes)) return CUDA_ERROR_NOT_SUPPORTED;
    *out = &TABLE;
    return CUDA_SUCCESS;
}

static uint32_t next_correlation(void) {
    static atomic_uint last;
    uint32_t id;
    do id = atomic_fetch_add(&last, 1) + 1;
    while (!id); /* 0 is no id, also when the numbers begin again */
    return id;
}

void call_enter(struct call *call, uint32_t number, const char *name) {
    const struct observer *to = atomic_load(&observer);
    struct context *context = context_current();
    call->outer = correlation;
    call->seen = (struct observed_call){.number = number, .name = name, .context = (CUcontext)context,
                                        .context_id = context ? context->head.serial : 0, .correlation = next_correlation()};
    correlation = call->seen.correlation;
    call->entered = to && number;
    if (call->entered) to->enter(&call->seen);
}

CUresult call_leave(struct call *call, CUresult result) {
    const struct observer *to = atomic_load(&observer);
    correlation = call->outer;
    call->seen.result = result;
    if (call->entered && to) to->leave(&call->seen);
    return result;
}

static void report(struct observed_work *work) {
    const struct observer *to = atomic_load(&observer);
    work->correlation = correlation ? correlation : next_correlation();
    if (totals) truth_add(work);
    if (to) to->work(work);
}

/* ---- from the driver's structures to the observer's ---- */

static char side_of(enum memory_kind kind) {
    return kind == MEMORY_ARRAY ? 'A' : kind == MEMORY_PAGEABLE || kind == MEMORY_PINNED ? 'H' : 'D';
}

static enum copy_kind copy_kind(enum memory_kind from, enum memory_kind to) {
    static const struct { char from, to; enum copy_kind kind; } KINDS[] = {
        {'H', 'D', COPY_HTOD}, {'D', 'H', COPY_DTOH}, {'D', 'D', COPY_DTOD}, {'H', 'H', COPY_HTOH}, {'H', 'A', COPY_HTOA},
        {'A', 'H', COPY_ATOH}, {'A', 'A', COPY_ATOA}, {'A', 'D', COPY_ATOD}, {'D', 'A', COPY_DTOA},
    };
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (KINDS[i].from == side_of(from) && KINDS[i].to == side_of(to)) return KINDS[i].kind;
    return 0;
}

static void describe_kernel(struct observed_work *out, const struct kernel_launch *k) {
    out->kind = OBSERVED_KERNEL;
    out->kernel.name = k->function->name;
    memcpy(out->kernel.grid, k->grid, sizeof k->grid);
    memcpy(out->kernel.block, k->block, sizeof k->block);
    out->kernel.shared = k->shared;
    out->kernel.registers = KERNEL_REGISTERS;
    out->kernel.cooperative = k->cooperative;
}

static void describe_copy(struct observed_work *out, const struct copy *c) {
    out->kind = OBSERVED_COPY;
    out->copy.bytes = c->width * c->height * c->depth;
    out->copy.from = memory_kind_of(c->from.start);
    out->copy.to = memory_kind_of(c->to.start);
    out->copy.kind = copy_kind(out->copy.from, out->copy.to);
    out->copy.is_peer = c->peer;
    if (!c->peer) return;
    out->copy.kind = COPY_PTOP;
    out->copy.from_device = (uint32_t)c->from_device;
    out->copy.from_context = c->from_context;
    out->copy.to_device = (uint32_t)c->to_device;
    out->copy.to_context = c->to_context;
}

static void describe_fill(struct observed_work *out, const struct fill *f) {
    out->kind = OBSERVED_FILL;
    out->fill.bytes = f->width * f->height * f->element_bytes;
    out->fill.value = f->value;
    out->fill.to = memory_kind_of(f->to.start);
}

static struct observed_work on_stream(const struct stream *s, struct span span) {
    return (struct observed_work){.start = span.start, .end = span.end, .device = (uint32_t)s->context->device,
                                  .context = s->context->head.serial, .stream = s->id, .priority = s->priority};
}

void observe_work(const struct stream *s, const struct work *work, struct span span, bool is_async, const struct node_id *node) {
    struct observed_work out = on_stream(s, span);
    out.is_async = is_async;
    if (node) out.graph = node->graph, out.node = node->node;
    switch (work->kind) {
    case WORK_KERNEL: describe_kernel(&out, &work->kernel); break;
    case WORK_COPY: describe_copy(&out, &work->copy); break;
    case WORK_FILL: describe_fill(&out, &work->fill); break;
    case WORK_NOTHING:
    case WORK_HOST: return;
    }
    report(&out);
}

void observe_graph(const struct stream *s, uint32_t graph, struct span span) {
    struct observed_work out = on_stream(s, span);
    out.kind = OBSERVED_GRAPH;
    out.graph = graph;
    report(&out);
}

void observe_wait(enum wait_kind kind, const struct context *context, uint32_t stream, uint32_t event, struct span span) {
    struct observed_work out = {.kind = OBSERVED_WAIT, .start = span.start, .end = span.end, .stream = stream,
                                .device = context ? (uint32_t)context->device : 0,
                                .context = context ? context->head.serial : 0, .wait = {kind, event}};
    report(&out);
}
