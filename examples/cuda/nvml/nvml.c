/*
 * A simulated libnvidia-ml.so.1 with one device: every process that has mapped the driver used 42 % of its time, and 17 % of its memory's.
 */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

/* `nvmlReturn_t` */
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { MOST = 256 };

struct sample {
    unsigned pid;
    unsigned long long us;
    unsigned compute, memory, encoder, decoder;
};

static int device;

EXPORT int nvmlInit_v2(void) {
    return SUCCESS;
}

EXPORT int nvmlShutdown(void) {
    return SUCCESS;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 1;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    *out = &device;
    return index ? INVALID_ARGUMENT : SUCCESS;
}

EXPORT int nvmlDeviceGetUUID(const void *of, char *uuid, unsigned length) {
    if (of != &device) return INVALID_ARGUMENT;
    snprintf(uuid, length, "GPU-43554441-5349-4d00-0000-000000000000");
    return SUCCESS;
}

static int has_driver(const char *pid) {
    char path[300], line[512];
    snprintf(path, sizeof path, "/proc/%s/maps", pid);
    FILE *maps = fopen(path, "r");
    int found = 0;
    while (maps && !found && fgets(line, sizeof line, maps)) found = strstr(line, "/libcuda.so") != NULL;
    if (maps) fclose(maps);
    return found;
}

static unsigned long long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (unsigned long long)t.tv_sec * 1000000u + (unsigned long long)t.tv_nsec / 1000u;
}

/* As the real one: without room it says how much is needed, and that there is none is an error. */
EXPORT int nvmlDeviceGetProcessUtilization(const void *of, struct sample *out, unsigned *count, unsigned long long since) {
    struct sample found[MOST];
    unsigned used = 0;
    DIR *processes = opendir("/proc");
    if (of != &device || !processes) return INVALID_ARGUMENT;
    for (struct dirent *entry; used < MOST && (entry = readdir(processes));)
        if (isdigit((unsigned char)entry->d_name[0]) && has_driver(entry->d_name))
            found[used++] = (struct sample){(unsigned)atoi(entry->d_name), now_us(), 42, 17, 0, 0};
    closedir(processes);
    if (!used || found[0].us <= since) return NOT_FOUND;
    if (!out || *count < used) {
        *count = used;
        return INSUFFICIENT_SIZE;
    }
    memcpy(out, found, used * sizeof *found);
    *count = used;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetUtilizationRates(const void *of, unsigned *rates) {
    if (of != &device) return INVALID_ARGUMENT;
    rates[0] = 42;
    rates[1] = 17;
    return SUCCESS;
}

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

EXPORT int nvmlDeviceGetMemoryInfo_v2(const void *of, struct memory *memory) {
    static const unsigned long long GIB = 1ull << 30;
    if (of != &device || memory->version != (sizeof *memory | 2u << 24)) return INVALID_ARGUMENT;
    *memory = (struct memory){memory->version, 4 * GIB, GIB, 2 * GIB, GIB};
    return SUCCESS;
}

EXPORT int nvmlDeviceGetPowerUsage(const void *of, unsigned *milliwatts) {
    *milliwatts = 345678;
    return of == &device ? SUCCESS : INVALID_ARGUMENT;
}
