// Code that is entered by jumps: `_start`, and a cold part with local variables at the top of the stack. Prints what a changed stack
// would change.
#include <stdio.h>

__attribute__((cold, noinline)) void rare(long *value) { *value += 1; }

__attribute__((noinline)) long twice(long x, long y) {
    volatile long local[2] = {x, y};
    if (__builtin_expect(x < 0, 0)) {
        long copy = x;
        rare(&copy);
        rare((long *)&local[0]);
        rare((long *)&local[1]);
        return copy + local[0] + local[1];
    }
    return local[0] * 2 + local[1];
}

int main(int argc, char **argv) {
    long sum = 0;
    for (long x = -5; x < 100; x++) sum += twice(x, x + 1);
    printf("argc %d last %s sum %ld\n", argc, argv[argc - 1], sum);
    return 0;
}
