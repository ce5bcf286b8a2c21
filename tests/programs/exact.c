// Calls a function a known number of times in one of the ways that processes and threads come and go. Prints nothing.
//
// exact MODE   the argument of each call is the mode's number, below
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS, FORK, VFORK, CLONE, EXEC, LEAVE, JUMP, SIGNALS, RECURSION, THREAD_ENDS, DAEMON, LEADER };

__attribute__((noinline)) int traced_call(int mode, int depth) {
    volatile int rest = depth;
    return rest > 0 ? traced_call(mode, depth - 1) + 1 : mode;
}

static jmp_buf target;

__attribute__((noinline)) void traced_leave(int mode) {
    if (mode == JUMP) longjmp(target, 1);
    if (mode == THREAD_ENDS) pthread_exit(0);
    _exit(0);
}

static void calls(int mode, int count) {
    while (count-- > 0) traced_call(mode, 0);
}

static void *thread(void *mode) {
    calls((int)(long)mode, 1000);
    return 0;
}

static void *thread_leaves(void *mode) {
    traced_leave((int)(long)mode);
    return 0;
}

static void *outlives_the_leader(void *mode) {
    usleep(20000);
    calls((int)(long)mode, 100);
    exit(0);
}

static int process(void *mode) {
    calls((int)(long)mode, 10);
    _exit(0);
}

static void handler(int signal) {
    (void)signal;
    traced_call(SIGNALS, 0);
}

static void threads(int mode, int count, void *(*run)(void *)) {
    pthread_t all[64];
    for (int i = 0; i < count; i++) pthread_create(&all[i], 0, run, (void *)(long)mode);
    for (int i = 0; i < count; i++) pthread_join(all[i], 0);
}

static void children(int mode, int count) {
    for (int i = 0; i < count; i++)
        if (fork() == 0) mode == LEAVE ? traced_leave(mode) : calls(mode, 100), _exit(0);
    while (wait(0) > 0) {
    }
}

static void vforks(int mode) {
    for (int i = 0; i < 20; i++) {
        pid_t child = vfork();
        if (child == 0) traced_call(mode, 0), _exit(0);
        waitpid(child, 0, 0);
    }
}

static void clones(int mode) {
    for (int i = 0; i < 10; i++) {
        char *stack = malloc(1 << 16);
        pid_t child = clone(process, stack + (1 << 16), CLONE_VM | SIGCHLD, (void *)(long)mode);
        waitpid(child, 0, 0);
    }
}

static void exec_again(int mode, char **argv) {
    int left = argv[2] ? atoi(argv[2]) : 10;
    char number[16], mode_text[16];
    traced_call(mode, 0);
    snprintf(number, sizeof number, "%d", left - 1);
    snprintf(mode_text, sizeof mode_text, "%d", mode);
    if (left > 1) execl("/proc/self/exe", argv[0], mode_text, number, (char *)0);
}

static void detached(int mode) {
    int end[2];
    if (pipe(end)) return;
    if (fork() == 0) {
        setsid();
        if (fork() == 0) calls(mode, 100);
        _exit(0);
    }
    close(end[1]);
    while (read(end[0], &mode, 1) > 0) {
    }
    wait(0);
}

int main(int argc, char **argv) {
    int mode = argc > 1 ? atoi(argv[1]) : -1;
    switch (mode) {
    case THREADS: threads(mode, 64, thread); break;
    case FORK: case LEAVE: children(mode, 20); break;
    case VFORK: vforks(mode); break;
    case CLONE: clones(mode); break;
    case EXEC: exec_again(mode, argv); break;
    case JUMP:
        for (volatile int i = 0; i < 100; i++)
            if (!setjmp(target)) traced_leave(mode);
        break;
    case SIGNALS:
        signal(SIGUSR1, handler);
        for (int i = 0; i < 100; i++) traced_call(mode, 0), raise(SIGUSR1);
        break;
    case RECURSION:
        for (int i = 0; i < 10; i++) traced_call(mode, 59);
        break;
    case THREAD_ENDS: threads(mode, 20, thread_leaves); break;
    case DAEMON: detached(mode); break;
    case LEADER: {
        pthread_t other;
        pthread_create(&other, 0, outlives_the_leader, (void *)(long)mode);
        pthread_exit(0);
    }
    default: return 2;
    }
    return 0;
}
