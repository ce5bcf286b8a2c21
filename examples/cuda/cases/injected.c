/*
 * A library for CUDA_INJECTION64_PATH: leaves INJECTED=N in the environment when the driver calls it the Nth time.
 */
#include <stdio.h>
#include <stdlib.h>

int InitializeInjection(void) {
    static int calls;
    char text[16];
    snprintf(text, sizeof text, "%d", ++calls);
    setenv("INJECTED", text, 1);
    return 1;
}
