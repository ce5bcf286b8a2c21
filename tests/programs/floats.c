/* Floating-point numbers in arguments and results, mixed with integers. */
__attribute__((noinline)) float f_add(float a, float b) {
    __asm__ volatile("" : : : "rbx");
    return a + b;
}

__attribute__((noinline)) double d_scale(int n, double x, long m, float y) {
    __asm__ volatile("" : : : "rbx");
    return n * x + m * y;
}

__attribute__((noinline)) int i_after(double x, int a, int b) {
    __asm__ volatile("" : : : "rbx");
    return a + b + (int)x;
}

/* The last two are on the stack. */
__attribute__((noinline)) double d_many(double a, double b, double c, double d, double e, double f, double g, double h, double i, float j) {
    __asm__ volatile("" : : : "rbx");
    return a + b + c + d + e + f + g + h + i + j;
}

int main(void) {
    volatile double sum = 0;
    for (int call = 0; call < 3; call++) {
        sum += f_add(-0.5f + call, 0.25f);
        sum += d_scale(3, 1.5, 40, 0.25f + call);
        sum += i_after(9.75, 5, 4);
        sum += d_many(1, 2, 3, 4, 5, 6, 7, 8.5, 9.25, 10.125f);
    }
    return sum == 0;
}
