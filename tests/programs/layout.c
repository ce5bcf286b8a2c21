/* A library (-DLIBRARY) whose functions lie in two sections, and whose image is longer than its file; and a program that calls them: one
 * that is linked with the library, or one (-DLATE) that opens it. The program prints how often it has called each. */
#define CALLS_ONE 70
#define CALLS_TWO 30
#ifdef LIBRARY
int layout_sum, layout_step = 1, *layout_at = &layout_step;
static char layout_zeros[3 << 20];
/* Functions begin with a push, after which there is room for a jump. */
#define PUSH __asm__ volatile("" : : : "rbx")
int layout_one(int x) { PUSH; layout_sum += x + *layout_at; return layout_zeros[x] + layout_sum; }
__attribute__((section(".far_text"))) int layout_two(int x) { PUSH; layout_zeros[x] += *layout_at; return layout_sum - x; }
#else
#include <dlfcn.h>
#include <stdio.h>
#ifdef LATE
static int (*layout_one)(int), (*layout_two)(int);
static int open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return puts(dlerror()), 0;
    layout_one = (int (*)(int))dlsym(library, "layout_one");
    layout_two = (int (*)(int))dlsym(library, "layout_two");
    return 1;
}
#else
int layout_one(int), layout_two(int);
static int open_library(const char *path) { return path || 1; }
#endif
int main(int count, char **arguments) {
    if (count < 2 || !open_library(arguments[1]))
        return 1;
    for (int i = 0; i < CALLS_ONE; i++)
        layout_one(i);
    for (int i = 0; i < CALLS_TWO; i++)
        layout_two(i);
    printf("count layout_one %d\ncount layout_two %d\n", CALLS_ONE, CALLS_TWO);
}
#endif
