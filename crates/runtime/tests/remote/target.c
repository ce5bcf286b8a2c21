// The process that the tests of `remote` control. It prints the addresses of its functions, then `ready`; each thread checks the
// results of the functions. Arguments: number of threads, calls per thread (0: until input ends), period of a timer in us (0: none),
// options: `s` sleepers, `e` all of them may return EINTR, not only epoll_wait, `f` a seccomp filter that kills for memfd_create,
// `l` the first thread ends, `r` a thread executes a restartable sequence,
// `v` a thread calls vfork(2), `c` a thread uses the stack of a coroutine, `x` another thread calls execve(2) again and again, `i` SIGTRAP is ignored. With a number of calls it waits for a line of input before the first one.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

__attribute__((noinline)) long identity(long x) { return x; }
// push %rbp; mov %rsp,%rbp; sub $N,%rsp
__attribute__((noinline)) long frame(long x) { return identity(x) * 3 + 1; }

long itself(long x, void *self), branch(long x), pushes(long x), slow(long x), table(long x);
asm(".text\n"
    // Adds one if its address is `self`.
    ".globl itself\nitself: push %rbx\n lea itself(%rip),%rbx\n xor %eax,%eax\n cmp %rsi,%rbx\n sete %al\n add %rdi,%rax\n pop %rbx\n ret\n"
    ".globl branch\nbranch: push %rbp\n test %rdi,%rdi\n je 1f\n lea (%rdi,%rdi),%rax\n pop %rbp\n ret\n1: mov $7,%eax\n pop %rbp\n ret\n"
    ".globl pushes\npushes: push %r15\n push %r14\n push %r13\n push %r12\n mov %rdi,%r15\n lea 5(%r15),%r14\n mov %r14,%rax\n pop %r12\n pop %r13\n pop %r14\n pop %r15\n ret\n"
    // Threads stop in the middle of these instructions most of the time.
    ".globl slow\nslow: push %rbx\n pause\n pause\n pause\n pause\n mov %rdi,%rbx\n lea 9(%rbx),%rax\n pop %rbx\n ret\n"
    ".globl table\ntable: push %rbx\n movsbl values(%rip),%ebx\n lea (%rdi,%rbx),%rax\n pop %rbx\n ret\n"
    ".data\nvalues: .byte 11\n.text\n");

static long errors, calls, interrupted, handled, children;
static volatile int stop;
static long per_thread;
static int sleepers, may_interrupt, restartable, vforks, executes, coroutine_runs;

static void check(long got, long expected, const char *what) {
    if (got == expected) return;
    __atomic_add_fetch(&errors, 1, __ATOMIC_SEQ_CST);
    fprintf(stderr, "%s: %ld, expected %ld, errno %d\n", what, got, expected, errno);
}

static void one(long x) {
    check(frame(x), x * 3 + 1, "frame");
    check(itself(x, itself), x + 1, "itself");
    check(branch(x), x ? 2 * x : 7, "branch");
    check(pushes(x), x + 5, "pushes");
    check(slow(x), x + 9, "slow");
    check(table(x), x + 11, "table");
}

static void *work(void *number) {
    // Floating point registers keep their values.
    double sum = 0;
    long n = 0;
    for (; per_thread ? n < per_thread : !stop; n++) {
        one(n % 5 + (long)number);
        sum += 0.5;
    }
    check((long)(sum * 2), n, "sum");
    __atomic_add_fetch(&calls, n, __ATOMIC_SEQ_CST);
    return 0;
}

static void handler(int signal) {
    int before = errno;
    one(signal);
    // The interrupted thread stays here for a while.
    struct timespec pause = {0, 100000};
    if (handled % 4 == 0) nanosleep(&pause, 0);
    __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
    errno = before;
}

