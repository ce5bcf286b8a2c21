/*
 * A library with debug information, for late_dlopen: `late_call` calls `late_in_thread` on a thread that has a name of its own.
 */
#define _GNU_SOURCE
#include <pthread.h>

__attribute__((noinline)) void *late_in_thread(void *room) {
    __asm__ volatile("" ::: "memory");
    return room;
}

/* In C++'s mangling the letter is a type. */
int f(void *room) {
    return late_in_thread(room) == NULL;
}

static void *thread(void *room) {
    pthread_setname_np(pthread_self(), "of_the_thread");
    return late_in_thread(room);
}

int late_call(void *room) {
    pthread_t made;
    return pthread_create(&made, NULL, thread, room) || pthread_join(made, NULL);
}
