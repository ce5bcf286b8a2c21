// A function that is called once from each of 25000 places, as programs of CUDA register their kernels.
__attribute__((noinline)) int registered(int count) {
    __asm__ volatile("" : "+r"(count));
    return count + 1;
}
void every_place(void);
__asm__(".text\n"
        "every_place:\n"
        "    push %rbp\n"
        "    .rept 25000\n"
        "    mov $1, %edi\n"
        "    call registered\n"
        "    .endr\n"
        "    pop %rbp\n"
        "    ret\n");
int main(void) {
    every_place();
    return 0;
}
