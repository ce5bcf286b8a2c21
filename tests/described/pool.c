#include "pool.h"
#include <stdio.h>

struct pool { int size; struct pool *up; char label[12]; };
static struct pool top = { 100, 0, "top" }, pool = { 0, &top, "mine" };

__attribute__((noipa)) struct pool *pool_new(int size) {
    pool.size = size;
    return &pool;
}

__attribute__((noipa)) int pool_use(struct pool *p) {
    printf("pool %d %s %d\n", p->size, p->label, p->up->size);
    return p->size;
}
