// Maps a file executable in ways that no loader of the C library uses, and prints what each mapping took.
//
// map FILE again COUNT           maps it where the kernel chooses, and unmaps it
// map FILE kept COUNT            maps it, and keeps the mapping
// map FILE later OFFSET COUNT    maps it readable, makes it executable, and calls the function at OFFSET so many times
// map FILE key OFFSET COUNT      the same by pkey_mprotect(2)
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

int main(int argc, char **argv) {
    int fd = argc > 3 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0) return 2;
    int by_key = !strcmp(argv[2], "key");
    if (by_key || !strcmp(argv[2], "later")) {
        size_t size = 1 << 14;
        char *code = mmap(0, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (code == MAP_FAILED) return 1;
        long call = by_key ? SYS_pkey_mprotect : SYS_mprotect;
        if (syscall(call, code, size, PROT_READ | PROT_EXEC, -1)) return 1;
        unsigned long (*push)(unsigned long) = (void *)(code + strtoul(argv[3], 0, 0));
        for (int i = atoi(argv[4]); i > 0; i--) push(i);
        return 0;
    }
    int count = atoi(argv[3]);
    double start = now_us();
    for (int i = 0; i < count; i++) {
        void *code = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 4096);
        if (code == MAP_FAILED) return 1;
        if (!strcmp(argv[2], "again")) munmap(code, 4096);
    }
    printf("%.0f us each\n", (now_us() - start) / count);
    return 0;
}
