/*
 * A PyTorch for tests: the functions and structs of PyTorch 2.0 and later by which tools observe operators, and a network whose layers launch
 * kernels. Linear layers and activations in the forward pass; the backward pass runs in a thread of its own, as in PyTorch.
 *
 *     torch_layer()      aten::linear { aten::t, aten::addmm }, aten::relu     kernels: addmm, relu
 *     torch_backward()   ReluBackward0 { aten::threshold_backward }, AddmmBackward0 { aten::mm twice }, TBackward0, AccumulateGrad { aten::add_ }
 *     torch_step()       Optimizer.step#SGD.step { aten::_foreach_add_ }
 *
 * An operator has the number of the function of the backward pass that it makes first, as in PyTorch: aten::linear and aten::t have that of
 * TBackward0.
 */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../include/cuda_driver.h"
#include "torch.h"

#define PUBLIC __attribute__((visibility("default")))

/* ---- what tools use: the names are those that C++ gives to functions of `at` ---- */

enum scope { FUNCTION, BACKWARD_FUNCTION, USER_SCOPE = 7, SCOPES = 10 };

struct record_function;
typedef void **(*start_callback)(void **context, const struct record_function *);
typedef void (*end_callback)(const struct record_function *, void *context);

struct callback {
    start_callback start;
    end_callback end;
    double probability;
    unsigned char scopes[SCOPES], needs[3];
};

enum { MOST_CALLBACKS = 4 };

struct record_function {
    const void *virtual_functions;
    struct {
        void *begin;
        uint32_t size, capacity;
        struct { start_callback start; end_callback end; } pairs[MOST_CALLBACKS];
    } callbacks;
    uint64_t thread;
    unsigned char scope, needs[3];
    uint64_t was_called;
    uint64_t contexts[6];
    uint64_t name[5]; /* the first word is the address of the text */
    int64_t sequence;
    uint64_t inputs[2], named_inputs[7], outputs[3];
    uint64_t forward_thread;
};

_Static_assert(sizeof(struct callback) == 40, "as in PyTorch");
_Static_assert(offsetof(struct record_function, thread) == 88 && offsetof(struct record_function, scope) == 96, "as in PyTorch");
_Static_assert(offsetof(struct record_function, sequence) == 200 && offsetof(struct record_function, forward_thread) == 304, "as in PyTorch");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { uint64_t handle; struct callback callback; } registered[MOST_CALLBACKS];
static uint64_t last_handle, last_thread;
static __thread uint64_t this_thread;
static __thread int64_t next_number;

PUBLIC uint64_t add_callback(struct callback callback) __asm__("_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
uint64_t add_callback(struct callback callback) {
    uint64_t handle = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_CALLBACKS && !handle; i++) {
        if (registered[i].handle) continue;
        registered[i].callback = callback;
        registered[i].handle = handle = ++last_handle;
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

PUBLIC void remove_callback(uint64_t handle) __asm__("_ZN2at14removeCallbackEm");
void remove_callback(uint64_t handle) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_CALLBACKS; i++)
        if (registered[i].handle == handle) registered[i].handle = 0;
    pthread_mutex_unlock(&lock);
}

PUBLIC const char *name_of(const struct record_function *function) __asm__("_ZNK2at14RecordFunction4nameEv");
const char *name_of(const struct record_function *function) {
    return (const char *)function->name[0];
}

PUBLIC int64_t peek_number(void) __asm__("_ZN2at15sequence_number4peekEv");
int64_t peek_number(void) {
    return next_number;
}

/* Tools know PyTorch 2.0 by it. */
PUBLIC void step_callbacks(void) __asm__("_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE");
void step_callbacks(void) {}

PUBLIC int torch_observers(void) {
    int count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_CALLBACKS; i++) count += registered[i].handle != 0;
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- operators ---- */

enum { NO_NUMBER = -1 };

