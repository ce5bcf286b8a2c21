// A library, and with -DMAIN a program that calls its functions: fifteen that can be patched, and some with a branch to their second instruction.
#define EACH(do) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14) do(15)
#define ODD(name) asm(".text\n.globl " name "\n.type " name ", @function\n" name ":\n mov %edi, %eax\n1: dec %eax\n jg 1b\n ret\n.size " name ", . - " name);
#ifdef MAIN
#define CALL(n) int odd_plain_##n(int);
#define RUN(n) sum += odd_plain_##n(2);
EACH(CALL)
int odd_branch_1(int), odd_branch_2(int);
int main(void) {
    int sum = 0;
    EACH(RUN)
    return sum + odd_branch_1(3) + odd_branch_2(4) == 0;
}
#else
#define PLAIN(n) __attribute__((noinline)) int odd_plain_##n(int x) { volatile int y = x; return y * n; }
EACH(PLAIN)
ODD("odd_branch_1")
ODD("odd_branch_2")
#endif
