/*
 * marked [COUNT]: passes markers for tracers (USDT) COUNT times (10) each, and prints how often.
 *
 *   demo:plain    at two places, whose values are in a register, in memory and constant; at the second all are constant
 *   demo:table    a value of an array, by base, index and scale, and one of a variable of the file
 *   demo:watched  has a counter by which the program sees that somebody listens; only then it is passed
 *
 * and calls demo::twice(long) as often, a function of C++ by its name. The notes are written here in assembler, so that no header is needed.
 */
#include "cases.h"

/* A marker: a `nop`, and a note with its address. VALUES are in assembler syntax. */
#define MARK(name, counter, values, ...)                                                       \
    __asm__ volatile("1: nop\n"                                                                \
                     ".pushsection .note.stapsdt, \"\", @note\n"                               \
                     "   .balign 4\n"                                                          \
                     "   .long 3f - 2f, 5f - 4f, 3\n"                                          \
                     "2: .asciz \"stapsdt\"\n"                                                 \
                     "3: .balign 4\n"                                                          \
                     "4: .quad 1b, 0, " counter "\n"                                           \
                     "   .asciz \"demo\"\n"                                                    \
                     "   .asciz \"" name "\"\n"                                                \
                     "   .asciz \"" values "\"\n"                                              \
                     "5: .balign 4\n"                                                          \
                     ".popsection\n" ::__VA_ARGS__)

/* The kernel raises it while the marker is probed. */
__attribute__((section(".probes"), used)) volatile unsigned short demo_watched_counter;

__attribute__((used)) volatile int demo_global = 40;

__attribute__((noinline)) static void plain(long i) {
    volatile short in_memory = (short)(-2 * i);
    MARK("plain", "0", "-4@%k0 -2@%1 8@%2 1@$200", "r"((int)-i), "m"(in_memory), "r"(i << 40));
    MARK("plain", "0", "-4@$-1 -2@$7 8@$0x10 1@$255", "r"(0));
}

__attribute__((noinline)) static void table(long i) {
    static int squares[64];
    squares[i % 64] = (int)(i * i);
    demo_global++;
    MARK("table", "0", "4@(%0,%1,4) -4@demo_global(%%rip)", "r"(squares), "r"(i % 64));
}

/* Called as C++ calls it: `demo::twice(long)`. */
long twice(long i) __asm__("_ZN4demo5twiceEl");
__attribute__((noinline)) long twice(long i) {
    __asm__ volatile("" : "+r"(i));
    return 2 * i;
}

int main(int argc, char **argv) {
    long count = number(argc, argv, 1, 10), watched = 0;
    for (long i = 1; i <= count; i++) {
        plain(i);
        table(i);
        if (twice(i) != 2 * i) return 1;
        if (demo_watched_counter) {
            watched++;
            MARK("watched", "demo_watched_counter", "8@%0", "r"(watched));
        }
    }
    begin_counts();
    printf("count plain %ld\ncount watched %ld\n", 2 * count, watched);
    end_counts();
    return 0;
}
