/* Code as a JIT compiler makes it: functions in anonymous memory, at all offsets of some pages. Each keeps a frame pointer, and calls
 * traced_leaf twice: as soon as it is there, and when a tracer has had time to look at the memory. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE 0x2000

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};

__attribute__((noinline)) long traced_leaf(long value) {
    __asm__ volatile("" : : : "rbx");
    return value + 1;
}

__attribute__((noinline)) static void call_all(unsigned char *from) {
    for (unsigned at = 0; at < SIZE; at += sizeof code)
        ((long (*)(long (*)(long)))(from + at))(traced_leaf);
}

int main(void) {
    unsigned char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (unsigned at = 0; at < SIZE; at += sizeof code)
        memcpy(memory + at, code, sizeof code);
    mprotect(memory, SIZE, PROT_READ | PROT_EXEC);
    call_all(memory);
    usleep(500000);
    call_all(memory);
    printf("count functions %zu\n", SIZE / sizeof code);
}
