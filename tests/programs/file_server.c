// A file server (FUSE) and its client in one program. Before each answer about a file the server executes another program, as one
// that needs a helper does: a process that opens its files while it cannot execute anything waits forever.
//
// file_server DIRECTORY   mounts there, lets a child map and execute files of it, and prints how long that took in ms
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char CONTENT[] = "#!/bin/true\n";

static void ask_a_helper(void) {
    pid_t helper = fork();
    if (helper == 0) {
        execl("/bin/true", "true", (char *)0);
        _exit(1);
    }
    waitpid(helper, 0, 0);
}

static void fill(struct fuse_attr *attr, unsigned long node) {
    attr->ino = node;
    attr->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0755;
    attr->nlink = 1;
    attr->size = node == FUSE_ROOT_ID ? 0 : sizeof CONTENT - 1;
    attr->blksize = 4096;
}

static void reply(int fuse, unsigned long unique, int error, const void *data, size_t size) {
    char buffer[8192];
    struct fuse_out_header out = {sizeof out + size, error, unique};
    memcpy(buffer, &out, sizeof out);
    memcpy(buffer + sizeof out, data, size);
    if (write(fuse, buffer, out.len) < 0 && errno != ENOENT) perror("reply");
}

static void serve(int fuse) {
    static char buffer[1 << 20];
    while (read(fuse, buffer, sizeof buffer) > 0) {
        struct fuse_in_header *in = (void *)buffer;
        switch (in->opcode) {
        case FUSE_INIT: {
            struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = 4096};
            reply(fuse, in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_LOOKUP: {
            struct fuse_entry_out out = {.nodeid = 2};
            ask_a_helper();
            fill(&out.attr, 2);
            reply(fuse, in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_GETATTR: {
            struct fuse_attr_out out = {0};
            ask_a_helper();
            fill(&out.attr, in->nodeid);
            reply(fuse, in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_OPEN: {
            struct fuse_open_out out = {0};
            reply(fuse, in->unique, 0, &out, sizeof out);
            break;
        }
        case FUSE_READ:
            reply(fuse, in->unique, 0, CONTENT, sizeof CONTENT - 1);
            break;
        case FUSE_FORGET:
        case FUSE_BATCH_FORGET:
            break;
        default:
            reply(fuse, in->unique, in->opcode == FUSE_RELEASE || in->opcode == FUSE_FLUSH ? 0 : -ENOSYS, "", 0);
        }
    }
}

static int client(const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/plug", directory);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) return 1;
    pid_t script = fork();
    if (script == 0) {
        execl(path, "plug", (char *)0);
        _exit(2);
    }
    int status;
    waitpid(script, &status, 0);
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    char options[128];
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (argc < 2 || fuse < 0) return perror("/dev/fuse"), 77;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
    if (mount("server", argv[1], "fuse", MS_NODEV, options)) return perror("mount"), 77;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pid_t server = fork();
    if (server == 0) serve(fuse), _exit(0);
    close(fuse);
    pid_t user = fork();
    if (user == 0) _exit(client(argv[1]));
    int status;
    waitpid(user, &status, 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    umount2(argv[1], MNT_DETACH);
    waitpid(server, 0, 0);
    printf("%ld ms, status %d\n", (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000,
           WEXITSTATUS(status));
    return 0;
}
