// Reserves all memory around, but for a hole that is far from the program's first library and too small for a region, as CUDA does with terabytes. Opens
// a library before and another in the hole, and calls `traced_work` of each 100 times, with and without its return.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

static const size_t GIB = 1ul << 30, HOLE = 1ul << 20;

static char *reserve(size_t size) {
    return mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static int call(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    long (*work)(long) = library ? (long (*)(long))dlsym(library, "traced_work") : NULL;
    for (int n = 0; work && n < 100; n++) work(n);
    return !!work;
}

int main(int count, char **paths) {
    if (count != 3 || !call(paths[1])) return 1;
    char *all = reserve(9 * GIB);
    if (all == MAP_FAILED) return 2;
    // What is above fits nothing any more.
    for (size_t size = GIB; size >= 4096; size /= 2) {
        char *got;
        while ((got = reserve(size)) != MAP_FAILED && got > all) continue;
        if (got != MAP_FAILED) munmap(got, size);
    }
    munmap(all + 4 * GIB, HOLE);
    if (!call(paths[2])) return 3;
    printf("%s\n", dlsym(dlopen(paths[2], RTLD_NOW), "traced_work") > (void *)(all + 4 * GIB + HOLE) ? "near" : "far");
    return 0;
}
