// Opens libraries as programs with plug-ins do, and calls `traced_work` of each a hundred times.
//
// libraries again FILE              ten times, closed between
// libraries place FILE              three times at the same address, each time when a line is read, and closed between
// libraries copies FILE             three times in namespaces of their own; calls them when a line is read
// libraries all FILE...             all of them at the same time
// libraries deleted FILE            deletes it when it is open
// libraries renamed FILE OTHER      renames another over it when it is open, and opens that
// libraries overwritten FILE OTHER  writes another into it when it is closed, and opens it again
// libraries threads FILE...         each in a thread of its own, a thousand threads, at once
// libraries told FILE [OTHER]       when a line is read; then writes another into it, and opens it again at the next line
// libraries ring FILE               by a descriptor that io_uring has opened
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *use(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    long (*work)(long) = library ? (long (*)(long))dlsym(library, "traced_work") : 0;
    for (int i = 0; i < 100; i++)
        if (!work || work(i) != i + 1) fprintf(stderr, "%s: wrong\n", path), exit(1);
    return library;
}

enum { THREADS = 1000 };
static pthread_barrier_t all_are_there;

static void *use_in_thread(void *path) {
    pthread_barrier_wait(&all_are_there);
    return use(path);
}

static void use_by_threads(char **paths, int count) {
    static pthread_t threads[THREADS];
    pthread_barrier_init(&all_are_there, 0, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], 0, use_in_thread, paths[i % count])) exit(1);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
}

// Opens a file by io_uring, whose kernel threads make no system calls.
static int open_by_ring(const char *path) {
    struct io_uring_params params = {0};
    int ring = syscall(SYS_io_uring_setup, 1, &params);
    if (ring < 0) exit(77);
    const int access = PROT_READ | PROT_WRITE;
    size_t size = params.sq_off.array + sizeof(unsigned);
    size_t results = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    char *requests = mmap(0, size > results ? size : results, access, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(0, sizeof *entry, access, MAP_SHARED, ring, IORING_OFF_SQES);
    if (!(params.features & IORING_FEAT_SINGLE_MMAP) || requests == MAP_FAILED || entry == MAP_FAILED) exit(77);
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_OPENAT, .flags = IOSQE_ASYNC, .fd = AT_FDCWD, .addr = (long)path};
    *(unsigned *)(requests + params.sq_off.array) = 0;
    ++*(volatile unsigned *)(requests + params.sq_off.tail);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1) exit(1);
    return ((struct io_uring_cqe *)(requests + params.cq_off.cqes))->res;
}

static void overwrite(const char *path, const char *other) {
    static char bytes[1 << 20];
    FILE *from = fopen(other, "r"), *to = fopen(path, "r+");
    size_t size = fread(bytes, 1, sizeof bytes, from);
    fwrite(bytes, 1, size, to);
    fclose(to);
    if (truncate(path, size)) exit(1);
}

// Prints where the library is.
static void use_when_told(const char *path) {
    getchar();
    void *library = dlopen(path, RTLD_NOW);
    printf("%p\n", dlsym(library, "traced_work"));
    // Long enough for a tracer that looks from time to time.
    usleep(1500000);
    dlclose(use(path)), dlclose(library);
}

static void use_copies(const char *path) {
    long (*work[3])(long);
    for (int i = 0; i < 3; i++) work[i] = (long (*)(long))dlsym(dlmopen(LM_ID_NEWLM, path, RTLD_NOW), "traced_work");
    puts("ready"), getchar();
    for (int i = 0; i < 300; i++)
        if (work[i % 3](i) != i + 1) exit(1);
}

int main(int argc, char **argv) {
    setlinebuf(stdout);
    if (argc < 3) return 2;
    const char *mode = argv[1], *path = argv[2];
    if (!strcmp(mode, "again"))
        for (int i = 0; i < 10; i++) dlclose(use(path));
    else if (!strcmp(mode, "place"))
        for (int i = 0; i < 3; i++) use_when_told(path);
    else if (!strcmp(mode, "copies"))
        use_copies(path);
    else if (!strcmp(mode, "all"))
        for (int i = 2; i < argc; i++) use(argv[i]);
    else if (!strcmp(mode, "threads"))
        use_by_threads(argv + 2, argc - 2);
    else if (!strcmp(mode, "told")) {
        getchar(), dlclose(use(path));
        if (argc > 3) overwrite(path, argv[3]), getchar(), use(path);
    } else if (!strcmp(mode, "ring")) {
        char opened[64];
        snprintf(opened, sizeof opened, "/proc/self/fd/%d", open_by_ring(path));
        use(opened);
    } else if (!strcmp(mode, "deleted")) {
        void *library = dlopen(path, RTLD_NOW);
        unlink(path);
        long (*work)(long) = (long (*)(long))dlsym(library, "traced_work");
        for (int i = 0; i < 100; i++) work(i);
    } else if (!strcmp(mode, "renamed"))
        use(path), rename(argv[3], path), use(path);
    else if (!strcmp(mode, "overwritten"))
        dlclose(use(path)), overwrite(path, argv[3]), use(path);
    return 0;
}
