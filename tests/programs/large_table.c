/*
 * A program whose unwind information is larger than what is read at once, and a stack that only it describes: `work` uses the
 * register of the frame pointer for something else. It calls `leaf` without end.
 */
#include <unistd.h>

/* 9 MB for 36 000 functions, most of it DW_CFA_GNU_args_size, which makes no rows: it is read in little time. */
#define NOTHING "0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0,0x2e,0"
__asm__(".text\n"
        ".rept 36000\n"
        ".cfi_startproc\n"
        ".rept 7\n"
        ".cfi_escape " NOTHING "\n"
        ".endr\n"
        "ret\n"
        ".cfi_endproc\n"
        ".endr\n");

__attribute__((noipa)) void leaf(void) {
    usleep(200);
}

/* %rbp points to what looks like a frame whose return address is an address of the stack. */
void work(void);
__asm__(".text\n"
        ".globl work\n"
        ".type work, @function\n"
        "work:\n"
        ".cfi_startproc\n"
        "push %rbp\n"
        ".cfi_adjust_cfa_offset 8\n"
        ".cfi_rel_offset %rbp, 0\n"
        "sub $32, %rsp\n"
        ".cfi_adjust_cfa_offset 32\n"
        "mov %rsp, %rbp\n"
        "mov %rsp, 8(%rsp)\n"
        "movq $0, (%rsp)\n"
        "call leaf\n"
        "add $32, %rsp\n"
        ".cfi_adjust_cfa_offset -32\n"
        "pop %rbp\n"
        ".cfi_adjust_cfa_offset -8\n"
        ".cfi_restore %rbp\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size work, .-work\n");

int main(void) {
    for (;;) work();
}
