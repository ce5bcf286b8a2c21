// Calls a function from a second thread, before and after the main thread gets another name, and in a child that ends.
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) long named(long value) {
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    return state + value;
}

static void *call(void *value) {
    pthread_setname_np(pthread_self(), "other");
    return (void *)named((long)value);
}

static void in_thread(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, call, NULL);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    if (argc > 1) {
        in_thread();
        return 0;
    }
    in_thread();
    pthread_setname_np(pthread_self(), "renamed main");
    // The tracer looks once in a second.
    usleep(2500000);
    in_thread();
    if (fork() == 0) {
        execl(argv[0], argv[0], "child", NULL);
        _exit(1);
    }
    wait(NULL);
    in_thread();
    return 0;
}
