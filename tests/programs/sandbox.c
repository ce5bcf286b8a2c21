// Calls `work` ten times, enters a sandbox that kills for system calls of tracers, and does the same there: ten calls of its own, ten
// in another thread, ten in a child. `around` is the call in which it enters the sandbox. Prints `done N` at the end.
//
// sandbox prctl | seccomp | tsync | harmless [waits]   `harmless`: kills for no call that probes make; `waits`: reads a line after
//                                                      `ready`, `inside` of `around`, and `sandboxed`
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static long calls;
static const char *volatile text;

// Begin with a push.
__attribute__((noinline)) const char *work(const char *address) {
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    usleep(0);
    return address;
}

static void *run(void *unused) {
    for (int i = 0; i < 10; i++) work(text);
    return unused;
}

static void in_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
}

static int in_child(void) {
    int status = 1;
    if (fork() == 0) run(NULL), _exit(0);
    wait(&status);
    return status;
}

static int enter(const char *mode) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        KILL(__NR_memfd_create), KILL(__NR_openat), KILL(__NR_socketpair), KILL(__NR_recvmsg), KILL(__NR_munmap),
        // Not in the harmless sandbox.
        KILL(__NR_process_vm_readv), KILL(__NR_getpid), KILL(__NR_gettid), KILL(__NR_getuid), KILL(__NR_getgid), KILL(__NR_sched_yield),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (!strcmp(mode, "harmless")) filter[11] = filter[program.len - 1];
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;
    if (!strcmp(mode, "seccomp")) return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    if (!strcmp(mode, "tsync"))
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int waits;

static void wait_after(const char *line) {
    puts(line);
    if (waits) getchar();
}

__attribute__((noinline)) const char *around(const char *mode) {
    wait_after("inside");
    return enter(mode) ? NULL : mode;
}

static volatile int ends;

static void *run_until_end(void *unused) {
    while (!ends) {
        work(text);
        __atomic_fetch_sub(&calls, 1, __ATOMIC_RELAXED);
    }
    return unused;
}

int main(int argc, char **argv) {
    waits = argc > 2;
    pthread_t busy[2];
    // On a page of its own: it is read by a system call.
    text = strcpy(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), "text");
    setlinebuf(stdout);
    wait_after("ready");
    run(NULL);
    // They are in the sandbox with `tsync` only.
    for (int i = 0; i < 2; i++) pthread_create(&busy[i], NULL, run_until_end, NULL);
    if (argc < 2 || !around(argv[1])) return 2;
    run(NULL);
    in_thread();
    if (in_child()) return 3;
    ends = 1;
    for (int i = 0; i < 2; i++) pthread_join(busy[i], NULL);
    wait_after("sandboxed");
    printf("done %ld\n", calls);
    return 0;
}
