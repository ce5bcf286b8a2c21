// Calls functions of the driver from many threads in all states that a tracer may meet when it comes or goes: hot, asleep within and
// between calls, in signal handlers on the thread's own or on another stack, with remains of earlier calls on the stack.
//
// soak [THREADS]   runs until its input ends, then prints `calls N signals N errors N`. After a line of input no thread is within a
//                  call, and it prints `calls N`: of cuDeviceGetAttribute. After the next line it goes on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int (*init)(unsigned), (*version)(int *), (*attribute)(int *, int, int), (*retain)(void **, int), (*set)(void *);
static int (*allocate)(unsigned long *, size_t), (*release)(unsigned long), (*upload)(unsigned long, const void *, size_t);
static int (*download)(void *, unsigned long, size_t), (*synchronize)(void), (*name)(char *, int, int);
static const struct {
    void *pointer;
    const char *symbol;
} FUNCTIONS[] = {
    {&init, "cuInit"},         {&version, "cuDriverGetVersion"}, {&attribute, "cuDeviceGetAttribute"},
    {&retain, "cuDevicePrimaryCtxRetain"}, {&set, "cuCtxSetCurrent"}, {&allocate, "cuMemAlloc_v2"},
    {&release, "cuMemFree_v2"}, {&upload, "cuMemcpyHtoD_v2"},    {&download, "cuMemcpyDtoH_v2"},
    {&synchronize, "cuCtxSynchronize"}, {&name, "cuDeviceGetName"},
};

static int driver_version, warp_size;
static char device_name[64];
static void *context;
static atomic_ulong calls, signals, errors;
static atomic_bool over, at_rest;
static atomic_long resting;

static void expect(int holds) {
    if (!holds) atomic_fetch_add(&errors, 1);
}

static void sleep_us(long us) {
    struct timespec left = {0, us * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

static int get_warp_size(void) {
    int value = 0;
    expect(!attribute(&value, 10, 0) && value == warp_size);
    atomic_fetch_add(&calls, 1);
    return value;
}

static void handler(int signal) {
    int before = errno, value = 0;
    (void)signal;
    if (atomic_load(&at_rest)) return;
    expect(!version(&value) && value == driver_version);
    if (atomic_fetch_add(&signals, 1) % 64 == 0) sleep_us(3000);
    get_warp_size();
    errno = before;
}

static void rest(void) {
    atomic_fetch_add(&resting, 1);
    while (atomic_load(&at_rest)) sleep_us(100);
    atomic_fetch_sub(&resting, 1);
}

// A frame with room that nobody writes to: what earlier calls left there stays.
static __attribute__((noinline)) int remains(int depth) {
    volatile char room[700];
    int value = 0;
    room[0] = 1;
    expect(!version(&value) && value == driver_version);
    if (depth) return remains(depth - 1) + room[0];
    sleep_us(200);
    return value;
}

static void *run(void *number) {
    long id = (long)number;
    unsigned long random = id * 2654435761u + 1, memory = 0;
    char sent[256], received[256], text[64];
    if (id % 2) {
        stack_t stack = {.ss_sp = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = 1 << 16};
        sigaltstack(&stack, 0);
    }
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    event._sigev_un._tid = syscall(SYS_gettid);
    timer_t timer;
    struct itimerspec period = {{0, 3000000 + id * 100000}, {0, 1000000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &period, 0)) abort();
    expect(!set(context) && !allocate(&memory, sizeof sent));
    while (!atomic_load(&over)) {
        if (atomic_load(&at_rest)) rest();
        random = random * 6364136223846793005u + 1442695040888963407u;
        memset(sent, (int)(random >> 40), sizeof sent);
        expect(!upload(memory, sent, sizeof sent) && !download(received, memory, sizeof sent));
        expect(!memcmp(sent, received, sizeof sent));
        for (int i = 0; i < 200; i++) get_warp_size();
        expect(!name(text, sizeof text, 0) && !strcmp(text, device_name));
        switch (random >> 60) {
        case 0: expect(remains((random >> 50) % 6) >= driver_version); break;
        case 1: expect(!synchronize()); break;
        case 2: sleep_us(500); break;
        default: sleep_us(20);
        }
    }
    timer_delete(timer);
    expect(!release(memory));
    return 0;
}

int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 16;
    pthread_t list[256];
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        void *function = driver ? dlsym(driver, FUNCTIONS[i].symbol) : 0;
        if (!function) return fprintf(stderr, "no %s\n", FUNCTIONS[i].symbol), 1;
        *(void **)FUNCTIONS[i].pointer = function;
    }
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(SIGRTMIN, &action, 0);
    expect(!init(0) && !version(&driver_version) && !attribute(&warp_size, 10, 0));
    expect(!name(device_name, sizeof device_name, 0) && !retain(&context, 0));
    for (long i = 0; i < threads; i++)
        if (pthread_create(&list[i], 0, run, (void *)i)) abort();
    puts("running");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) {
        atomic_store(&at_rest, !at_rest);
        while (atomic_load(&resting) != (at_rest ? threads : 0)) sleep_us(50);
        if (!at_rest) continue;
        printf("calls %lu\n", calls);
        fflush(stdout);
    }
    atomic_store(&over, 1);
    for (long i = 0; i < threads; i++) pthread_join(list[i], 0);
    printf("calls %lu signals %lu errors %lu\n", calls, signals, errors);
    return errors != 0;
}
