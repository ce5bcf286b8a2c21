// Calls the functions of shapes.c from many threads, signal handlers and forked children, and compares their results with those of the start.
//
// storm THREADS   prints `running`, and ends with its input: then it prints `calls N errors N`. After a line of input no thread is within a
//                 call, and it prints `calls N`: of shape_calls by threads. After the next line it goes on.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

long shape_constant(long), shape_leaf(long), shape_load(long *), shape_branch(long), shape_loop(long), shape_calls(long), shape_tail(long);
long shape_recursive(long), shape_frame(long), shape_switch(long), shape_variadic(int, ...), shape_pointer(long (*)(long), long);
long shape_many(long, long, long, long, long, long, long, long, long), shape_double(double);

enum { RESULTS = 15 };
static long expected[RESULTS], value = 7;
static atomic_ulong calls, errors;
static atomic_bool over, at_rest;
static atomic_long resting;

static void call_all(long *results) {
    long own[RESULTS] = {
        shape_constant(3), shape_leaf(5),  shape_load(&value), shape_branch(9),  shape_branch(2),         shape_loop(4),   shape_calls(6),
        shape_tail(8),     shape_recursive(5), shape_frame(8), shape_switch(5), shape_variadic(3, 1, 2, 3), shape_many(1, 2, 3, 4, 5, 6, 7, 8, 9),
        shape_pointer((long (*)(long))shape_load, (long)&value), shape_double(1.5),
    };
    for (int i = 0; i < RESULTS; i++) results[i] = own[i];
}

static void check(void) {
    long results[RESULTS];
    call_all(results);
    for (int i = 0; i < RESULTS; i++)
        if (results[i] != expected[i]) atomic_fetch_add(&errors, 1);
}

static void pause_us(long us) {
    struct timespec left = {0, us * 1000};
    while (nanosleep(&left, &left)) {}
}

static void handler(int signal) {
    (void)signal;
    if (!atomic_load(&at_rest)) {
        check();
        atomic_fetch_add(&calls, 1);
    }
}

static void rest(void) {
    atomic_fetch_add(&resting, 1);
    while (atomic_load(&at_rest)) pause_us(100);
    atomic_fetch_sub(&resting, 1);
}

static void *run(void *number) {
    long id = (long)number;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    event._sigev_un._tid = syscall(SYS_gettid);
    timer_t timer;
    struct itimerspec period = {{0, 3000000 + id * 100000}, {0, 1000000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &period, 0)) abort();
    while (!atomic_load(&over)) {
        if (atomic_load(&at_rest)) rest();
        for (int i = 0; i < 50; i++) {
            check();
            atomic_fetch_add(&calls, 1);
        }
        // The tracer needs a processor, too.
        if (id) pause_us(200);
    }
    timer_delete(timer);
    return 0;
}

// Children that only fork and call.
static void *fork_often(void *unused) {
    while (!atomic_load(&over)) {
        if (atomic_load(&at_rest)) rest();
        pid_t child = fork();
        if (!child) {
            unsigned long before = errors;
            for (int i = 0; i < 20; i++) check();
            _exit(errors != before);
        }
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status) atomic_fetch_add(&errors, 1);
        pause_us(5000);
    }
    return unused;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 6;
    pthread_t list[65];
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN, &action, 0);
    // The last argument of shape_tail and shape_frame is a part of other results: it is always the same.
    shape_tail(8);
    call_all(expected);
    for (long i = 0; i <= threads; i++)
        if (pthread_create(&list[i], 0, i < threads ? run : fork_often, (void *)i)) abort();
    puts("running");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        atomic_store(&at_rest, !at_rest);
        while (atomic_load(&resting) != (at_rest ? threads + 1 : 0)) pause_us(50);
        if (!at_rest) continue;
        printf("calls %lu\n", calls);
        fflush(stdout);
    }
    atomic_store(&over, 1);
    for (long i = 0; i <= threads; i++) pthread_join(list[i], 0);
    printf("calls %lu errors %lu\n", calls, errors);
    return errors != 0;
}
