/* Loads a library into the process by a thread of its own; see `load.rs`, which describes the same words. */

enum { SYS_CLOSE = 3, SYS_FSTAT = 5, SYS_RT_SIGPROCMASK = 14, SYS_SENDTO = 44, SYS_RECVFROM = 45, SYS_SHUTDOWN = 48 };
enum { SIG_SETMASK = 2, SHUT_RDWR = 2, RTLD_NOW = 2, EINTR = 4, MSG_NOSIGNAL = 0x4000 };
enum { REQUESTED = 1, CLAIMED = 2 };
enum { BEGINS = 1, LOADED = 2 };

struct descriptor { u64 number, device, inode; };

struct load {
    u32 state, running;
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

/* A thread of the C library, which has blocked the program's signals. */
EXPORT void *run_load(struct load *load) {
    int (*attach)(int) = NULL;
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
    __atomic_sub_fetch(&load->running, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Starts the thread, unless another call does. `running` counts both, so that the region stays until they have returned to it. */
EXPORT void begin_load(struct load *load, void *(*run)(void *)) {
    u32 requested = REQUESTED;
    u64 thread, before;
    if (!__atomic_compare_exchange_n(&load->state, &requested, CLAIMED, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    __atomic_add_fetch(&load->running, 2, __ATOMIC_SEQ_CST);
    system_call(SYS_RT_SIGPROCMASK, SIG_SETMASK, (long)&load->blocked, (long)&before, 8, 0, 0);
    if (!load->pthread_create(&thread, NULL, run, load)) {
        load->pthread_detach(thread);
    } else {
        close_descriptor(&load->library);
        close_socket(&load->socket);
        __atomic_sub_fetch(&load->running, 1, __ATOMIC_SEQ_CST);
    }
    system_call(SYS_RT_SIGPROCMASK, SIG_SETMASK, (long)&before, 0, 8, 0, 0);
    __atomic_sub_fetch(&load->running, 1, __ATOMIC_SEQ_CST);
}
