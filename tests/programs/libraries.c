// Opens libraries as programs with plug-ins do, and calls `traced_work` of each a hundred times.
//
// libraries again FILE              ten times, closed between
// libraries all FILE...             all of them at the same time
// libraries deleted FILE            deletes it when it is open
// libraries renamed FILE OTHER      renames another over it when it is open, and opens that
// libraries overwritten FILE OTHER  writes another into it when it is closed, and opens it again
// libraries threads FILE...         each in a thread of its own, a hundred threads, at once
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *use(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    long (*work)(long) = library ? (long (*)(long))dlsym(library, "traced_work") : 0;
    for (int i = 0; i < 100; i++)
        if (!work || work(i) != i + 1) fprintf(stderr, "%s: wrong\n", path), exit(1);
    return library;
}

static void *use_in_thread(void *path) {
    return use(path);
}

static void overwrite(const char *path, const char *other) {
    static char bytes[1 << 20];
    FILE *from = fopen(other, "r"), *to = fopen(path, "r+");
    size_t size = fread(bytes, 1, sizeof bytes, from);
    fwrite(bytes, 1, size, to);
    fclose(to);
    if (truncate(path, size)) exit(1);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *mode = argv[1], *path = argv[2];
    if (!strcmp(mode, "again"))
        for (int i = 0; i < 10; i++) dlclose(use(path));
    else if (!strcmp(mode, "all"))
        for (int i = 2; i < argc; i++) use(argv[i]);
    else if (!strcmp(mode, "threads")) {
        pthread_t all[100];
        for (int i = 0; i < 100; i++) pthread_create(&all[i], 0, use_in_thread, argv[2 + i % (argc - 2)]);
        for (int i = 0; i < 100; i++) pthread_join(all[i], 0);
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
