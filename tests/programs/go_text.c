// Looks like a file of the Go compiler into which C code is linked.
#define FUNCTION(name)                                                                                                                 \
    ".globl " name "\n.type " name ", @function\n" name ": push %rbx\nmov %edi, %eax\npop %rbx\nnop\nnop\nnop\nret\n.size " name ", . - " name "\n"
__asm__(".text\n" FUNCTION("of_c") ".globl runtime.text\nruntime.text:\n" FUNCTION("of_go") ".globl runtime.etext\nruntime.etext:\n");

const char build_info[] __attribute__((section(".go.buildinfo"))) = "go";
int of_c(int), of_go(int);

int main(void) { return of_c(3) + of_go(-3); }
