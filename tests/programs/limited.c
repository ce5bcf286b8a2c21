// Calls `limited` with many arguments, for a limit of memory that leaves little room: limited MEGABYTES SECONDS. Prints `ready` when it
// has as much memory, and `fine` at its end.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__attribute__((noinline)) int limited(int n) {
    volatile int result = n * 5;
    return result + 1;
}

int main(int argc, char **argv) {
    size_t size = (argc > 1 ? atol(argv[1]) : 1) << 20;
    char *memory = malloc(size);
    memset(memory, 1, size);
    puts("ready");
    fflush(stdout);
    for (time_t end = time(0) + (argc > 2 ? atoi(argv[2]) : 1); time(0) < end;)
        for (int n = 0; n < 20000; n++)
            if (limited(n) != 5 * n + 1) return 1;
    puts("fine");
    return memory[0] - 1;
}
