// Reserves all memory around, but for a hole that is far from the program's first library and too small for a region, as CUDA does with terabytes. Opens
// a library before and another in the hole, below the first one, and calls `traced_work` of each 100 times: at once, or with a further argument both
// when a line has come.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

static const size_t GIB = 1ul << 30, HOLE = 1ul << 20;

static char *reserve(size_t size) {
    return mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void *find(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    return library ? dlsym(library, "traced_work") : NULL;
}

static void call(void *work) {
    for (int n = 0; n < 100; n++) ((long (*)(long))work)(n);
}

int main(int count, char **paths) {
    int waits = count > 3;
    void *near = find(paths[1]);
    if (!near) return 1;
    if (!waits) call(near);
    char *all = reserve(9 * GIB);
    if (all == MAP_FAILED) return 2;
    // What is above fits nothing any more.
    for (size_t size = GIB; size >= 4096; size /= 2) {
        char *got;
        while ((got = reserve(size)) != MAP_FAILED && got > all) continue;
        if (got != MAP_FAILED) munmap(got, size);
    }
    munmap(all + 4 * GIB, HOLE);
    void *far = find(paths[2]);
    if (!far) return 3;
    puts(far > (void *)(all + 4 * GIB + HOLE) ? "near" : "far");
    fflush(stdout);
    if (waits) {
        char line[8];
        if (!fgets(line, sizeof line, stdin)) return 4;
        call(near);
    }
    call(far);
    return 0;
}
