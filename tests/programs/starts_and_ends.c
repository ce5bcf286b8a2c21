/* Processes that start and end in many ways, each with N launches of a kernel, for which it waits.
 *
 *   starts_and_ends START N COUNT LIBRARY END...
 *
 * For each END there are COUNT processes. START: how these are started; `before` are those that have initialised CUDA, and `idle` those
 * that exist, before this process reads a line. It prints a line for each process before the process launches: `PID END`, and `done` at the
 * end. A process that this program executes gets its N and END as arguments of `run`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char KERNEL[] = ".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry tick()\n{\nret;\n}\n";
typedef void *handle;

static struct {
    int (*cuInit)(unsigned);
    int (*cuDevicePrimaryCtxRetain)(handle *, int);
    int (*cuCtxSetCurrent)(handle);
    int (*cuModuleLoadData)(handle *, const void *);
    int (*cuModuleGetFunction)(handle *, handle, const char *);
    int (*cuCtxSynchronize)(void);
    int (*cuLaunchKernel)(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **);
} driver;
static handle kernel, context;

#define TAKE(name) (*(void **)&driver.name = dlsym(library, #name))

static void initialise(const char *path) {
    handle module, library = dlopen(path, RTLD_NOW);
    if (!library || !TAKE(cuInit) || !TAKE(cuDevicePrimaryCtxRetain) || !TAKE(cuCtxSetCurrent) || !TAKE(cuModuleLoadData) ||
        !TAKE(cuModuleGetFunction) || !TAKE(cuCtxSynchronize) || !TAKE(cuLaunchKernel)) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(3);
    }
    if (driver.cuInit(0) || driver.cuDevicePrimaryCtxRetain(&context, 0) || driver.cuCtxSetCurrent(context) ||
        driver.cuModuleLoadData(&module, KERNEL) || driver.cuModuleGetFunction(&kernel, module, "tick"))
        _exit(3);
}

static void launch(int n) {
    for (int i = 0; i < n; i++)
        if (driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) _exit(4);
    if (driver.cuCtxSynchronize()) _exit(5);
}

static void *exit_in_thread(void *unused) {
    exit(0);
    return unused;
}

static void leave(const char *end) {
    pthread_t thread;
    char *none[] = {"/bin/true", NULL};
    if (!strcmp(end, "exit")) exit(0);
    if (!strcmp(end, "_exit")) _exit(0);
    if (!strcmp(end, "quick_exit")) quick_exit(0);
    if (!strcmp(end, "abort")) abort();
    if (!strcmp(end, "kill")) raise(SIGKILL);
    if (!strcmp(end, "term")) raise(SIGTERM);
    if (!strcmp(end, "segv")) raise(SIGSEGV);
    if (!strcmp(end, "exec")) execv(none[0], none);
    if (!strcmp(end, "failed_exec")) {
        execlp("/nonexistent/program", "program", (char *)NULL);
        launch(10);
        exit(0);
    }
    if (!strcmp(end, "thread")) {
        pthread_create(&thread, NULL, exit_in_thread, NULL);
        pause();
    }
    /* It goes on meanwhile: how many launches there are is not known here. */
    if (!strcmp(end, "meanwhile")) {
        pthread_create(&thread, NULL, exit_in_thread, NULL);
        for (;;) launch(1);
    }
    exit(9);
}

static void announce(const char *end) {
    char line[64];
    int length = snprintf(line, sizeof line, "%d %s\n", getpid(), end);
    if (write(1, line, length) != length) _exit(6);
}

static void run(const char *library, int n, const char *end) {
    announce(end);
    initialise(library);
    launch(n);
    leave(end);
}

static void wait_for_line(void) {
    char byte;
    while (read(0, &byte, 1) == 1 && byte != '\n') continue;
}

/* In a child. `go` is closed when it is to launch. */
static void child(const char *start, const char *library, const char *n, const char *end, int go) {
    char byte, self[] = "/proc/self/exe", *arguments[] = {self, "run", (char *)library, (char *)n, (char *)end, NULL};
    if (!strcmp(start, "before")) {
        initialise(library);
        announce(end);
        if (read(go, &byte, 1)) _exit(7);
        launch(atoi(n));
        leave(end);
    }
    if (!strcmp(start, "idle") && read(go, &byte, 1)) _exit(7);
    if (!strcmp(start, "unset")) unsetenv("CUDA_INJECTION64_PATH");
    if (!strcmp(start, "exec") || !strcmp(start, "unset")) execv(self, arguments);
    if (!strcmp(start, "grandchild")) {
        pid_t grandchild = fork();
        if (!grandchild) run(library, atoi(n), end);
        waitpid(grandchild, NULL, 0);
        _exit(0);
    }
    if (!strcmp(start, "daemon")) {
        setsid();
        if (fork()) _exit(0);
    }
    run(library, atoi(n), end);
}

int main(int count, char **arguments) {
    int go[2], alive[2];
    char byte;
    if (count < 5) return 2;
    if (!strcmp(arguments[1], "run")) run(arguments[2], atoi(arguments[3]), arguments[4]);
    const char *start = arguments[1], *n = arguments[2], *library = arguments[4];
    int is_before = !strcmp(start, "before") || !strcmp(start, "idle");
    if (pipe(go) || pipe(alive)) return 2;
    if (!is_before) wait_for_line();
    for (int end = 5; end < count; end++)
        for (int i = 0; i < atoi(arguments[3]); i++)
            if (!fork()) {
                close(go[1]);
                child(start, library, n, arguments[end], go[0]);
            }
    if (is_before) wait_for_line();
    close(go[1]);
    while (wait(NULL) > 0) continue;
    /* Daemons are nobody's children: the pipe ends with the last one that has it. */
    close(alive[1]);
    while (read(alive[0], &byte, 1) > 0) continue;
    puts("done");
    return 0;
}
