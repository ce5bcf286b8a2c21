/*
 * leader_exit [THREADS [CALLS]]: the main thread ends first; each of THREADS (2) threads then calls traced_work CALLS times (100). The
 * process ends with the last of them.
 */
#include <pthread.h>
#include <stdint.h>

#include "cases.h"

#define LATER_US 50000

TRACED long traced_work(long number) {
    return number + 1;
}

static void *thread_main(void *calls) {
    long sum = 0;
    sleep_us(LATER_US);
    for (long i = 0; i < (long)(intptr_t)calls; i++) sum += traced_work(i);
    return (void *)(intptr_t)sum;
}

int main(int argc, char **argv) {
    long threads = number(argc, argv, 1, 2), calls = number(argc, argv, 2, 100);
    begin_counts();
    printf("count traced_work %ld\n", threads * calls);
    end_counts();
    fflush(stdout);
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, thread_main, (void *)(intptr_t)calls)) abort();
    }
    pthread_exit(NULL);
}
