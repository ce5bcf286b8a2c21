/* Loads two libraries in turn, which the loader puts at one address, and calls a function through each. As a library (-DFRAME=BYTES): the function
 * through which it is called, with a frame of that size. */
#include <dlfcn.h>
#include <stdio.h>

#ifdef FRAME
int pass_on(int (*function)(int), int number) {
    volatile char frame[FRAME];
    frame[0] = (char)number;
    return function(number) + frame[0];
}
#else
__attribute__((noinline)) int traced_call(int number) {
    volatile int copy = number;
    return copy;
}

int main(int count, char **arguments) {
    void *before = 0;
    int moved = 0;
    for (int round = 0; round < 20; round++) {
        void *library = dlopen(arguments[1 + round % (count - 1)], RTLD_NOW);
        if (!library) return 2;
        int (*pass_on)(int (*)(int), int) = (int (*)(int (*)(int), int))dlsym(library, "pass_on");
        for (int i = 0; i < 100; i++) pass_on(traced_call, i);
        moved += before && before != (void *)pass_on;
        before = (void *)pass_on;
        dlclose(library);
    }
    printf("moved %d\n", moved);
    return 0;
}
#endif