static void begin(struct record_function *function, enum scope scope, const char *name, int64_t number, uint64_t forward_thread) {
    memset(function, 0, sizeof *function);
    if (!this_thread) this_thread = __atomic_add_fetch(&last_thread, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_CALLBACKS; i++) {
        const struct callback *callback = &registered[i].callback;
        if (!registered[i].handle || !callback->scopes[scope]) continue;
        uint32_t at = function->callbacks.size++;
        function->callbacks.pairs[at].start = callback->start;
        function->callbacks.pairs[at].end = callback->end;
    }
    pthread_mutex_unlock(&lock);
    function->thread = this_thread;
    function->scope = (unsigned char)scope;
    function->name[0] = (uint64_t)(uintptr_t)name;
    function->sequence = number;
    function->forward_thread = forward_thread;
    for (uint32_t i = 0; i < function->callbacks.size; i++) {
        void *context = (void *)1;
        if (function->callbacks.pairs[i].start(&context, function) != &context || context) abort();
    }
    function->was_called = 1;
}

static void end(struct record_function *function) {
    for (uint32_t i = 0; i < function->callbacks.size; i++) function->callbacks.pairs[i].end(function, NULL);
}

#define OPERATOR(scope, name, number, thread)                                                                     \
    for (struct record_function f, *once = (begin(&f, scope, name, number, thread), &f); once; end(&f), once = NULL)
#define FORWARD(name) OPERATOR(FUNCTION, name, next_number, 0)
#define INNER(name) OPERATOR(FUNCTION, name, NO_NUMBER, 0)

static CUcontext context;
static CUfunction kernel;

static void launch(void) {
    static __thread int has_context;
    if (kernel && !has_context++ && cuCtxSetCurrent(context)) abort();
    if (kernel && cuLaunchKernel(kernel, 1 << 8, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL)) abort();
}

PUBLIC void torch_open(void) {
    CUmodule module;
    static const char *const PTX = ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry _Z4workv() { ret; }\n";
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuModuleLoadData(&module, PTX) ||
        cuModuleGetFunction(&kernel, module, "_Z4workv"))
        abort();
}

PUBLIC void torch_close(void) {
    if (kernel && cuCtxSynchronize()) abort();
}

/* ---- the network ---- */

/* A function of the backward pass, which an operator makes. */
struct node {
    const char *name, *evaluation, *operator;
    int64_t number;
    uint64_t thread;
    int launches;
};
enum { MOST_NODES = 4096 };
static struct node nodes[MOST_NODES];
static int node_count;

#define NODE(name, operator, launches) make((struct node){name, "autograd::engine::evaluate_function: " name, operator, 0, 0, launches})

static void make(struct node node) {
    if (node_count == MOST_NODES) abort();
    node.number = next_number++;
    node.thread = this_thread;
    nodes[node_count++] = node;
}

PUBLIC void torch_layer(void) {
    FORWARD("aten::linear") {
        FORWARD("aten::t") {
            NODE("TBackward0", "aten::t", 0);
            INNER("aten::transpose") {}
        }
        FORWARD("aten::addmm") {
            NODE("AddmmBackward0", "aten::mm", 2);
            launch();
        }
    }
    FORWARD("aten::relu") {
        NODE("ReluBackward0", "aten::threshold_backward", 1);
        INNER("aten::clamp_min") launch();
    }
}

static void *run_backward(void *unused) {
    (void)unused;
    while (node_count > 0) {
        const struct node *node = &nodes[--node_count];
        INNER(node->evaluation) OPERATOR(BACKWARD_FUNCTION, node->name, node->number, node->thread)
            for (int i = 0; i < node->launches; i++) INNER(node->operator) launch();
        if (strcmp(node->name, "TBackward0")) continue;
        INNER("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad")
            OPERATOR(BACKWARD_FUNCTION, "torch::autograd::AccumulateGrad", NO_NUMBER, node->thread)
                INNER("aten::add_") launch();
    }
    return NULL;
}

PUBLIC void torch_backward(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_backward, NULL) || pthread_join(thread, NULL)) abort();
}

PUBLIC void torch_step(void) {
    OPERATOR(USER_SCOPE, "Optimizer.step#SGD.step", NO_NUMBER, 0) INNER("aten::_foreach_add_") launch();
}

PUBLIC void torch_deep(int levels) {
    if (levels == 0) return launch();
    INNER("aten::deep") torch_deep(levels - 1);
}
