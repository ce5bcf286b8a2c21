/*
 * How a tool learns what the simulated GPU does: the table that cuGetExportTable returns for OBSERVER_TABLE_ID.
 *
 * The real libcupti gets the driver's inner functions through such tables too, so no name is exported for it. Used by the driver
 * and by ../cupti. Times are in nanoseconds of CLOCK_MONOTONIC; those of work may lie in the future, since work is queued.
 */
#ifndef OBSERVE_H
#define OBSERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "../include/cuda_types.h"

/* A call of the program, between its entry and its return. */
struct observed_call {
    uint32_t number; /* CUPTI's number of the function */
    const char *name;
    CUcontext context;
    uint32_t context_id;
    uint32_t correlation;
    CUresult result;     /* at the return */
    bool seen;           /* the observer's: it passed the entry on */
    uint64_t user;       /* the observer's */
};

/* Numbers of CUpti_ActivityMemoryKind. */
enum memory_kind { MEMORY_UNKNOWN, MEMORY_PAGEABLE, MEMORY_PINNED, MEMORY_DEVICE, MEMORY_ARRAY, MEMORY_MANAGED };
/* Numbers of CUpti_ActivityMemcpyKind. */
enum copy_kind { COPY_HTOD = 1, COPY_DTOH, COPY_HTOA, COPY_ATOH, COPY_ATOA, COPY_ATOD, COPY_DTOA, COPY_DTOD, COPY_HTOH, COPY_PTOP };
/* Numbers of CUpti_ActivitySynchronizationType. */
enum wait_kind { WAIT_EVENT = 1, WAIT_STREAM_FOR_EVENT, WAIT_STREAM, WAIT_CONTEXT };

/* Something that the GPU did, or a wait of the host. */
struct observed_work {
    enum { OBSERVED_KERNEL, OBSERVED_COPY, OBSERVED_FILL, OBSERVED_GRAPH, OBSERVED_WAIT } kind;
    uint64_t start, end;
    uint32_t device, context, stream;
    int priority;
    uint32_t correlation;
    uint32_t graph; /* 0: not of a graph */
    uint64_t node;  /* 0: not of a graph, or a graph as a whole */
    bool is_async;
    union {
        struct {
            const char *name; /* lives as long as the process */
            unsigned grid[3], block[3], shared, registers;
            bool cooperative;
        } kernel;
        struct {
            uint64_t bytes;
            enum copy_kind kind;
            enum memory_kind from, to;
            bool is_peer;
            uint32_t from_device, from_context, to_device, to_context;
        } copy;
        struct {
            uint64_t bytes;
            uint32_t value;
            enum memory_kind to;
        } fill;
        struct {
            enum wait_kind kind;
            uint32_t event; /* OBSERVED_NONE: none */
        } wait;
    };
};
enum { OBSERVED_NONE = -1 }; /* no stream, no event */

/* Called on the thread of the program. `enter` and `leave` concern the functions whose number is known. */
struct observer {
    void (*enter)(struct observed_call *call);
    void (*leave)(struct observed_call *call);
    void (*work)(const struct observed_work *work);
    bool (*changes_graphs)(void); /* whether a graph that is launched now writes to its memory */
};

#define OBSERVER_TABLE_ID "cudasim-observer" /* 16 bytes */
struct observer_table {
    uint64_t size;
    void (*set)(const struct observer *observer); /* NULL: none; its memory must stay */
    void (*end)(void); /* the observer's other memory is gone: graphs that it has changed cannot be launched any more */
};

#endif
