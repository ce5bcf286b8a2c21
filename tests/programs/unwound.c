// Has an unwind table that takes long to read, and calls a function once. Prints nothing.

// Each function has two rows.
__asm__(".text\n"
        ".rept 60000\n"
        ".cfi_startproc\n"
        "nop\n"
        ".cfi_def_cfa_offset 24\n"
        "nop\n"
        ".cfi_endproc\n"
        ".endr\n");

__attribute__((noinline)) void traced_call(void) { __asm__ volatile(""); }

int main(void) {
    traced_call();
    return 0;
}
