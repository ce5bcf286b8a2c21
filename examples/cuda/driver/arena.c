/*
 * A range of addresses that is handed out in pieces, by the buddy method.
 *
 * The address space is far larger than the capacity and is committed by touching it, so running out means that the
 * capacity is used up, as on a device, and hardly ever fragmentation. Block sizes are powers of two, but only the bytes
 * asked for (in units) are charged. Because every block is aligned to its size, a pointer into the middle of one finds
 * its head by clearing low bits: no tree is needed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "sim.h"

enum { UNIT = 512, FREE = 0x40, LIVE = 0x80, ORDER = 0x3f, MAX_ORDERS = 40 };
enum { GIVE_BACK = 1 << 20 }; /* freed blocks from this size on return their pages to the system */
static const uint32_t NONE = UINT32_MAX;

struct link {
    uint32_t next, prev; /* units, while the block is free */
};
struct arena {
    pthread_mutex_t lock;
    char *base;
    uint8_t *state; /* by unit: 0 inside a block, else FREE or LIVE and the order of the block that starts here */
    uint8_t *tag;
    union {
        struct link link;
        uint64_t bytes; /* as asked for, while it is live */
    } *info;
    uint32_t first_free[MAX_ORDERS];
    unsigned top;
    uint64_t capacity, used;
};

static void *reserve(uint64_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) abort(); /* nothing in a simulated driver works without its address space */
    return at;
}

/* Reserves `bytes` aligned to 2 MiB, as device addresses are. */
static char *reserve_aligned(uint64_t bytes) {
    const uintptr_t align = 2 << 20;
    uintptr_t at = (uintptr_t)reserve(bytes + align);
    return (char *)((at + align - 1) & ~(align - 1));
}

static void push_free(struct arena *a, uint32_t unit, unsigned order) {
    a->state[unit] = (uint8_t)(FREE | order);
    a->info[unit].link = (struct link){a->first_free[order], NONE};
    if (a->first_free[order] != NONE) a->info[a->first_free[order]].link.prev = unit;
    a->first_free[order] = unit;
}

static void take_free(struct arena *a, uint32_t unit, unsigned order) {
    struct link link = a->info[unit].link;
    if (link.prev == NONE) a->first_free[order] = link.next;
    else a->info[link.prev].link.next = link.next;
    if (link.next != NONE) a->info[link.next].link.prev = link.prev;
    a->state[unit] = 0;
}

struct arena *arena_new(uint64_t address_space, uint64_t capacity) {
    struct arena *a = calloc(1, sizeof *a);
    if (!a) abort();
    uint64_t units = address_space / UNIT;
    pthread_mutex_init(&a->lock, NULL);
    a->base = reserve_aligned(address_space);
    a->state = reserve(units);
    a->tag = reserve(units);
    a->info = reserve(units * sizeof *a->info);
    a->capacity = capacity;
    while ((1ull << (a->top + 1)) <= units) a->top++;
    for (unsigned order = 0; order < MAX_ORDERS; order++) a->first_free[order] = NONE;
    push_free(a, 0, a->top);
    return a;
}

static uint64_t charge(uint64_t bytes) {
    return (bytes + UNIT - 1) / UNIT * UNIT;
}

/* A free block of exactly this order, splitting a larger one if need be; NONE when there is none. */
static uint32_t split_off(struct arena *a, unsigned order) {
    unsigned have = order;
    while (have <= a->top && a->first_free[have] == NONE) have++;
    if (have > a->top) return NONE;
    uint32_t unit = a->first_free[have];
    take_free(a, unit, have);
    while (have > order) {
        have--;
        push_free(a, unit + (1u << have), have);
    }
    return unit;
}

