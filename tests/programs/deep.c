/* A recursion of 60 000 calls, none of which returns before the last one has begun. */
#include <pthread.h>
#include <stdio.h>

__attribute__((noinline)) long traced_deep(long depth) {
    __asm__ volatile("" : : : "rbx", "r12");
    return depth > 1 ? traced_deep(depth - 1) + 1 : 1;
}

static void *run(void *unused) {
    printf("count traced_deep %ld\n", traced_deep(60000));
    return unused;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 20);
    return pthread_create(&thread, &attributes, run, 0) || pthread_join(thread, 0);
}
