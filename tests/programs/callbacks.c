// Functions that call back into the program, for `tools/test-survival.sh`: callbacks.cpp, callbacks.rs, callbacks.go. Exceptions and
// panics may pass them.
#include <stdlib.h>
#include <string.h>

typedef int (*callback)(void *data, int n);

int call(callback back, void *data, int n) {
    volatile int result = back(data, n);
    return result + 1;
}

int call_twice(callback back, void *data, int n) {
    volatile int first = call(back, data, n), second = call(back, data, n - 1);
    return first + second;
}

// Uses more stack than a goroutine has.
int deep(int n) {
    volatile char page[4096];
    memset((char *)page, n, sizeof page);
    return (n > 0 ? deep(n - 1) : 0) + (page[n] & 1);
}

static int compare(const void *a, const void *b) {
    volatile int left = *(const int *)a, right = *(const int *)b;
    return (left > right) - (left < right);
}

void sort(int *values, size_t count) { qsort(values, count, sizeof *values, compare); }
