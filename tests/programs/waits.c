// Waits within a call of the driver in ways in which its return address is hard to find. With DRIVER, the driver.
//
// waits DRIVER handler|own-handler|coroutine|plain   calls after a line of input, prints `inside`, returns after another line
#define _GNU_SOURCE
#ifdef DRIVER
void (*wait_inside)(void);
static int calls;

__attribute__((noinline)) int cuCtxSynchronize(void) {
    int before = calls++;
    wait_inside();
    return before + 700;
}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static int (*synchronize)(void);
static ucontext_t outside, inside;
static int result;
static volatile int handled;

static void wait_for_line(void) {
    char byte = 0;
    while (read(0, &byte, 1) == 1 && byte != '\n') {}
}

static void wait_here(void) {
    puts("inside");
    fflush(stdout);
    wait_for_line();
}

static void handler(int signal) {
    (void)signal;
    if (!handled++) wait_here();
}

static void interrupted(void) { pthread_kill(pthread_self(), SIGUSR1); }

static void leave(void) { swapcontext(&inside, &outside); }

static void coroutine(void) { result = synchronize(); }

static void *run(void *how) {
    size_t size = 1 << 16;
    char *memory = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, 4096, PROT_NONE);
    stack_t stack = {.ss_sp = memory + 4096, .ss_size = size - 4096};
    if (!strcmp(how, "handler")) sigaltstack(&stack, 0);
    wait_for_line();
    if (strcmp(how, "coroutine")) {
        result = synchronize();
        return 0;
    }
    getcontext(&inside);
    inside.uc_stack = stack;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
    wait_here();
    swapcontext(&outside, &inside);
    return 0;
}

int main(int argc, char **argv) {
    void *driver = argc == 3 ? dlopen(argv[1], RTLD_NOW) : 0;
    if (!driver) return 2;
    *(void **)&synchronize = dlsym(driver, "cuCtxSynchronize");
    void (**hook)(void) = dlsym(driver, "wait_inside");
    *hook = strstr(argv[2], "handler") ? interrupted : !strcmp(argv[2], "coroutine") ? leave : wait_here;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, 0);
    pthread_t thread;
    if (pthread_create(&thread, 0, run, argv[2])) abort();
    puts("ready");
    fflush(stdout);
    pthread_join(thread, 0);
    printf("result %d\n", result);
    fflush(stdout);
    wait_for_line();
    return 0;
}
#endif
