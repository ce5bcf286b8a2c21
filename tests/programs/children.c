// Starts a child that calls `work` thirty times, a hundredth of a second apart.
//
// children fork | vfork   prints `ready`, starts the child when a line is read, prints `ended`, and ends when another line is read;
//                         with `fork` the child gets another name, and ends with its parent
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// Begins with a push.
__attribute__((noinline)) int work(int value) {
    usleep(10000);
    return value + 1;
}

int main(int argc, char **argv) {
    int forks = argc > 1 && !strcmp(argv[1], "fork");
    setlinebuf(stdout);
    puts("ready"), getchar();
    if ((forks ? fork() : vfork()) == 0) {
        if (forks) prctl(PR_SET_PDEATHSIG, SIGKILL), prctl(PR_SET_NAME, "renamed");
        // The tracer looks once in a second.
        if (forks) usleep(2500000);
        for (int i = 0; i < 30; i++) work(i);
        if (!forks) _exit(0);
        puts("called");
        for (;;) pause();
    }
    if (!forks) wait(NULL), puts("ended");
    getchar();
    return 0;
}
