// Functions in groups of three, each called with the same arguments in each run, one after the other:
//
// slot_0_a slot_0_b slot_0_c, slot_1_a ...
#include <signal.h>
#include <string.h>

struct place {
    int x;
    short y;
    char tag;
};

long counter = 77;
static unsigned char bytes[512];
// Scripts read beyond their end, where the same bytes must be in each run.
static struct place places[64] = {{1, -2, 'a'}, {-2147483648, 32767, 0}, {99, 3, -1}};
static const char *words[] = {"saxpy", "main100", "", "fifteen letters", "x"};
static volatile long sink;

#define FUNCTION(slot, letter, factor)                                                                                                              \
    __attribute__((noinline, noclone, used)) long slot_##slot##_##letter(const void *data, long number, struct place *place, const char *text,      \
                                                                         unsigned char small, int i, unsigned u, long h, long ninth) {              \
        sink += number * factor + place->x + small + i + u + h + ninth + ((const unsigned char *)data)[3];                                          \
        return number * factor - text[0];                                                                                                           \
    }
#define SLOT(n) FUNCTION(n, a, 1) FUNCTION(n, b, -3) FUNCTION(n, c, 1000003)
#define TEN(n) SLOT(n##0) SLOT(n##1) SLOT(n##2) SLOT(n##3) SLOT(n##4) SLOT(n##5) SLOT(n##6) SLOT(n##7) SLOT(n##8) SLOT(n##9)
#define ALL TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5)
ALL

#undef FUNCTION
#define FUNCTION(slot, letter, factor) slot_##slot##_##letter,
static long (*const FUNCTIONS[])(const void *, long, struct place *, const char *, unsigned char, int, unsigned, long, long) = {ALL};

int main(void) {
    static const long NUMBERS[] = {0, 1, -1, 7, 255, 4096, -2147483648, 9223372036854775807, -9223372036854775807 - 1, 4294967296};
    signal(SIGUSR1, SIG_IGN);
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = i * 37 % 251;
    memcpy(bytes + 64, "text within bytes", 18);
    for (unsigned round = 0; round < 10; round++) {
        for (unsigned f = 0; f < sizeof FUNCTIONS / sizeof *FUNCTIONS; f++) {
            long number = NUMBERS[(round + f) % 10];
            sink += FUNCTIONS[f](bytes + 16 * (round % 5), number, &places[(round + f / 3) % 3], words[(round * 3 + f) % 5], number + round, -(int)round,
                                 number, (long)f, number ^ round);
        }
    }
    return 0;
}
