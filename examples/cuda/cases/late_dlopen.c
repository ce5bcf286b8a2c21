/*
 * late_dlopen LIBRARY [SYMBOL [CALLS [DELAY_MS]]]: starts without the library, waits DELAY_MS (0), opens it, and calls SYMBOL
 * (cuDriverGetVersion) CALLS times (1) at once, and closes it. SYMBOL is called as int f(void *) with room for a result. The first call is
 * the one that a tracer which only looks from time to time misses.
 */
#include <dlfcn.h>

#include "cases.h"

int main(int argc, char **argv) {
    char room[4096];
    if (argc < 2) {
        fprintf(stderr, "usage: %s LIBRARY [SYMBOL [CALLS [DELAY_MS]]]\n", argv[0]);
        return 2;
    }
    const char *symbol = argc > 2 ? argv[2] : "cuDriverGetVersion";
    long calls = number(argc, argv, 3, 1), failed = 0;
    sleep_us(1000 * number(argc, argv, 4, 0));
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*call)(void *) = library ? (int (*)(void *))dlsym(library, symbol) : NULL;
    if (!call) {
        fprintf(stderr, "late_dlopen: %s\n", dlerror());
        return 1;
    }
    for (long i = 0; i < calls; i++) failed += call(room) != 0;
    dlclose(library);
    begin_counts();
    printf("count %s %ld\nfailed %s %ld\n", symbol, calls, symbol, failed);
    end_counts();
    return 0;
}
