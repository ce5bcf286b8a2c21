/* A library with functions of many shapes; and, with -DMAIN, a program that calls each of them some times, and prints how often. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifdef MAIN
long shape_constant(long), shape_leaf(long), shape_load(long *), shape_branch(long), shape_loop(long), shape_calls(long), shape_tail(long);
long shape_recursive(long), shape_frame(long), shape_switch(long), shape_variadic(int, ...), shape_pointer(long (*)(long), long);
long shape_many(long, long, long, long, long, long, long, long, long), shape_double(double);
static volatile long sink;
#else
#define SHAPE __attribute__((noinline, noclone, used)) long
static volatile long sink;

SHAPE shape_constant(long n) { return 42; }
SHAPE shape_leaf(long n) { return n * 3 + 1; }
SHAPE shape_load(long *p) { return *p; }
SHAPE shape_branch(long n) { return n > 5 ? n * sink : n - sink; }
SHAPE shape_loop(long n) {
    long sum = 0;
    do sum += sink; while (--n > 0);
    return sum;
}
SHAPE shape_calls(long n) { return shape_leaf(n) + shape_leaf(n + 1) + sink; }
SHAPE shape_tail(long n) { sink = n; return shape_branch(n + 1); }
SHAPE shape_recursive(long n) { return n > 0 ? shape_recursive(n - 1) + sink : 0; }
SHAPE shape_frame(long n) {
    char buffer[256];
    memset(buffer, (int)n, sizeof buffer);
    sink = buffer[n & 127];
    return strlen("shape") + buffer[n & 7];
}
SHAPE shape_switch(long n) {
    switch (n & 7) {
    case 0: return sink;
    case 1: return sink * 3;
    case 2: return shape_leaf(n);
    case 3: return sink - n;
    case 4: return shape_calls(n);
    case 5: return n / 3;
    case 6: return n * n;
    default: return 0;
    }
}
SHAPE shape_variadic(int count, ...) {
    va_list list;
    va_start(list, count);
    long sum = 0;
    while (count-- > 0) sum += va_arg(list, int);
    va_end(list);
    return sum;
}
SHAPE shape_many(long a, long b, long c, long d, long e, long f, long g, long h, long i) {
    return a + b * c + d * e + f * g + h * i + sink;
}
SHAPE shape_pointer(long (*to)(long), long n) { return to(n) + 1; }
SHAPE shape_double(double x) { return x * 2.5 + sink; }
#endif

#ifdef MAIN
int main(void) {
    long value = 7, sum = 0;
    for (int call = 0; call < 20; call++) {
        sum += shape_constant(call) + shape_leaf(call) + shape_load(&value) + shape_branch(call) + shape_loop(4);
        sum += shape_calls(call) + shape_tail(call) + shape_recursive(0) + shape_frame(call) + shape_switch(5);
        sum += shape_variadic(2, call, call) + shape_many(1, 2, 3, 4, 5, 6, 7, 8, 9) + shape_pointer((long (*)(long))shape_load, (long)&value);
        sum += shape_double(call);
    }
    sink = sum;
    printf("count shape_constant 20\ncount shape_leaf 60\ncount shape_load 40\ncount shape_branch 40\ncount shape_loop 20\n");
    printf("count shape_calls 20\ncount shape_tail 20\ncount shape_recursive 20\ncount shape_frame 20\ncount shape_switch 20\n");
    printf("count shape_variadic 20\ncount shape_many 20\ncount shape_pointer 20\ncount shape_double 20\n");
}
#endif
