/*
 * Collectives of known sizes on one rank, with the simulated libnccl.so.2 or a real one (buffers are then missing, so do not).
 *
 *     planted allreduce_bytes 4194304
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ncclInt8 = 0, ncclFloat32 = 7, ncclBfloat16 = 9 };

int ncclCommInitAll(void **comm, int devices, const int *list);
int ncclCommDestroy(void *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream);
int ncclAllGather(const void *send, void *receive, size_t count, int type, void *comm, void *stream);
int ncclBcast(void *buffer, size_t count, int type, int root, void *comm, void *stream);
int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, void *comm, void *stream);

static void must(int result, const char *what) {
    if (!result) return;
    fprintf(stderr, "workload_nccl: %s: result %d\n", what, result);
    exit(1);
}
#define MUST(call) must(call, #call)

int main(void) {
    void *comm;
    printf("== counts ==\npid %d\n", (int)getpid());
    MUST(ncclCommInitAll(&comm, 1, NULL));
    for (int i = 0; i < 16; i++) MUST(ncclAllReduce(NULL, NULL, 1 << 16, ncclFloat32, 0, comm, NULL));
    for (int i = 0; i < 3; i++) {
        MUST(ncclGroupStart());
        for (int j = 0; j < 4; j++) MUST(ncclAllGather(NULL, NULL, 1000, ncclBfloat16, comm, NULL));
        MUST(ncclGroupEnd());
    }
    MUST(ncclBcast(NULL, 77, ncclInt8, 0, comm, NULL)); /* calls ncclBroadcast, as NVIDIA's does */
    if (ncclBroadcast(NULL, NULL, 77, ncclInt8, 5, comm, NULL) == 0) return 1; /* there is no rank 5 */
    MUST(ncclCommDestroy(comm));
    printf("planted ncclAllReduce %d\nplanted ncclAllGather %d\nplanted ncclBroadcast %d\n== end ==\n", 16 << 18, 12 * 2000, 77);
    return 0;
}
