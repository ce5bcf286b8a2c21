// Executes the program that its arguments name; for 32 bits, without a library.
static int execute(const char *path, char **argv, char **environment) {
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(11), "b"(path), "c"(argv), "d"(environment) : "memory");
    return result;
}

__attribute__((used)) void begin(char **stack) {
    long count = *(long *)stack;
    char **argv = stack + 1;
    execute(argv[1], argv + 1, argv + count + 1);
    __asm__ volatile("int $0x80" : : "a"(1), "b"(127));
}

__asm__(".globl _start\n_start: mov %esp, %eax\npush %eax\ncall begin\n");
