/*
 * A libnccl.so.2 for one rank: every collective copies nothing, checks its arguments and takes a few microseconds. Names, argument
 * order, type and result numbers are NCCL's, as far as its documentation gives them.
 */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define API __attribute__((visibility("default")))

typedef enum { ncclSuccess = 0, ncclInvalidArgument = 4, ncclInvalidUsage = 5 } ncclResult_t;
struct comm {
    int rank, ranks;
};
static struct comm only = {0, 1};
static _Thread_local int depth;

static void spend_us(long us) {
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += us * 1000;
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - until.tv_sec) * 1000000000L + now.tv_nsec < until.tv_nsec);
}

/* ncclInt8 is 0, ncclFloat8e5m2 is 11. */
static ncclResult_t collective(const void *comm, int type) {
    if (comm != &only || type < 0 || type > 11) return ncclInvalidArgument;
    spend_us(depth ? 1 : 10);
    return ncclSuccess;
}

API ncclResult_t ncclCommInitAll(void **comm, int devices, const int *list) {
    (void)list;
    if (!comm || devices != 1) return ncclInvalidArgument;
    *comm = &only;
    return ncclSuccess;
}
API ncclResult_t ncclCommDestroy(void *comm) {
    return comm == &only ? ncclSuccess : ncclInvalidArgument;
}
API ncclResult_t ncclGroupStart(void) {
    depth++;
    return ncclSuccess;
}
API ncclResult_t ncclGroupEnd(void) {
    if (!depth) return ncclInvalidUsage;
    if (!--depth) spend_us(20);
    return ncclSuccess;
}
API ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream) {
    (void)send, (void)receive, (void)count, (void)op, (void)stream;
    return collective(comm, type);
}
API ncclResult_t ncclReduce(const void *send, void *receive, size_t count, int type, int op, int root, void *comm, void *stream) {
    (void)send, (void)receive, (void)count, (void)op, (void)stream;
    return root ? ncclInvalidArgument : collective(comm, type);
}
API ncclResult_t ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, void *comm, void *stream) {
    (void)send, (void)receive, (void)count, (void)stream;
    return root ? ncclInvalidArgument : collective(comm, type);
}
API ncclResult_t ncclBcast(void *buffer, size_t count, int type, int root, void *comm, void *stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
API ncclResult_t ncclAllGather(const void *send, void *receive, size_t count, int type, void *comm, void *stream) {
    (void)send, (void)receive, (void)count, (void)stream;
    return collective(comm, type);
}
API ncclResult_t ncclReduceScatter(const void *send, void *receive, size_t count, int type, int op, void *comm, void *stream) {
    (void)send, (void)receive, (void)count, (void)op, (void)stream;
    return collective(comm, type);
}
API ncclResult_t ncclSend(const void *send, size_t count, int type, int peer, void *comm, void *stream) {
    (void)send, (void)count, (void)stream;
    return peer ? ncclInvalidArgument : collective(comm, type);
}
API ncclResult_t ncclRecv(void *receive, size_t count, int type, int peer, void *comm, void *stream) {
    (void)receive, (void)count, (void)stream;
    return peer ? ncclInvalidArgument : collective(comm, type);
}
