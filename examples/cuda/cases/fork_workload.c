/*
 * fork_workload [CHILDREN [CALLS]]: each of CHILDREN (4) forked children opens the driver and calls cuCtxGetDevice CALLS
 * times (1000); every second one first executes this program anew, so that it is a new image under the same pid.
 * The parent calls cuDriverGetVersion once, before it forks.
 */
#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>

#include "cases.h"

static void *driver_function(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) {
        fprintf(stderr, "fork_workload: %s\n", dlerror());
        exit(1);
    }
    return function;
}

static int child(long calls) {
    int (*init)(unsigned) = (int (*)(unsigned))driver_function("cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))driver_function("cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = (int (*)(void *))driver_function("cuCtxSetCurrent");
    int (*get_device)(int *) = (int (*)(int *))driver_function("cuCtxGetDevice");
    void *context;
    int device, failed = init(0) || retain(&context, 0) || set_current(context);
    for (long i = 0; i < calls && !failed; i++) failed = get_device(&device);
    return failed;
}

static pid_t start_child(const char *self, long calls, int anew) {
    pid_t pid = fork();
    if (pid) return pid;
    if (!anew) _exit(child(calls));
    char text[32];
    snprintf(text, sizeof text, "%ld", calls);
    execl("/proc/self/exe", self, "--child", text, NULL);
    _exit(127);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--child")) return child(atol(argv[2]));
    long children = number(argc, argv, 1, 4), calls = number(argc, argv, 2, 1000), failed = 0;
    int version, status;
    int (*get_version)(int *) = (int (*)(int *))driver_function("cuDriverGetVersion");
    get_version(&version);
    for (long i = 0; i < children; i++) start_child(argv[0], calls, i % 2 != 0);
    while (wait(&status) > 0) failed += status != 0;
    begin_counts();
    printf("children %ld\nexecuted %ld\n", children, children / 2);
    printf("count cuDriverGetVersion 1\ncount cuInit %ld\ncount cuDevicePrimaryCtxRetain %ld\ncount cuCtxSetCurrent %ld\n", children,
           children, children);
    printf("count cuCtxGetDevice %ld\n", children * calls);
    end_counts();
    return failed ? 1 : 0;
}
