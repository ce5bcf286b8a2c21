/* Loads a library into the process by a thread of its own; see `load.rs`, which describes the same words. */

enum { SYS_CLOSE = 3, SYS_FSTAT = 5, SYS_SENDTO = 44, SYS_RECVFROM = 45, SYS_SHUTDOWN = 48 };
enum { SYS_FUTEX = 202, FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };
enum { SIG_SETMASK = 2, SHUT_RDWR = 2, RTLD_NOW = 2, EINTR = 4, MSG_NOSIGNAL = 0x4000 };
enum { DONE = 0, REQUESTED = 1, CLAIMED = 2, WAITED_FOR = 3 };
/* How long calls wait for the library: a wait in milliseconds, and their number. */
enum { WAIT = 10, WAITS = 200 };
enum { BEGINS = 1, LOADED = 2 };

struct descriptor { u64 number, device, inode; };

struct load {
    u32 state, running, loader, unused;
    struct descriptor library, socket;
    int (*pthread_create)(u64 *thread, const void *attributes, void *(*start)(void *), void *argument);
    int (*pthread_detach)(u64 thread);
    void *(*dlopen)(const char *path, int mode);
    void *(*dlsym)(void *library, const char *name);
    u64 blocked;
    char symbol[24], path[112];
};

/* Whether the program has not closed it. */
static int is_there(const struct descriptor *descriptor) {
    /* struct stat begins with the device and the inode. */
    u64 stat[18];
    return !system_call(SYS_FSTAT, descriptor->number, (long)stat, 0, 0, 0, 0) && stat[0] == descriptor->device && stat[1] == descriptor->inode;
}

static void close_descriptor(const struct descriptor *descriptor) {
    if (is_there(descriptor))
        system_call(SYS_CLOSE, descriptor->number, 0, 0, 0, 0, 0);
}

/* The tracer sees the end of the connection, also if a child of fork(2) has the socket. */
static void close_socket(const struct descriptor *socket) {
    if (is_there(socket))
        system_call(SYS_SHUTDOWN, socket->number, SHUT_RDWR, 0, 0, 0, 0);
    close_descriptor(socket);
}

static void send_packet(const struct load *load, u8 packet) {
    system_call(SYS_SENDTO, load->socket.number, (long)&packet, 1, MSG_NOSIGNAL, 0, 0);
}

/* Waits for the tracer, which stops the other threads. False if it has ended. */
static int may_begin(const struct load *load) {
    u8 answer;
    long got;
    send_packet(load, BEGINS);
    do
        got = system_call(SYS_RECVFROM, load->socket.number, (long)&answer, 1, 0, 0, 0);
    while (got == -EINTR);
    return got == 1;
}

/* Lets the calls go on that wait. */
static void end_load(struct load *load) {
    __atomic_store_n(&load->state, DONE, __ATOMIC_SEQ_CST);
    system_call(SYS_FUTEX, (long)&load->state, FUTEX_WAKE_PRIVATE, 0x7fffffff, 0, 0, 0);
}

/* A thread of the C library, which has blocked the program's signals. */
EXPORT void *run_load(struct load *load) {
    int (*attach)(int) = NULL;
    __atomic_store_n(&load->loader, system_call(SYS_GETTID, 0, 0, 0, 0, 0, 0), __ATOMIC_SEQ_CST);
    if (is_there(&load->library) && is_there(&load->socket) && may_begin(load)) {
        void *library = load->dlopen(load->path, RTLD_NOW);
        if (library)
            attach = (int (*)(int))load->dlsym(library, load->symbol);
        send_packet(load, LOADED);
    }
    close_descriptor(&load->library);
    if (attach)
        attach(load->socket.number);
    else
        close_socket(&load->socket);
    end_load(load);
    __atomic_sub_fetch(&load->running, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Starts the thread. `running` counts both, so that the region stays until they have returned to it. */
static void start_load(struct load *load, void *(*run)(void *)) {
    u64 thread, before;
    __atomic_add_fetch(&load->running, 2, __ATOMIC_SEQ_CST);
    system_call(SYS_RT_SIGPROCMASK, SIG_SETMASK, (long)&load->blocked, (long)&before, 8, 0, 0);
    if (!load->pthread_create(&thread, NULL, run, load)) {
        load->pthread_detach(thread);
    } else {
        close_descriptor(&load->library);
        close_socket(&load->socket);
        end_load(load);
        __atomic_sub_fetch(&load->running, 1, __ATOMIC_SEQ_CST);
    }
    system_call(SYS_RT_SIGPROCMASK, SIG_SETMASK, (long)&before, 0, 8, 0, 0);
    __atomic_sub_fetch(&load->running, 1, __ATOMIC_SEQ_CST);
}

/* Loads the library, unless another call does, and waits until it is there: what the call does is not missed then. The library's own calls do
 * not wait. When one call has waited for long, no other does: its thread may hold a lock that the loader needs. */
EXPORT void begin_load(struct load *load, void *(*run)(void *)) {
    u32 requested = REQUESTED, claimed = CLAIMED;
    struct { i64 seconds, nanoseconds; } wait = {0, WAIT * 1000000};
    if (__atomic_compare_exchange_n(&load->state, &requested, CLAIMED, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        start_load(load, run);
    for (int i = 0; i < WAITS && __atomic_load_n(&load->state, __ATOMIC_SEQ_CST) == CLAIMED; i++) {
        if (system_call(SYS_GETTID, 0, 0, 0, 0, 0, 0) == __atomic_load_n(&load->loader, __ATOMIC_SEQ_CST))
            return;
        system_call(SYS_FUTEX, (long)&load->state, FUTEX_WAIT_PRIVATE, CLAIMED, (long)&wait, 0, 0);
    }
    __atomic_compare_exchange_n(&load->state, &claimed, WAITED_FOR, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
