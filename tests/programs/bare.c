// A static program without a C library, for -static -nostdlib: no loader, and no code that returns from signals. It begins as those of C
// libraries do: with the address of a thread control block.
static long block[64];
static long call(long number, long a, long b) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return result;
}
__attribute__((noinline)) long bare_work(long a) {
    volatile long sum = a;
    for (int i = 0; i < 3; i++) sum += i;
    return sum;
}
void _start(void) {
    long sum = 0;
    block[0] = (long)block;
    call(158, 0x1002, (long)block);
    for (int i = 0; i < 1000; i++) sum += bare_work(i);
    call(231, sum == 0, 0);
    __builtin_unreachable();
}
