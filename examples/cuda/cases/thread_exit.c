/*
 * thread_exit [EXITING [RETURNING [SLEEP_US]]]: EXITING threads (10) end by pthread_exit inside traced_work, which so never returns;
 * RETURNING threads (10) call it and return.
 */
#include <pthread.h>

#include "cases.h"

static long sleep_for_us = 1000;

TRACED long traced_work(int leave, long us) {
    sleep_us(us);
    if (leave) pthread_exit(NULL);
    return us;
}

static void *thread_main(void *leave) {
    traced_work(leave != NULL, sleep_for_us);
    return (void *)1;
}

/* Runs one thread to its end: did it return? */
static int run(int leave) {
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, NULL, thread_main, leave ? &thread : NULL)) abort();
    pthread_join(thread, &result);
    return result != NULL;
}

int main(int argc, char **argv) {
    long exiting = number(argc, argv, 1, 10), returning = number(argc, argv, 2, 10), returned = 0;
    sleep_for_us = number(argc, argv, 3, sleep_for_us);
    for (long i = 0; i < exiting; i++) returned += run(1);
    for (long i = 0; i < returning; i++) returned += run(0);
    begin_counts();
    printf("count traced_work %ld\nreturns traced_work %ld\nunpaired traced_work %ld\nleast_us traced_work %ld\n",
           exiting + returning, returned, exiting, sleep_for_us);
    end_counts();
    return returned == returning ? 0 : 1;
}
