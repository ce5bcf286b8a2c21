/* Says what its functions are called with, in every way in which C passes arguments. What the trace sees must be the same. */
#include <stdbool.h>
#include <stdio.h>
#include "pool.h"

/* Called as declared, whatever the optimiser sees of the callers. */
#define CALLED __attribute__((noipa))

typedef unsigned long count_t;
enum color { RED, GREEN = 5, BLUE = -1 };
enum narrow { ON = 1, OFF = 2 } __attribute__((packed));
enum level { LOW = 200, HIGH = 70000, BELOW = -5 };
enum limit { NONE, MOST = 4000000000u };
struct leveled { enum level level : 12; enum limit limit; };
struct inner { int x; short y[3]; };
union word { long whole; struct { int low, high; }; };
typedef struct node {
    struct node *next;
    const char *name;
    char tag[8];
    struct inner in;
    enum color color;
    enum narrow narrow;
    union word word;
    unsigned first : 3, second : 7;
    int third : 5;
    bool last : 1;
    float ratio;
    struct pool *pool;
    int (*callback)(int);
} node_t;
struct small { int a; long b; };
struct mixed { double d; int n; };
struct floats { float x, y, z; };
struct big { long v[4]; int n; };
struct __attribute__((packed)) packed { char c; long l; };

CALLED long scalars(signed char a, unsigned char b, short c, unsigned d, long e, bool f, enum color g, count_t h) {
    printf("scalars %d %u %d %u %ld %d %d %lu\n", a, b, c, d, e, f, g, h);
    return a + b;
}

CALLED node_t *chain(node_t *p, const char *text) {
    printf("chain %s %s %d %d %s\n", p->name, text, p->in.x, p->next->in.y[1], p->tag);
    printf("fields %d %d %d %d %d %d %d %d\n", p->word.low, p->word.high, p->first, p->second, p->third, p->last,
           p->color == GREEN, p->narrow == OFF);
    return p->next;
}

CALLED int by_value(struct small s, struct mixed m, int n, struct big b, long after) {
    printf("by_value %d %ld %d %d %ld %d %ld\n", s.a, s.b, m.n, n, b.v[2], b.n, after);
    return n;
}

CALLED int vectors(double d, int n, float f, struct floats v, int k, long double ld, int j) {
    printf("vectors %d %d %d\n", n, k, j);
    return d + f + v.x + ld;
}

CALLED struct big make(int n, char c) {
    printf("make %d %d %d %d\n", n, c, n + 3, c);
    return (struct big){ { n, n + 1, n + 2, n + 3 }, c };
}

CALLED int unaligned(struct packed p, int n) {
    printf("unaligned %d %ld %d\n", p.c, p.l, n);
    return 0;
}

CALLED int many(int a, int b, int c, int d, int e, int f, int g, short h, unsigned char i, char *j) {
    printf("many %d %d %d %s %d\n", g, h, i, j, -7);
    return a + b + c + d + e + f - 28;
}

CALLED int variadic(const char *format, ...) {
    printf("variadic %s\n", format);
    return 0;
}

CALLED enum narrow levels(enum level level, enum limit limit, struct leveled *p) {
    printf("levels %s %d %s %u %s %d %s %u\n", level == LOW ? "LOW" : "HIGH", level, limit == MOST ? "MOST" : "NONE", limit,
           p->level == BELOW ? "BELOW" : "LOW", p->level, p->limit == MOST ? "MOST" : "NONE", p->limit);
    return level == LOW ? OFF : ON;
}

int main(void) {
    scalars(-3, 250, -1000, 4000000000u, -5, true, BLUE, 77);
    node_t second = { .name = "second", .in = { 9, { 1, 2, 3 } } };
    node_t first = { &second, "first", "tagged", { 5, { 7, 8, 9 } }, GREEN, OFF, { 0x500000003 }, 5, 99, -4, true, 1.5 };
    first.pool = pool_new(4);
    chain(&first, "hello");
    by_value((struct small){ 1, 2 }, (struct mixed){ 1.5, 3 }, 4, (struct big){ { 5, 6, 7, 8 }, 9 }, 10);
    vectors(1, 11, 2, (struct floats){ 1, 2, 3 }, 12, 3, 13);
    make(20, 'c');
    unaligned((struct packed){ 'p', 1234567 }, 3);
    many(1, 2, 3, 4, 5, 6, 7, -8, 255, "ten");
    variadic("format", 1, 2);
    pool_use(first.pool);
    levels(LOW, MOST, &(struct leveled){ BELOW, NONE });
    levels(HIGH, NONE, &(struct leveled){ LOW, MOST });
    return 0;
}
