// Opens libraries that are 1200 MiB from each other, and calls `traced_work` of each 100 times.
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

static char *reserve(size_t size) {
    return mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

int main(int count, char **paths) {
    for (int i = 1; i < count; i++) {
        void *library = dlopen(paths[i], RTLD_NOW);
        long (*work)(long) = library ? (long (*)(long))dlsym(library, "traced_work") : NULL;
        if (!work) return 1;
        for (int n = 0; n < 100; n++) work(n);
        char *far = reserve(1200ul << 20);
        if (far == MAP_FAILED) return 2;
        // No library fits into the gaps above.
        for (int gap = 0; gap < 20000 && reserve(8192) > far; gap++) continue;
    }
    return 0;
}
