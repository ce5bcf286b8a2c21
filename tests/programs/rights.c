/*
 * rights: two processes call traced_work. The child gives up root after 50 calls, calls on, and prints what it shares with its tracer.
 * The second argument of each call tells who makes it, and when: 1 the parent, 2 the child as root, 3 the child as another user.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline, noclone)) long traced_work(long a, long b) {
    volatile long sum = a;
    for (int i = 0; i < 4; i++) sum += b;
    return sum;
}

static void child(void) {
    for (int i = 0; i < 50; i++) traced_work(i, 2);
    if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) perror("setresuid");
    for (int i = 0; i < 50; i++) traced_work(i, 3);
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:cudatrace")) printf("shares %s", line);
    fflush(stdout);
    _exit(0);
}

int main(void) {
    for (int i = 0; i < 50; i++) traced_work(i, 1);
    int status;
    pid_t pid = fork();
    if (pid == 0) child();
    waitpid(pid, &status, 0);
    for (int i = 0; i < 50; i++) traced_work(i, 1);
    printf("child %d\n", status);
    return 0;
}
