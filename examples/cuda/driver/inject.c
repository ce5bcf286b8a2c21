/*
 * CUDA_INJECTION64_PATH: the first cuInit loads this library and calls its function `int InitializeInjection(void)`. A file
 * that cannot be loaded and a library without the function are ignored, as is the result.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "sim.h"

void inject(void) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path && *path ? dlopen(path, RTLD_NOW) : NULL;
    int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (initialize) initialize();
}
