/*
 * watched [COUNT [SECONDS]]: writes 1 to COUNT (5) to the eight bytes at 0x10000000, and reads each: in the main thread, in another
 * thread, and in a child. Then it sleeps.
 */
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "cases.h"

#define ADDRESS 0x10000000ul

static volatile uint64_t *const watched = (volatile uint64_t *)ADDRESS;

static void *write_numbers(void *count) {
    for (uint64_t i = 1; i <= (uint64_t)(uintptr_t)count; i++) {
        *watched = i;
        if (*watched != i) abort();
    }
    return NULL;
}

int main(int argc, char **argv) {
    void *count = (void *)(uintptr_t)number(argc, argv, 1, 5);
    int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    if (mmap((void *)ADDRESS, 4096, PROT_READ | PROT_WRITE, kind, -1, 0) != (void *)ADDRESS) abort();
    write_numbers(count);
    pthread_t thread;
    if (pthread_create(&thread, NULL, write_numbers, count) || pthread_join(thread, NULL)) abort();
    pid_t child = fork();
    if (!child) {
        write_numbers(count);
        _exit(0);
    }
    if (waitpid(child, NULL, 0) != child) abort();
    sleep_us(number(argc, argv, 2, 0) * 1000000);
    return 0;
}
