// Floating-point numbers and vectors in memory, and what is passed beside them.

#include <stdio.h>

typedef float v4 __attribute__((vector_size(16)));
typedef int i4 __attribute__((vector_size(16)));

struct numbers {
    float f;
    double d[2];
    long double l;
    v4 v;
    int tail;
};

struct lone {
    i4 v;
};

__attribute__((noinline)) void look(struct numbers *n, const float *p, int tail) {
    printf("%s %.3f %.2f %.1f %ld %d\n", "look", n->f, n->d[1], *p, (long)n->d[0], tail);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) int by_value(struct numbers n, int tail) {
    __asm__ volatile("" ::: "memory");
    return n.tail + tail;
}

__attribute__((noinline)) int hidden(struct lone l, int tail) {
    __asm__ volatile("" ::: "memory");
    return l.v[0] + tail;
}

int main(void) {
    static const double whole[] = {0.0, 0.75, -0.75, 1.0, -2.5, 1e6, -123456.75, 4611686018427387904.0, 1e-300, -9e18};
    for (int i = 0; i < 10; i++) {
        struct numbers n = {i / 8.0F, {whole[i], -i / 4.0}, -i / 2.0L, {i, 1, 2, 3}, i};
        float p = -i * 0.5F;
        look(&n, &p, i);
        by_value(n, i);
        hidden((struct lone){{i}}, i);
    }
    return 0;
}
