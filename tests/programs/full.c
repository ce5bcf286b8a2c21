// Opens a library, reserves all memory within 3 GiB of it, and calls its `traced_work` 100 times for each line that it reads, as a process whose
// gigabytes of libraries follow each other. An empty line closes the library and opens it again, at the same address if it is linked for one.
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const uint64_t REACH = 3ul << 30;
// The loader takes so much more than the library needs, for its alignment.
static const uint64_t ALIGNMENT = 2ul << 20;

// Reserves what is free between two addresses.
static void fill(uint64_t from, uint64_t to) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    static uint64_t ranges[8192][2];
    size_t count = 0;
    while (maps && count < 8192 && fgets(line, sizeof line, maps))
        count += sscanf(line, "%" SCNx64 "-%" SCNx64, &ranges[count][0], &ranges[count][1]) == 2;
    fclose(maps);
    uint64_t at = from;
    for (size_t n = 0; n <= count; n++) {
        uint64_t start = n < count ? ranges[n][0] : to, end = n < count ? ranges[n][1] : to;
        if (end <= from || start > to) continue;
        if (start > at)
            mmap((void *)at, start - at, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (end > at) at = end;
    }
}

// The end of the last mapping of a file.
static uint64_t end_of(const char *path) {
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    uint64_t end = 0;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, path)) sscanf(line, "%*x-%" SCNx64, &end);
    fclose(maps);
    return end;
}

int main(int count, char **arguments) {
    char line[8];
    if (count < 2) return 1;
    void *library = dlopen(arguments[1], RTLD_NOW);
    void *work = library ? dlsym(library, "traced_work") : NULL;
    if (!work) return 2;
    uint64_t page = (uint64_t)work & ~4095ul;
    fill(page - REACH, page + REACH);
    puts("ready");
    fflush(stdout);
    for (int lines = 1; fgets(line, sizeof line, stdin); lines++) {
        if (*line == '\n') {
            uint64_t end = end_of(arguments[1]);
            dlclose(library);
            munmap((void *)end, ALIGNMENT);
            library = dlopen(arguments[1], RTLD_NOW);
            fill(page - REACH, page + REACH);
            if (!library || dlsym(library, "traced_work") != work) return 3;
        }
        for (int n = 0; n < 100; n++) ((long (*)(long))work)(n);
        printf("line %d done\n", lines);
        fflush(stdout);
    }
    return 0;
}