void *arena_alloc(struct arena *a, uint64_t bytes, unsigned tag) {
    unsigned order = 0;
    if (bytes > a->capacity) return NULL;
    while (((uint64_t)UNIT << order) < bytes) order++;
    void *out = NULL;
    pthread_mutex_lock(&a->lock);
    uint32_t unit = a->used + charge(bytes) <= a->capacity ? split_off(a, order) : NONE;
    if (unit != NONE) {
        a->used += charge(bytes);
        a->state[unit] = (uint8_t)(LIVE | order);
        a->tag[unit] = (uint8_t)tag;
        a->info[unit].bytes = bytes;
        out = a->base + (uint64_t)unit * UNIT;
    }
    pthread_mutex_unlock(&a->lock);
    return out;
}

/* Joins the block with its free buddies and files what comes of it. */
static void give_back(struct arena *a, uint32_t unit, unsigned order) {
    while (order < a->top) {
        uint32_t buddy = unit ^ (1u << order);
        if (a->state[buddy] != (FREE | order)) break;
        take_free(a, buddy, order);
        unit &= buddy;
        order++;
    }
    push_free(a, unit, order);
}

static bool unit_of(const struct arena *a, const void *pointer, uint32_t *unit) {
    uint64_t offset = (uint64_t)((const char *)pointer - a->base);
    *unit = (uint32_t)(offset / UNIT);
    return (const char *)pointer >= a->base && offset < ((uint64_t)UNIT << a->top);
}

static void release(struct arena *a, uint32_t unit) {
    unsigned order = a->state[unit] & ORDER;
    uint64_t bytes = a->info[unit].bytes;
    a->used -= charge(bytes);
    if (bytes >= GIVE_BACK) madvise(a->base + (uint64_t)unit * UNIT, bytes, MADV_DONTNEED);
    a->state[unit] = 0;
    give_back(a, unit, order);
}

bool arena_free(struct arena *a, const void *start, int tag) {
    uint32_t unit;
    if (!unit_of(a, start, &unit) || ((const char *)start - a->base) % UNIT) return false;
    pthread_mutex_lock(&a->lock);
    bool live = (a->state[unit] & LIVE) && (tag < 0 || a->tag[unit] == tag);
    if (live) release(a, unit);
    pthread_mutex_unlock(&a->lock);
    return live;
}

/* The head of the live block that covers `unit`, or NONE. */
static uint32_t head_of(const struct arena *a, uint32_t unit) {
    for (unsigned order = 0; order <= a->top; order++) {
        uint32_t head = unit >> order << order;
        if (a->state[head]) return a->state[head] & LIVE && (a->state[head] & ORDER) >= order ? head : NONE;
    }
    return NONE;
}

bool arena_find(struct arena *a, const void *inside, void **start, uint64_t *bytes, unsigned *tag) {
    uint32_t unit;
    if (!unit_of(a, inside, &unit)) return false;
    pthread_mutex_lock(&a->lock);
    uint32_t head = head_of(a, unit);
    char *from = a->base + (uint64_t)head * UNIT;
    bool found = head != NONE && (const char *)inside < from + a->info[head].bytes;
    if (found) {
        *start = from;
        *bytes = a->info[head].bytes;
        *tag = a->tag[head];
    }
    pthread_mutex_unlock(&a->lock);
    return found;
}

void arena_room(struct arena *a, uint64_t *free_bytes, uint64_t *capacity) {
    pthread_mutex_lock(&a->lock);
    *free_bytes = a->capacity - a->used;
    *capacity = a->capacity;
    pthread_mutex_unlock(&a->lock);
}

/* Walks block by block: each header has the distance to the next block. */
void arena_reset(struct arena *a, int keep, void (*before)(void *start, uint64_t bytes, unsigned tag)) {
    pthread_mutex_lock(&a->lock);
    uint64_t units = 1ull << a->top;
    for (uint64_t unit = 0; unit < units;) {
        uint64_t next = unit + (1ull << (a->state[unit] & ORDER));
        if ((a->state[unit] & LIVE) && a->tag[unit] != keep) {
            before(a->base + unit * UNIT, a->info[unit].bytes, a->tag[unit]);
            release(a, (uint32_t)unit);
            next = 0; /* its buddies may have joined: begin again with what is now the first block */
        }
        unit = next;
    }
    pthread_mutex_unlock(&a->lock);
}
