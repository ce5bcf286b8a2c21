/*
 * Graphs, as far as capture and replay need them: a list of work in the order it was added.
 *
 * That order satisfies every dependency a program can name, since a node can only depend on nodes made before it; so
 * dependencies are accepted and not stored. A child graph is copied into its parent, node by node. Kernel nodes can be
 * edited, in a graph and in an instance of it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct node {
    struct object head;
    struct work work;
};
struct graph {
    struct object head;
    pthread_mutex_t lock;
    size_t count, room;
    struct node **nodes;
};
struct graph_exec {
    struct object head;
    size_t count;
    struct work *work;
    struct node **nodes; /* whose work that is: only compared with */
    uint32_t *ids;       /* of the nodes */
    atomic_uint generation; /* of the observer that has changed it; 0: none has */
};

struct graph *graph_new(void) {
    struct graph *g = object_new(GRAPH);
    if (g) pthread_mutex_init(&g->lock, NULL);
    return g;
}

static bool grow(struct graph *g) {
    size_t room = g->room ? 2 * g->room : 16;
    struct node **nodes = realloc(g->nodes, room * sizeof *nodes);
    if (!nodes) return false;
    g->nodes = nodes;
    g->room = room;
    return true;
}

CUresult graph_append(struct graph *g, const struct work *work, CUgraphNode *out) {
    struct node *node = object_new(NODE);
    if (!node) return CUDA_ERROR_OUT_OF_MEMORY;
    node->work = *work;
    pthread_mutex_lock(&g->lock);
    bool fits = g->count < g->room || grow(g);
    if (fits) g->nodes[g->count++] = node;
    pthread_mutex_unlock(&g->lock);
    if (!fits) {
        object_delete(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (out) *out = (CUgraphNode)node;
    return CUDA_SUCCESS;
}

static CUresult graph_of(CUgraph handle, struct graph **out) {
    TRY(need_init());
    *out = (struct graph *)handle;
    return object_is(handle, GRAPH) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult SIM(cuGraphCreate)(CUgraph *out, unsigned flags) {
    TRY(need_init());
    if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
    *out = (CUgraph)graph_new();
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult SIM(cuGraphDestroy)(CUgraph handle) {
    struct graph *g;
    TRY(graph_of(handle, &g));
    for (size_t i = 0; i < g->count; i++) object_delete(g->nodes[i]);
    free(g->nodes);
    object_delete(g);
    linger();
    return CUDA_SUCCESS;
}

CUresult SIM(cuGraphAddEmptyNode)(CUgraphNode *out, CUgraph handle, const CUgraphNode *after, size_t count) {
    struct graph *g;
    (void)after, (void)count;
    TRY(graph_of(handle, &g));
    return graph_append(g, &(struct work){.kind = WORK_NOTHING}, out);
}

/* `p` ends after `extra` in the first form; `func` may be NULL in the second, which then has `kern`. */
static CUresult add_kernel(CUgraphNode *out, CUgraph handle, const CUDA_KERNEL_NODE_PARAMS *p, const void *kernel) {
    struct graph *g;
    struct work work = {.kind = WORK_KERNEL};
    TRY(graph_of(handle, &g));
    unsigned grid[] = {p->gridDimX, p->gridDimY, p->gridDimZ}, block[] = {p->blockDimX, p->blockDimY, p->blockDimZ};
    TRY(launch_prepare(&work.kernel, kernel, grid, block, p->sharedMemBytes, p->kernelParams, p->extra));
    return graph_append(g, &work, out);
}

CUresult SIM(cuGraphAddKernelNode)(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                   const CUDA_KERNEL_NODE_PARAMS *p) {
    (void)after, (void)count;
    return p ? add_kernel(out, graph, p, p->func) : CUDA_ERROR_INVALID_VALUE;
}

CUresult SIM(cuGraphAddKernelNode_v2)(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                      const CUDA_KERNEL_NODE_PARAMS *p) {
    (void)after, (void)count;
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    return add_kernel(out, graph, p, p->func ? (void *)p->func : (void *)p->kern);
}

static CUresult append_all(struct graph *to, const struct graph *from) {
    for (size_t i = 0; i < from->count; i++) TRY(graph_append(to, &from->nodes[i]->work, NULL));
    return CUDA_SUCCESS;
}

CUresult SIM(cuGraphAddChildGraphNode)(CUgraphNode *out, CUgraph handle, const CUgraphNode *after, size_t count,
                                       CUgraph child_handle) {
    struct graph *g, *child;
    (void)after, (void)count;
    TRY(graph_of(handle, &g));
    TRY(graph_of(child_handle, &child));
    if (g == child) return CUDA_ERROR_INVALID_VALUE;
    TRY(graph_append(g, &(struct work){.kind = WORK_NOTHING}, out));
    return append_all(g, child);
}

/* Nodes of the kinds that the other functions add. */
static CUresult add_node(CUgraphNode *out, CUgraph graph, CUgraphNodeParams *p) {
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS *kernel = &p->kernel;
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return add_kernel(out, graph, kernel, kernel->func ? (void *)kernel->func : (void *)kernel->kern);
    case CU_GRAPH_NODE_TYPE_GRAPH: return SIM(cuGraphAddChildGraphNode)(out, graph, NULL, 0, p->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY: return SIM(cuGraphAddEmptyNode)(out, graph, NULL, 0);
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult SIM(cuGraphAddNode)(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                             CUgraphNodeParams *p) {
    (void)after, (void)count;
    return add_node(out, graph, p);
}

CUresult SIM(cuGraphAddNode_v2)(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, const void *edges,
                                size_t count, CUgraphNodeParams *p) {
    (void)after, (void)edges, (void)count;
    return add_node(out, graph, p);
}

CUresult SIM(cuGraphClone)(CUgraph *out, CUgraph handle) {
    struct graph *g;
    TRY(graph_of(handle, &g));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    struct graph *clone = graph_new();
    if (!clone) return CUDA_ERROR_OUT_OF_MEMORY;
    TRY(append_all(clone, g));
    *out = (CUgraph)clone;
    return CUDA_SUCCESS;
}

/* `p` as in add_kernel; the work must be a kernel's already. */
static CUresult set_kernel(struct work *work, const CUDA_KERNEL_NODE_PARAMS *p, const void *kernel) {
    if (work->kind != WORK_KERNEL) return CUDA_ERROR_INVALID_VALUE;
    unsigned grid[] = {p->gridDimX, p->gridDimY, p->gridDimZ}, block[] = {p->blockDimX, p->blockDimY, p->blockDimZ};
    return launch_prepare(&work->kernel, kernel, grid, block, p->sharedMemBytes, p->kernelParams, p->extra);
}

CUresult SIM(cuGraphKernelNodeSetParams_v2)(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *p) {
    TRY(need_init());
    if (!object_is(handle, NODE) || !p) return CUDA_ERROR_INVALID_VALUE;
    return set_kernel(&((struct node *)handle)->work, p, p->func ? (void *)p->func : (void *)p->kern);
}

CUresult SIM(cuGraphGetNodes)(CUgraph handle, CUgraphNode *out, size_t *count) {
    struct graph *g;
    TRY(graph_of(handle, &g));
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    if (!out) {
        *count = g->count;
        return CUDA_SUCCESS;
    }
    if (*count > g->count) *count = g->count;
    for (size_t i = 0; i < *count; i++) out[i] = (CUgraphNode)g->nodes[i];
    return CUDA_SUCCESS;
}

static bool take_work(struct graph_exec *exec, const struct graph *g) {
    exec->work = calloc(g->count + 1, sizeof *exec->work);
    exec->nodes = calloc(g->count + 1, sizeof *exec->nodes);
    exec->ids = calloc(g->count + 1, sizeof *exec->ids);
    if (!exec->work || !exec->nodes || !exec->ids) return false;
    exec->count = g->count;
    for (size_t i = 0; i < g->count; i++) {
        exec->work[i] = g->nodes[i]->work;
        exec->nodes[i] = g->nodes[i];
        exec->ids[i] = g->nodes[i]->head.serial;
    }
    return true;
}

CUresult SIM(cuGraphInstantiateWithFlags)(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
    struct graph *g;
    (void)flags;
    TRY(graph_of(handle, &g));
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    struct graph_exec *exec = object_new(GRAPH_EXEC);
    if (!exec || !take_work(exec, g)) return CUDA_ERROR_OUT_OF_MEMORY;
    spend_ns(NS_LOAD);
    *out = (CUgraphExec)exec;
    return CUDA_SUCCESS;
}

/* The form before CUDA 12, with a place for a message about the first bad node; there is never one. */
CUresult SIM(cuGraphInstantiate_v2)(CUgraphExec *out, CUgraph handle, CUgraphNode *bad, char *log, size_t room) {
    if (bad) *bad = NULL;
    if (log && room) *log = 0;
    return SIM(cuGraphInstantiateWithFlags)(out, handle, 0);
}

static CUresult exec_of(CUgraphExec handle, struct graph_exec **out) {
    TRY(need_init());
    *out = (struct graph_exec *)handle;
    return object_is(handle, GRAPH_EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The ids of nodes are unique in the process; those of an instance's are the graph's in the upper half and the node's. */
static struct node_id node_id(const struct graph_exec *exec, size_t i) {
    return (struct node_id){exec->head.serial, (uint64_t)exec->head.serial << 32 | exec->ids[i]};
}

static CUresult launch(CUgraphExec handle, CUstream stream) {
    struct graph_exec *exec;
    struct stream *s;
    struct span whole = {0, 0}, span;
    TRY(exec_of(handle, &exec));
    TRY(stream_of(stream, &s));
    spend_ns(NS_LAUNCH);
    /* As on an H200 with CUPTI 13.0.1, where the failure comes with a later call. */
    if (observer_has_ended(exec->generation)) return CUDA_ERROR_LAUNCH_FAILED;
    if (observer_generation()) exec->generation = observer_generation();
    for (size_t i = 0; i < exec->count; i++) {
        struct node_id id = node_id(exec, i);
        /* The GPU goes on by itself, even if this thread does not run for a while. */
        TRY(stream_submit_node(stream, &exec->work[i], &id, whole.end, &span));
        if (span.start && !whole.start) whole.start = span.start;
        if (span.end) whole.end = span.end;
    }
    if (whole.start && gpu_is_watched()) observe_graph(s, exec->head.serial, whole);
    return CUDA_SUCCESS;
}

CUresult SIM(cuGraphLaunch)(CUgraphExec handle, CUstream stream) {
    OBSERVED(514, launch(handle, stream));
}

CUresult SIM(cuGraphLaunch_ptsz)(CUgraphExec handle, CUstream stream) {
    OBSERVED(515, launch(handle, stream));
}

CUresult SIM(cuGraphExecKernelNodeSetParams_v2)(CUgraphExec handle, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS *p) {
    struct graph_exec *exec;
    TRY(exec_of(handle, &exec));
    if (!p) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < exec->count; i++)
        if (exec->nodes[i] == (struct node *)node)
            return set_kernel(&exec->work[i], p, p->func ? (void *)p->func : (void *)p->kern);
    return CUDA_ERROR_INVALID_VALUE;
}

/* An instance gets the nodes of a graph of the same shape; the first form reports failures in two arguments. */
static CUresult update(CUgraphExec handle, CUgraph graph) {
    struct graph_exec *exec;
    struct graph *g;
    TRY(exec_of(handle, &exec));
    TRY(graph_of(graph, &g));
    if (g->count != exec->count) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i]->work.kind != exec->work[i].kind) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    free(exec->work);
    free(exec->nodes);
    free(exec->ids);
    return take_work(exec, g) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult SIM(cuGraphExecUpdate)(CUgraphExec exec, CUgraph graph, CUgraphNode *bad, int *why) {
    if (bad) *bad = NULL;
    if (why) *why = 0;
    return update(exec, graph);
}

CUresult SIM(cuGraphExecUpdate_v2)(CUgraphExec exec, CUgraph graph, void *told) {
    (void)told;
    return update(exec, graph);
}

CUresult SIM(cuGraphUpload)(CUgraphExec handle, CUstream stream) {
    struct graph_exec *exec;
    struct stream *unused;
    TRY(exec_of(handle, &exec));
    return stream_of(stream, &unused);
}

CUresult SIM(cuGraphExecDestroy)(CUgraphExec handle) {
    struct graph_exec *exec;
    TRY(exec_of(handle, &exec));
    free(exec->work);
    free(exec->nodes);
    free(exec->ids);
    object_delete(exec);
    linger();
    return CUDA_SUCCESS;
}
