// Speaks to the tracer in place of an agent. liar TRACER SECRET PACKET [COUNT]
//   TRACER   pid of the tracer, or 0: the tracer of which CUDA_INJECTION64_PATH names the agent's file
//   SECRET   right, wrong, none
//   PACKET   none, escapes, numbers, falls, random
//   COUNT    connections
// Built with -DKINDS=N, the number of kinds of records. Prints "sent N" where the tracer has accepted N packets.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "cudatrace_gpu_"
#define NAME 56

struct address { uint32_t pid, length; char name[NAME]; unsigned char secret[16]; };
struct report {
    uint32_t state, status, version, kind, had_context, operators;
    uint64_t passed[KINDS], dropped, refused, without_time, clock_steps, missed;
    char holder[32];
};

// The address in the file of the agent.
static int from_file(const char *path, struct address *address) {
    static char bytes[1 << 20];
    int file = open(path, O_RDONLY);
    ssize_t size = file < 0 ? -1 : read(file, bytes, sizeof bytes);
    close(file);
    for (ssize_t at = 0; at + (ssize_t)sizeof *address <= size; at++) {
        memcpy(address, bytes + at, sizeof *address);
        if (!memcmp(address->name, PREFIX, strlen(PREFIX)) && address->length < NAME) return 1;
    }
    return 0;
}

// The same, in the memory of a tracer.
static int from_tracer(const char *pid, struct address *address) {
    char path[600], link[600];
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/%s/fd/%s", pid, entry->d_name);
        ssize_t length = readlink(path, link, sizeof link - 1);
        if (length > 0 && !memcmp(link, "/memfd:cudatrace-gpu", 20) && from_file(path, address)) return 1;
    }
    return 0;
}

// What any user can find.
static int from_kernel(const char *pid, struct address *address) {
    char line[400], *name, wanted[64];
    FILE *sockets = fopen("/proc/net/unix", "r");
    snprintf(wanted, sizeof wanted, PREFIX "%s_", pid);
    while (sockets && fgets(line, sizeof line, sockets)) {
        if (!(name = strstr(line, wanted))) continue;
        name[strcspn(name, "\n")] = 0;
        address->length = strlen(name);
        memcpy(address->name, name, address->length);
        return 1;
    }
    return 0;
}

static int dial(const struct address *address) {
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    memcpy(to.sun_path + 1, address->name, address->length);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (fd >= 0 && connect(fd, (void *)&to, 3 + address->length) == 0) return fd;
    close(fd);
    return -1;
}

static int sent;
static void put(int fd, const void *bytes, size_t size) { sent += send(fd, bytes, size, MSG_NOSIGNAL) >= 0; }

static void lie(int fd, const char *what) {
    static const uint64_t numbers[] = { 0, 0, 0, 1, 100, ~0ull, 1ull << 63, 0x1000 };
    struct report report = { .state = 3, .version = 130001, .passed = { 1 } };
    if (!strcmp(what, "escapes")) {
        report = (struct report){ .state = 2, .status = 39, .version = 28 };
        memcpy(report.holder, "\x1b]0;PWNED\x07\x1b[31mroot# \n\x1b[2J\xc2\x9b", 28);
        put(fd, &report, sizeof report);
    } else if (!strcmp(what, "numbers")) {
        report.passed[0] = report.dropped = 1ull << 63;
        put(fd, &report, sizeof report);
    } else if (!strcmp(what, "falls")) {
        put(fd, &report, sizeof report);
        report.passed[0] = 0;
        put(fd, &report, sizeof report);
    } else if (!strcmp(what, "random")) {
        for (int packet = rand() % 4; packet >= 0; packet--) {
            uint64_t *words = (uint64_t *)&report;
            report.state = rand() % 8;
            report.version = (uint32_t[]){ 0, 28, 130001, ~0u }[rand() % 4];
            for (size_t at = 2; at < sizeof report / 8; at++) words[at] = numbers[rand() % 8];
            put(fd, &report, rand() % 3 ? sizeof report : rand() % sizeof report);
        }
    }
}

int main(int argc, char **argv) {
    struct address address = { 0 };
    unsigned char request[8192];
    int count = argc > 4 ? atoi(argv[4]) : 1;
    int is_known = strcmp(argv[2], "right") ? 0 : 1;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    struct timespec tick = { 0, 20000000 };
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    srand(count);
    // The tracer may not have begun.
    for (int tries = 0;; tries++) {
        if (!strcmp(argv[1], "0") ? from_file(path, &address)
                                  : (is_known ? from_tracer : from_kernel)(argv[1], &address)) break;
        if (tries > 500) return printf("no tracer\n"), 1;
        nanosleep(&tick, NULL);
    }
    if (!is_known) memset(address.secret, 'x', sizeof address.secret);
    for (int connection = 0, failed = 0; connection < count && failed < 20; connection++) {
        int fd = dial(&address);
        if (fd < 0) {
            failed++;
            nanosleep(&tick, NULL);
            continue;
        }
        if (strcmp(argv[2], "none")) put(fd, address.secret, sizeof address.secret);
        // The tracer's request comes after the secret alone.
        if (is_known && strcmp(argv[3], "none")) recv(fd, request, sizeof request, 0);
        lie(fd, argv[3]);
        // Many connections stay open.
        if (count < 100 || !strcmp(argv[3], "random")) {
            nanosleep(&tick, NULL);
            close(fd);
        }
    }
    printf("sent %d\n", sent);
    fflush(stdout);
    // The tracer looks at the process.
    sleep(1);
    return 0;
}
