/*
 * scribbler SEED [WRITES [FILL [SECONDS]]]: calls traced_work, and writes WRITES (10 000) words of its own choice into the memory that it shares with its
 * tracer, at places of its own choice. FILL sets all of the memory that is in use to a byte (0 to 255) first. Two threads call traced_work
 * meanwhile. It ends with status 0, whatever it has written: its own probes must not harm it either. It writes nothing if it shares none, and
 * nothing more when the tracer has taken the memory away. It waits SECONDS (0) for the memory of a tracer that comes later.
 */

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is written most: the states and the begin of the maps. */
#define HEAD (256 << 10)

__attribute__((noinline, noclone)) long traced_work(long a, long b) {
    volatile long sum = a;
    for (int i = 0; i < 4; i++) sum += b;
    return sum;
}

static struct { volatile uint64_t *start; uint64_t words; } shared;
static volatile int done;
static uint64_t state;

static uint64_t random_word(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static void find_shared(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps)) {
        uint64_t from, to;
        if (strstr(line, "memfd:cudatrace") && strstr(line, "rw-s") && sscanf(line, "%lx-%lx", &from, &to) == 2)
            shared.start = (void *)from, shared.words = (to - from) / 8;
    }
    if (maps != NULL) fclose(maps);
}

static void *work(void *thread) {
    for (long i = 0; !done; i++) traced_work(i % 300, (long)thread);
    return NULL;
}

static sigjmp_buf gone;

static void fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    uint64_t offset = (uint64_t)info->si_addr - (uint64_t)shared.start;
    if (offset < 8 * shared.words) siglongjmp(gone, 1);
    struct sigaction otherwise = {.sa_handler = SIG_DFL};
    sigaction(signal, &otherwise, NULL);
}

static uint64_t value(uint64_t before) {
    switch (random_word() % 8) {
    case 0: return 0;
    case 1: return ~0ul;
    case 2: return 1ul << random_word() % 64;
    case 3: return before + random_word() % 129 - 64;
    case 4: return random_word() % 4096;
    case 5: return (before & ~0xfffffffful) | (uint32_t)random_word();
    case 6: return shared.start[random_word() % (HEAD / 8)];
    default: return random_word();
    }
}

__attribute__((noinline)) static void scribble(long writes, long fill) {
    uint64_t head = HEAD / 8 < shared.words ? HEAD / 8 : shared.words;
    if (fill >= 0 && shared.words) memset((void *)shared.start, (int)fill, 8 * head);
    for (long i = 0; i < writes && shared.words; i++) {
        uint64_t at = random_word() % (random_word() % 8 ? head : shared.words);
        shared.start[at] = value(shared.start[at]);
        if (i % 64 == 63) usleep(1);
    }
}

int main(int argc, char **argv) {
    long writes = argc > 2 ? atol(argv[2]) : 10000, fill = argc > 3 ? atol(argv[3]) : -1;
    state = atol(argv[1]) * 0x9e3779b97f4a7c15ul | 1;
    for (long i = 0; i < 300; i++) traced_work(i, i);
    find_shared();
    for (long i = 0; i < 100 * (argc > 4 ? atol(argv[4]) : 0) && !shared.words; i++) {
        traced_work(i % 300, 7);
        usleep(10000);
        find_shared();
    }
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    usleep(20000);
    struct sigaction caught = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &caught, NULL);
    if (sigsetjmp(gone, 1) == 0) scribble(writes, fill);
    usleep(150000);
    done = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