static long ms(struct timespec a, struct timespec b) { return (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000; }

static void *sleeper(void *kind) {
    sigset_t all, most, now;
    sigfillset(&all);
    sigfillset(&most);
    sigdelset(&most, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &most, 0);
    int pipes[2], epoll = epoll_create1(0);
    if (pipe(pipes)) abort();
    struct epoll_event event;
    struct pollfd readable = {pipes[0], POLLIN, 0};
    struct timespec time = {0, 150000000}, begin, end;
    for (; !stop;) {
        errno = 0;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        long got = 0;
        switch ((long)kind) {
            case 0: got = nanosleep(&time, 0); break;
            case 1: got = poll(&readable, 1, 150); break;
            case 2: got = ppoll(&readable, 1, &time, &all); break;
            case 3:
                got = epoll_wait(epoll, &event, 1, 150);
        }
        if (got < 0 && errno == EINTR && ((long)kind == 3 || may_interrupt)) {
            __atomic_add_fetch(&interrupted, 1, __ATOMIC_SEQ_CST);
            continue;
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        check(got, 0, "sleeper");
        if (ms(begin, end) < 149) check(ms(begin, end), 150, "slept ms");
        pthread_sigmask(SIG_BLOCK, 0, &now);
        check(sigismember(&now, SIGUSR1) || !sigismember(&now, SIGALRM), 0, "mask");
    }
    return 0;
}

// A restartable sequence, in which the thread is nearly always.
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const char sequence[], sequence_end[], sequence_abort[];
static struct { unsigned version, flags; unsigned long start, size, abort; } __attribute__((aligned(32))) section;
static long aborts;
static void *sequences(void *unused) {
    if (!&__rseq_offset) return 0;
    section.start = (long)sequence, section.size = sequence_end - sequence, section.abort = (long)sequence_abort;
    volatile unsigned long *pointer = (void *)((char *)__builtin_thread_pointer() + __rseq_offset + 8);
    while (!stop)
        asm volatile(
            "1: mov %1,%0\n"
            ".globl sequence, sequence_end, sequence_abort\nsequence: mov $1000,%%ecx\n2: pause\n dec %%ecx\n jne 2b\nsequence_end: jmp 3f\n"
            ".long 0x53053053\nsequence_abort: lock incq %2\n jmp 1b\n3:"
            : "=m"(*pointer) : "r"(&section), "m"(aborts) : "ecx", "memory");
    return 0;
}

// A thread on a coroutine's small stack, next to other data.
static struct { char other[1 << 18], stack[2048]; } coroutine_area;
static void coroutine(void) { work((void *)9); }
static void *coroutines(void *unused) {
    static ucontext_t own, other;
    memset(coroutine_area.other, 0x5a, sizeof coroutine_area.other);
    getcontext(&other);
    other.uc_stack.ss_sp = coroutine_area.stack, other.uc_stack.ss_size = sizeof coroutine_area.stack, other.uc_link = &own;
    makecontext(&other, coroutine, 0);
    swapcontext(&own, &other);
    for (size_t i = 0; i < sizeof coroutine_area.other; i++) check(coroutine_area.other[i], 0x5a, "memory below a coroutine's stack");
    return 0;
}

// A thread that waits for a child which uses its memory does not stop.
static void *parent(void *unused) {
    while (!stop) {
        if (!vfork()) {
            struct timespec time = {0, 200000000};
            nanosleep(&time, 0);
            _exit(0);
        }
        while (waitpid(-1, 0, __WNOTHREAD) < 0 && errno == EINTR) {}
    }
    return 0;
}

// The program begins again, by a thread that is not the first.
static char **arguments;
static void *again(void *unused) {
    struct timespec time = {0, 3000000};
    nanosleep(&time, 0);
    setenv("AGAIN", "1", 1);
    if (!stop) execv("/proc/self/exe", arguments);
    return 0;
}

static void filter(void) {
    struct sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_memfd_create},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog program = {4, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) abort();
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument) {
    if (pthread_create(thread, 0, run, argument)) abort();
}

static void *main_work(void *options) {
    pthread_t threads[300];
    char line[100];
    long number = *(long *)options, n;
    if (per_thread) {
        if (!fgets(line, sizeof line, stdin)) return 0;
    }
    for (n = 0; n < 4 * sleepers; n++) start(&threads[200 + n], sleeper, (void *)(n % 4));
    if (coroutine_runs) start(&threads[296], coroutines, 0);
    if (vforks) start(&threads[298], parent, 0);
    if (restartable) start(&threads[299], sequences, 0);
    for (n = 1; n < number; n++) start(&threads[n], work, (void *)n);
    if (per_thread) {
        work(0);
    } else {
        puts("running");
        fflush(stdout);
        start(&threads[0], work, 0);
        // All other threads are there.
        if (executes) start(&threads[297], again, 0);
        while (fgets(line, sizeof line, stdin)) {
            if (line[0] != 'f') continue;
            // A child has no probes; it tells what its page contains.
            int pid = fork(), status;
            if (!pid) { one(3); _exit(*(volatile char *)strtoul(line + 1, 0, 16) ? 9 : errors != 0); }
            waitpid(pid, &status, 0);
            children = status;
            printf("child %d\n", status);
            fflush(stdout);
        }
        stop = 1;
        pthread_join(threads[0], 0);
    }
    for (n = 1; n < number; n++) pthread_join(threads[n], 0);
    if (coroutine_runs) pthread_join(threads[296], 0);
    struct sigaction action;
    sigaction(SIGTRAP, 0, &action);
    printf("calls %ld errors %ld interrupted %ld handled %ld trap %d\n", calls, errors, interrupted, handled, action.sa_handler == SIG_IGN);
    fflush(stdout);
    _exit(errors != 0);
}

int main(int argc, char **argv) {
    static long number;
    number = atol(argv[1]), per_thread = atol(argv[2]);
    long period = atol(argv[3]);
    const char *options = argc > 4 ? argv[4] : "";
    sleepers = strchr(options, 's') != 0;
    executes = strchr(options, 'x') != 0;
    arguments = argv;
    if (getenv("AGAIN")) stdout = fopen("/dev/null", "w");
    coroutine_runs = strchr(options, 'c') != 0;
    vforks = strchr(options, 'v') != 0;
    restartable = strchr(options, 'r') != 0;
    may_interrupt = strchr(options, 'e') != 0;
    printf("frame %p\nitself %p\nbranch %p\npushes %p\nslow %p\ntable %p\n", frame, itself, branch, pushes, slow, table);
    if (restartable && &__rseq_offset) printf("sequence %p\nsequence_end %p\nsequence_abort %p\n", sequence, sequence_end, sequence_abort);
    if (strchr(options, 'f')) filter();
    if (strchr(options, 'i')) signal(SIGTRAP, SIG_IGN);
    if (period) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
        sigaction(SIGALRM, &action, 0);
        struct itimerval timer = {{0, period}, {0, period}};
        setitimer(ITIMER_REAL, &timer, 0);
    }
    puts("ready");
    fflush(stdout);
    if (strchr(options, 'l')) {
        pthread_t other;
        pthread_create(&other, 0, main_work, &number);
        pthread_exit(0);
    }
    main_work(&number);
}
