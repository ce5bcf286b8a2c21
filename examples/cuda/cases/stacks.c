// Calls `leaf` by ways that are hard to walk back: `stacks WAY`. Built without frame pointers.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NOINLINE __attribute__((noinline, noclone))
// An instruction after a call prevents a tail call.
#define NO_TAIL_CALL() __asm__ volatile("")

NOINLINE int leaf(int a)
{
    NO_TAIL_CALL();
    return a + 1;
}

NOINLINE int middle(int a)
{
    volatile char room[300];
    room[a & 7] = (char)a;
    int result = leaf(a);
    return result + room[a & 7];
}

NOINLINE int outer(int a)
{
    int result = middle(a + 1);
    NO_TAIL_CALL();
    return result * 2;
}

// The stack is aligned, so that only the frame pointer leads back.
NOINLINE int aligned(int a)
{
    volatile char room[64] __attribute__((aligned(64)));
    room[a & 7] = (char)a;
    int result = outer(a);
    return result + room[a & 7];
}

static void handler(int signal)
{
    leaf(signal);
    NO_TAIL_CALL();
}

NOINLINE int by_signal(int a)
{
    raise(SIGUSR1);
    NO_TAIL_CALL();
    return a;
}

static int compare(const void *a, const void *b)
{
    return leaf(*(const int *)a) - *(const int *)b;
}

// Through libc's code and back into ours.
NOINLINE int by_library(int a)
{
    int numbers[2] = {a, a + 1};
    qsort(numbers, 2, sizeof *numbers, compare);
    NO_TAIL_CALL();
    return numbers[0];
}

// Python's trampoline: code made at run time.
NOINLINE int by_made_code(int a)
{
    static const unsigned char trampoline[] = {
        0x48, 0x83, 0xec, 0x08, // sub $8, %rsp
        0xff, 0xd6,             // call *%rsi
        0x48, 0x83, 0xc4, 0x08, // add $8, %rsp
        0xc3,                   // ret
    };
    int (*code)(int, int (*)(int)) =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy((void *)code, trampoline, sizeof trampoline);
    return code(a, middle) + 1;
}

// Hand-written code without unwind information, which uses the frame pointer for something else.
int lost(int a);
__asm__(".text\n.globl lost\n.type lost, @function\n"
        "lost: push %rbp\n mov $1, %ebp\n sub $32, %rsp\n call middle\n add $32, %rsp\n pop %rbp\n nop\n ret\n"
        ".skip 64, 0x90\n.size lost, . - lost\n");

NOINLINE int recurse(int depth)
{
    int result = depth == 0 ? leaf(depth) : recurse(depth - 1);
    NO_TAIL_CALL();
    return result + 1;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "plain";
    signal(SIGUSR1, handler);
    int result = 0;
    if (strcmp(way, "plain") == 0) {
        result = outer(1);
    } else if (strcmp(way, "aligned") == 0) {
        result = aligned(1);
    } else if (strcmp(way, "signal") == 0) {
        result = by_signal(1);
    } else if (strcmp(way, "library") == 0) {
        result = by_library(1);
    } else if (strcmp(way, "made") == 0) {
        result = by_made_code(1);
    } else if (strcmp(way, "lost") == 0) {
        result = lost(1);
    } else if (strcmp(way, "deep") == 0) {
        result = recurse(20);
    } else {
        fprintf(stderr, "usage: stacks plain|aligned|signal|library|made|lost|deep\n");
        return 2;
    }
    return result == 12345;
}
