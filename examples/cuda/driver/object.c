/*
 * Handles: every object of the driver lives in one table of equal slots, so that any number a program passes as a handle
 * can be checked to be ours, live and of the right kind before it is dereferenced. Slots are never unmapped.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

enum { SLOT = 512, SLOTS = 1 << 20 };
_Static_assert(sizeof(struct context) <= SLOT, "the largest object fits a slot");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *table;
static uint32_t used, serial;
static struct object *recycled; /* chained through `name` */

static char *table_map(void) {
    void *at = mmap(NULL, (size_t)SLOT * SLOTS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static struct object *slot_take(void) {
    struct object *slot = recycled;
    if (slot) {
        recycled = (struct object *)(uintptr_t)slot->name;
        return slot;
    }
    if (!table) table = table_map();
    return table && used < SLOTS ? (struct object *)(table + (size_t)SLOT * used++) : NULL;
}

/* NULL when the table is full: the caller answers CUDA_ERROR_OUT_OF_MEMORY. */
void *object_new(enum kind kind) {
    pthread_mutex_lock(&lock);
    struct object *slot = slot_take();
    if (slot) {
        memset(slot, 0, SLOT);
        slot->serial = ++serial;
        slot->kind = kind;
    }
    pthread_mutex_unlock(&lock);
    return slot;
}

bool object_is(const void *handle, enum kind kind) {
    size_t offset = (size_t)((const char *)handle - table);
    if (!table || (const char *)handle < table || offset >= (size_t)SLOT * SLOTS || offset % SLOT) return false;
    return ((const struct object *)handle)->kind == (uint32_t)kind;
}

void object_delete(void *handle) {
    struct object *object = handle;
    pthread_mutex_lock(&lock);
    object->kind = 0;
    object->name = (const char *)recycled;
    recycled = object;
    pthread_mutex_unlock(&lock);
}

struct word {
    struct word *next;
    char text[];
};

const char *intern(const char *text, size_t length) {
    static struct word *words;
    pthread_mutex_lock(&lock);
    struct word *word = words;
    while (word && (strncmp(word->text, text, length) || word->text[length])) word = word->next;
    if (!word && (word = malloc(sizeof *word + length + 1))) {
        memcpy(word->text, text, length);
        word->text[length] = 0;
        word->next = words;
        words = word;
    }
    pthread_mutex_unlock(&lock);
    return word ? word->text : "";
}
