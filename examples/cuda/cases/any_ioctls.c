// Makes ioctls of NVIDIA's driver on two files, and prints how many of each: `any_ioctls /dev/nvidiactl /dev/nvidia-uvm`.
// Any device will do: a tracer sees the calls, and a driver that does not know them refuses them.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct control { uint32_t client, object, cmd, flags; uint64_t params; uint32_t params_size, status; };
struct alloc { uint32_t root, parent, object, class; uint64_t params, rights; uint32_t params_size, flags, status, pad; };
struct old_alloc { uint32_t root, parent, object, class; uint64_t params; uint32_t params_size, status; };
struct carried { uint32_t cmd, size; uint64_t ptr; };
struct range { uint64_t base, length; uint32_t status, pad; };
struct migrate {
    uint64_t base, length;
    unsigned char uuid[16];
    uint32_t flags, pad;
    uint64_t semaphore;
    uint32_t payload;
    int32_t node;
    uint64_t start, bytes;
    uint32_t status, pad2;
};

static int opened(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: any_ioctls DEVICE UVM_DEVICE\n");
        return 2;
    }
    // A descriptor that is a copy belongs to the same file.
    int driver = dup(opened(argv[1])), uvm = opened(argv[2]), other = opened("/proc/self/comm");
    struct control control = { 0xc1d00001, 7, 0x20800102, 0, 0x1000, 24, 0x1f };
    struct alloc alloc = { 1, 2, 3, 0x90f1, 0x2000, 0, 8, 0, 0, 0 };
    struct old_alloc old = { 1, 2, 4, 0x80, 0x3000, 56, 0x1a };
    struct carried carried = { 0x2a, sizeof control, (uintptr_t)&control };
    struct range range = { 0x7f0000000000, 4096, 0, 0 };
    struct migrate migrate = { .base = 0x7f0000200000, .length = 2 << 20, .uuid = "GPU-0123456789ab", .status = 0x1f };
    for (int i = 0; i < 2; i++) ioctl(driver, _IOWR('F', 0x2a, struct control), &control);
    ioctl(driver, _IOWR('F', 211, struct carried), &carried);
    ioctl(driver, _IOWR('F', 0x2b, struct alloc), &alloc);
    ioctl(driver, _IOWR('F', 0x2b, struct old_alloc), &old);
    ioctl(uvm, 73, &range);
    ioctl(uvm, 51, &migrate);
    ioctl(uvm, 0x30000002, NULL);
    // The same commands on another file, and a terminal's command on the devices.
    ioctl(other, _IOWR('F', 0x2a, struct control), &control);
    ioctl(other, 73, &range);
    struct { char bytes[64]; } settings;
    ioctl(driver, 0x5401, &settings);
    ioctl(uvm, 0x5401, &settings);
    printf("made NV_ESC_RM_CONTROL 3\nmade NV_ESC_RM_ALLOC 2\nmade UVM_CREATE_EXTERNAL_RANGE 1\nmade UVM_MIGRATE 1\n"
           "made UVM_DEINITIALIZE 1\n");
    return 0;
}
