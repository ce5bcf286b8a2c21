// A CUDA program that is made to load a library. Arguments: path of the driver; what it does beside calls of it: `idle` nothing,
// and it makes no call before it reads a line; `storm` it forks, allocates, loads the library of the third argument, and prints;
// `malloc` a thread holds a lock of malloc from a signal handler until a line comes; `loader` a thread holds the lock of the loader while the
// library of the third argument waits in its constructor. Prints `ready`, and `alive` each time that all its threads have gone on. Ends with its
// input. With -DLIBRARY it is that library, which waits for the file in RELEASE.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY
__attribute__((constructor)) static void wait_for_release(void) {
    while (access(getenv("RELEASE"), F_OK)) usleep(1000);
}
#else
static int (*set_current)(void *), (*copy)(unsigned long, unsigned long, size_t);
static void *context;
static unsigned long memory;
static volatile int ends, released, is_held, has_probed;
static const char *library;

enum { CALLS, FORKS, ALLOCATIONS, LIBRARIES, PRINTS, KINDS };
static volatile long counts[KINDS];

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) abort();
}

static void *find(void *driver, const char *name) {
    void *found = dlsym(driver, name);
    if (!found) abort();
    return found;
}

static void begin(const char *path) {
    void *driver = dlopen(path, RTLD_NOW);
    if (!driver) abort();
    ((int (*)(int))find(driver, "cuInit"))(0);
    ((int (*)(void **, int))find(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    *(void **)&set_current = find(driver, "cuCtxSetCurrent");
    *(void **)&copy = find(driver, "cuMemcpyDtoD_v2");
    set_current(context);
    ((int (*)(unsigned long *, size_t))find(driver, "cuMemAlloc_v2"))(&memory, 4096);
}

static void *call(void *unused) {
    set_current(context);
    for (; !ends; counts[CALLS]++) {
        if (copy(memory, memory, 64)) abort();
        usleep(200);
    }
    return 0;
}

static void *fork_again(void *unused) {
    for (; !ends; counts[FORKS]++) {
        pid_t child = fork();
        if (!child) {
            alarm(10);
            free(malloc(5000));
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) == child && status) say("a child has failed\n");
        usleep(500);
    }
    return 0;
}

static void *allocate(void *unused) {
    for (; !ends; counts[ALLOCATIONS]++) {
        void *some[20];
        for (int i = 0; i < 20; i++) some[i] = malloc(1200 + 300 * i);
        for (int i = 0; i < 20; i++) free(some[i]);
    }
    return 0;
}

static void *load(void *unused) {
    for (; !ends; counts[LIBRARIES]++) {
        void *loaded = dlopen(library, RTLD_NOW);
        if (!loaded) say("a library was not loaded\n");
        dlclose(loaded);
        usleep(200);
    }
    return 0;
}

static void *print(void *unused) {
    FILE *file = fopen("/dev/null", "w");
    for (; !ends; counts[PRINTS]++) fprintf(file, "%ld %s\n", counts[PRINTS], library);
    return 0;
}

static void hold(int signal) {
    is_held = 1;
    while (!released) usleep(100);
    is_held = 0;
}

// Waits for the lock if another thread has it.
static void *probe(void *unused) {
    mallinfo2();
    has_probed = 1;
    return 0;
}

static void start(void *(*run)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, 0, run, 0)) abort();
}

// Interrupts a thread until that happens while it has the lock of its arena.
static void hold_malloc(void) {
    pthread_t thread;
    signal(SIGUSR1, hold);
    if (pthread_create(&thread, 0, allocate, 0)) abort();
    while (!counts[ALLOCATIONS]) usleep(100);
    for (;;) {
        released = has_probed = 0;
        pthread_kill(thread, SIGUSR1);
        while (!is_held) usleep(100);
        start(probe);
        for (int i = 0; i < 100 && !has_probed; i++) usleep(1000);
        if (!has_probed) return;
        released = 1;
        while (is_held) usleep(100);
    }
}

static void *load_once(void *unused) {
    if (!dlopen(library, RTLD_NOW)) abort();
    say("loaded\n");
    return 0;
}

static void *report(void *kinds) {
    long before[KINDS] = {0};
    while (!ends) {
        usleep(5000);
        int all = 1;
        for (long i = 0; i < (long)kinds; i++) all &= counts[i] > before[i];
        if (!all) continue;
        for (int i = 0; i < KINDS; i++) before[i] = counts[i];
        say("alive\n");
    }
    return 0;
}

int main(int count, char **arguments) {
    const char *mode = arguments[2];
    library = arguments[3];
    char line[64];
    begin(arguments[1]);
    long kinds = 1;
    pthread_t reporter;
    if (!strcmp(mode, "idle")) {
        say("ready\n");
        if (read(0, line, sizeof line) <= 0) return 0;
    } else if (!strcmp(mode, "storm")) {
        kinds = KINDS;
        start(fork_again), start(allocate), start(load), start(print), start(call);
    } else if (!strcmp(mode, "malloc")) {
        hold_malloc();
    } else {
        start(load_once);
        usleep(50000);
    }
    start(call);
    if (pthread_create(&reporter, 0, report, (void *)kinds)) abort();
    if (strcmp(mode, "idle")) say("ready\n");
    while (read(0, line, sizeof line) > 0) released = 1;
    ends = released = 1;
    pthread_join(reporter, 0);
    say("end\n");
    _exit(0);
}
#endif
