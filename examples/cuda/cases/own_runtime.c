/*
 * A library with a CUDA runtime of its own, as extensions of Python have, for late_dlopen: `allocate` makes one call of it, and frees. The
 * runtime's symbols are local.
 */
#include "cuda_runtime_mini.h"

int allocate(void *room) {
    (void)room;
    void *block = NULL;
    return cudaMalloc(&block, 1000) != cudaSuccess || cudaFree(block) != cudaSuccess;
}
