/*
 * Calls a trivial function of libhammer.so from several threads, and prints the time per call: for measuring what a probe
 * costs, and for checking that not one hit is lost. `getpgid` is a cheap system call instead, for probes in the kernel.
 *
 *     hammer --function push --threads 8 --calls 1000000
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS(F) F(push) F(nop5) F(endbr64) F(sub) F(mov)
#define PROTOTYPE(name) uint64_t hammer_##name(uint64_t value);
FUNCTIONS(PROTOTYPE)

typedef uint64_t (*function)(uint64_t);

static uint64_t hammer_getpgid(uint64_t value) {
    (void)getpgid(0);
    return value;
}

static const struct {
    const char *name;
    function call;
} TABLE[] = {
#define ENTRY(name) {#name, hammer_##name},
    FUNCTIONS(ENTRY) ENTRY(getpgid)
};

static function chosen;
static const char *chosen_name = "push";
static uint64_t threads = 1, calls = 1000000;
static pthread_barrier_t barrier;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *hammer(void *number) {
    uint64_t wrong = 0;
    (void)number;
    pthread_barrier_wait(&barrier);
    for (uint64_t i = 0; i < calls; i++) wrong += chosen(i) != i;
    return (void *)(uintptr_t)wrong;
}

/* What a run took: by the clock, and of the processors. */
struct took {
    uint64_t wall_ns, cpu_ns;
};

/* The sum of wrong results: always 0, unless a probe disturbs the function. */
static uint64_t run(struct took *took) {
    pthread_t *list = calloc(threads, sizeof *list);
    uint64_t wrong = 0;
    if (!list) abort();
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    for (uint64_t i = 0; i < threads; i++)
        if (pthread_create(&list[i], NULL, hammer, NULL)) abort();
    uint64_t start = clock_ns(CLOCK_MONOTONIC), cpu_start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    pthread_barrier_wait(&barrier);
    for (uint64_t i = 0; i < threads; i++) {
        void *result;
        pthread_join(list[i], &result);
        wrong += (uint64_t)(uintptr_t)result;
    }
    took->wall_ns = clock_ns(CLOCK_MONOTONIC) - start;
    took->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
    free(list);
    return wrong;
}

static void usage(const char *program) {
    fprintf(stderr, "usage: %s [--function push|nop5|endbr64|sub|mov|getpgid] [--threads N] [--calls N]\n", program);
    exit(2);
}

static void parse(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--function")) chosen_name = argv[i + 1];
        else if (!strcmp(argv[i], "--threads")) threads = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--calls")) calls = strtoull(argv[i + 1], NULL, 0);
        else usage(argv[0]);
    }
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++)
        if (!strcmp(TABLE[i].name, chosen_name)) chosen = TABLE[i].call;
    if (argc % 2 == 0 || !chosen || !threads || threads > 4096 || !calls) usage(argv[0]);
}

int main(int argc, char **argv) {
    struct took took;
    parse(argc, argv);
    uint64_t wrong = run(&took);
    printf("== counts ==\npid %d\ncount hammer_%s %llu\nwrong %llu\n", (int)getpid(), chosen_name,
           (unsigned long long)(threads * calls), (unsigned long long)wrong);
    /* Wall time over the calls of one thread: with more threads than processors it holds their waiting too. */
    printf("ns_per_call %.2f\n", (double)took.wall_ns / (double)calls);
    /* Processor time over all calls, which other programs' load does not lengthen. */
    printf("cpu_ns_per_call %.2f\n== end ==\n", (double)took.cpu_ns / (double)(threads * calls));
    return wrong ? 1 : 0;
}
