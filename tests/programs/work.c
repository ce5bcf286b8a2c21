// A library with one function; with -DMOVED it has another offset, and other code has its old one. With -DPUSHES it begins with a push,
// after which there is room for a jump.
#ifdef MOVED
__asm__(".text\nbefore: .rept 64\nmovabs $0x1111111111111111, %rax\n.endr\nret\n");
long before(void);
#endif

__attribute__((noinline)) long traced_work(long value) {
#ifdef MOVED
    if (before() != 0x1111111111111111) return -1;
#endif
#ifdef PUSHES
    __asm__ volatile("" : : : "rbx");
#endif
    return value + 1;
}
