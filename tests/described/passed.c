/* What travels by value: structs with floating-point numbers and arrays, and structs that come back in registers. Says what its
 * functions are called with and what they return, as far as a probe can see it. */
#include <stdio.h>

struct small { int a, b; };
struct pair { long first; unsigned char second; };
struct mixed { double d; int n; };
struct shared { float x; int n; };
struct three { short v[3]; struct small s; };
struct flags { unsigned low : 3, high : 5; _Bool on; };
struct large { int v[20]; };
union either { int i; float f; };

#define FUNCTION __attribute__((noinline))

FUNCTION struct small make_small(int x) { return (struct small){ x, -x }; }
FUNCTION struct pair make_pair(long x) { return (struct pair){ x * 3, 200 }; }
FUNCTION struct mixed make_mixed(int x) { return (struct mixed){ x / 2.0, x }; }
FUNCTION struct shared make_shared(int x) { return (struct shared){ x / 2.0f, x }; }
FUNCTION struct three make_three(short x) { return (struct three){ { x, -1, 3 }, { x, 7 } }; }
FUNCTION struct flags make_flags(int x) { return (struct flags){ x & 7, 21, 1 }; }

FUNCTION int take(int a, double d, struct shared s, struct mixed m, struct three t, int z) {
    return a + z + s.n + m.n + t.v[0] + (int)d;
}
FUNCTION int take_large(struct large l, int a, long double ld, union either e) {
    return l.v[19] + a + (int)ld + e.i;
}

static volatile int sum;

int main(void) {
    for (int x = 1; x < 4; x++) {
        struct small s = make_small(x);
        printf("small %d %d\n", s.a, s.b);
        struct pair p = make_pair(x);
        printf("pair %ld %d\n", p.first, p.second);
        struct mixed m = make_mixed(x);
        printf("mixed %d\n", m.n);
        struct shared f = make_shared(x);
        printf("shared %d\n", f.n);
        struct three t = make_three(x);
        printf("three %d %d %d %d\n", t.v[0], t.v[1], t.v[2], t.s.b);
        struct flags g = make_flags(x);
        printf("flags %d %d %d\n", g.low, g.high, g.on);
        printf("take %d %d %d %d %d\n", 10 * x, f.n, m.n, t.v[2], -x);
        sum += take(10 * x, 2.5, f, m, t, -x);
        struct large l = { { [0] = x, [19] = 99 } };
        union either e = { .i = x };
        printf("take_large %d %d %d %d\n", l.v[0], l.v[19], 5 * x, e.i);
        sum += take_large(l, 5 * x, 1.0L, e);
    }
    return 0;
}
