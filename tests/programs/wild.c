// Calls functions with addresses that cannot be read, and with stacks that cannot be walked, also in a sandbox.
//
// wild plain | kill | errno | thread | strict | dispatch   the sandbox that it enters; prints `ready`, calls for each line of input,
//                                                          then prints `done N`
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static long calls;

static __attribute__((noinline)) void count(void) { __asm__ volatile("incq %0" : "+m"(calls)); }

// Begins with a push.
__attribute__((noinline)) long wild(const void *address, long size) {
    count();
    __asm__ volatile("" : : "r"(address) : "memory");
    return size;
}

__attribute__((noinline)) long deep(const void *address, long size) { return wild(address, size) + 1; }

static const char *addresses[16];

static char *map(size_t pages) {
    return mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void prepare(void) {
    char *pages = map(3);
    memset(pages, 'x', PAGE);
    munmap(pages + PAGE, PAGE);
    mprotect(pages + 2 * PAGE, PAGE, PROT_NONE);
    int file = memfd_create("truncated", 0);
    ftruncate(file, 2 * PAGE);
    char *truncated = mmap(0, 2 * PAGE, PROT_READ, MAP_SHARED, file, 0);
    ftruncate(file, PAGE);
    const char *all[] = {
        0, (char *)1, (char *)-1, (char *)-8, (char *)(1ul << 47), (char *)(1ul << 63), (char *)0xffffffff80000000ul,
        (char *)0xffffffffff600000ul, pages + PAGE - 3, pages + PAGE, pages + 2 * PAGE, truncated + PAGE, truncated + PAGE - 1,
        (char *)&all + (1 << 20), "text",
    };
    memcpy(addresses, all, sizeof all);
}

// Calls with a stack that ends directly above, and a frame pointer that leads nowhere.
static long on_small_stack(const void *address) {
    char *top = map(8) + 8 * PAGE;
    munmap(top - 8 * PAGE, 4 * PAGE);
    long result;
    __asm__ volatile("mov %%rsp, %%r12\n mov %%rbp, %%r13\n mov %[top], %%rsp\n mov $0x123456789abcdef0, %%rbp\n"
                     "call wild\n mov %%r12, %%rsp\n mov %%r13, %%rbp"
                     : "=a"(result), "+D"(address)
                     : [top] "r"(top), "S"(5l)
                     : "r12", "r13", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
    munmap(top - 4 * PAGE, 4 * PAGE);
    return result;
}

// System calls raise SIGSYS, as long as `blocks` is not 0.
static void dispatch(void) {
    static volatile char blocks = 0;
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &blocks)) abort();
}

static void enter(const char *mode) {
    unsigned other = !strcmp(mode, "errno") ? SECCOMP_RET_ERRNO | 1 : SECCOMP_RET_KILL_PROCESS;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(__NR_read), ALLOW(__NR_write), ALLOW(__NR_exit_group), ALLOW(__NR_exit), ALLOW(__NR_mmap), ALLOW(__NR_munmap),
        ALLOW(__NR_rt_sigreturn), ALLOW(__NR_restart_syscall), ALLOW(__NR_fstat), ALLOW(__NR_newfstatat), ALLOW(__NR_futex),
        BPF_STMT(BPF_RET | BPF_K, other),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int result = !strcmp(mode, "strict") ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)
                                         : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (result) abort();
}

static void finish(int is_strict) {
    char text[32];
    int length = 0;
    for (long rest = calls; rest; rest /= 10) text[sizeof text - ++length] = '0' + rest % 10;
    (void)!write(1, "done ", 5);
    (void)!write(1, text + sizeof text - length, length);
    (void)!write(1, "\n", 1);
    syscall(is_strict ? __NR_exit : __NR_exit_group, 0);
}

static void run(int is_strict) {
    char line[64];
    while (read(0, line, sizeof line) > 0) {
        for (int i = 0; i < 15; i++) wild(addresses[i], 5), deep(addresses[i], 70000);
        // Strict mode permits no mmap.
        for (int i = 0; i < 15 && !is_strict; i++) on_small_stack(addresses[i]);
    }
    finish(is_strict);
}

static void *in_thread(void *mode) {
    enter("kill");
    run(0);
    return mode;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "plain";
    prepare();
    if (!strcmp(mode, "dispatch")) dispatch();
    else if (strcmp(mode, "plain") && strcmp(mode, "thread")) enter(mode);
    (void)!write(1, "ready\n", 6);
    if (!strcmp(mode, "thread")) {
        pthread_t thread;
        if (pthread_create(&thread, 0, in_thread, 0)) abort();
        pthread_join(thread, 0);
    }
    run(!strcmp(mode, "strict"));
}
