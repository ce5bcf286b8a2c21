/*
 * CUPTI's records of kernels, counted and thrown away: what cudatrace's price is compared with. The driver loads it.
 *
 *     gcc -O2 -shared -fPIC bare_cupti.c -o bare.so -ldl
 *     BARE_CUPTI=/path/of/libcupti.so.13 CUDA_INJECTION64_PATH=$PWD/bare.so python3 gpu_work.py price
 *
 * Names and numbers are those of CUPTI's documentation. Buffers have the size of NVIDIA's samples.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { CONCURRENT_KERNEL = 10, BUFFER = 8 << 20 };

static int (*next_record)(uint8_t *, size_t, uint8_t **);
static int (*flush_all)(uint32_t);
static unsigned long records;

static void request(uint8_t **buffer, size_t *size, size_t *most) {
    *buffer = malloc(BUFFER);
    *size = BUFFER;
    *most = 0;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t used) {
    uint8_t *record = NULL;
    (void)context, (void)stream, (void)size;
    while (next_record(buffer, used, &record) == 0) records++;
    free(buffer);
}

static void finish(void) {
    flush_all(1);
    fprintf(stderr, "bare CUPTI: %lu records\n", records);
}

int InitializeInjection(void) {
    const char *path = getenv("BARE_CUPTI");
    void *cupti = dlopen(path ? path : "libcupti.so", RTLD_LAZY);
    if (!cupti) return fprintf(stderr, "bare CUPTI: %s\n", dlerror()), 0;
    int (*enable)(int) = dlsym(cupti, "cuptiActivityEnable");
    int (*period)(uint32_t) = dlsym(cupti, "cuptiActivityFlushPeriod");
    int (*listen)(void *, void *) = dlsym(cupti, "cuptiActivityRegisterCallbacks");
    next_record = dlsym(cupti, "cuptiActivityGetNextRecord");
    flush_all = dlsym(cupti, "cuptiActivityFlushAll");
    int failed = listen(request, completed) | enable(CONCURRENT_KERNEL) | period(100);
    if (failed) fprintf(stderr, "bare CUPTI: error %d\n", failed);
    atexit(finish);
    return !failed;
}
