"""Does cudatrace count the ioctls that a PyTorch program makes on the files of NVIDIA's driver?

    python3 ioctls.py path/to/cudatrace [COMMAND ...]

The job starts PyTorch and computes a little on the GPU; COMMAND is another one. A preloaded library, compiled here with gcc, counts its
ioctls on /dev/nvidia* by the path of the descriptor, in the same run in which cudatrace counts them by the device. A failed check is
printed with both numbers; the exit status is their count.
"""
import collections
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

FAILED = []

# Slots of the shared file, 8 bytes each: counts by ioctl, then pairs of a control command and its count.
IOCTLS = 1 << 16
COMMANDS = 1 << 12
# Ioctls of nvidia-uvm from 0x30000000 on, other commands on either device, and calls that failed.
UVM_BASE, OTHERS, FAILURES, REFUSED = 0x7000, 0x7f00, 0x7f01, 0x7f02

COUNTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t *counts;

__attribute__((constructor)) static void open_counts(void) {
    int fd = open(getenv("IOCTL_COUNTS"), O_RDWR | O_CLOEXEC);
    void *found = mmap(NULL, 8 * (IOCTLS + 2 * COMMANDS), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    counts = found == MAP_FAILED ? NULL : found;
    close(fd);
}

static void add(uint32_t slot) { __atomic_fetch_add(&counts[slot], 1, __ATOMIC_RELAXED); }

static void add_command(uint32_t command) {
    uint64_t *pairs = counts + IOCTLS;
    for (uint32_t at = command * 2654435761u % COMMANDS;; at = (at + 1) % COMMANDS) {
        uint64_t free = 0;
        if (__atomic_compare_exchange_n(&pairs[2 * at], &free, command + 1ull, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)
            || free == command + 1ull) {
            __atomic_fetch_add(&pairs[2 * at + 1], 1, __ATOMIC_RELAXED);
            return;
        }
    }
}

static void count(const char *path, uint32_t command, void *arg, int result) {
    if (strncmp(path, "/dev/nvidia-uvm", 15) == 0) {
        int known = command < 4096 || command >> 4 == 0x3000000;
        add(!known ? OTHERS : command < 4096 ? command : UVM_BASE + (command & 15));
        if (known && result < 0) add(FAILURES);
        return;
    }
    if (((command >> 8) & 255) != 'F') return add(OTHERS);
    uint32_t number = command & 255, size = command >> 16 & 16383;
    if (number == 211) {
        uint32_t *carried = arg;
        number = carried[0], size = carried[1];
        arg = (void *)*(uint64_t *)&carried[2];
    }
    add(0x4600 | number);
    if (result < 0) add(FAILURES);
    if (number == 0x2a && size >= 32) {
        add_command(((uint32_t *)arg)[2]);
        if (((uint32_t *)arg)[7]) add(REFUSED);
    }
}

int ioctl(int fd, unsigned long command, ...) {
    static int (*next)(int, unsigned long, void *);
    if (!next) next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
    va_list list;
    va_start(list, command);
    void *arg = va_arg(list, void *);
    va_end(list);
    char link[64], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    int result = next(fd, command, arg);
    if (length > 0 && counts) {
        path[length] = 0;
        if (strncmp(path, "/dev/nvidia", 11) == 0) count(path, command, arg, result);
    }
    return result;
}
"""

SCRIPT = """
ioctl:nvidia:*, ioctl:nvidia-uvm:* {
    @calls[(uint32)args.name] = count();
    @names[args.name] = count();
    if (retval < 0) { @failed = count(); }
}
ioctl:nvidia:NV_ESC_RM_CONTROL {
    @commands[(uint32)args.cmd] = count();
    @command_names[args.cmd] = count();
    if (args.status != NV_OK) { @refused = count(); }
}
"""


def job():
    """Starts PyTorch and computes a little."""
    import torch

    print(float(torch.ones(1 << 20, device="cuda").sum()))


def check(what, got, expected):
    """Prints a comparison and notes a failure."""
    ok = got == expected
    print(f"{'ok    ' if ok else 'FAILED'} {what}: {got!r}" + ("" if ok else f", expected {expected!r}"), flush=True)
    if not ok:
        FAILED.append(what)


def maps(output):
    """All maps of a run with `-f json`."""
    found = collections.defaultdict(dict)
    for line in output.splitlines():
        record = json.loads(line) if line.startswith('{"type"') else {}
        if record.get("type") == "map":
            found |= record["data"]
    return found


def counted(file):
    """Counts of ioctls, of others, failed and refused calls, and counts of control commands, from the shared file."""
    words = struct.unpack(f"{IOCTLS + 2 * COMMANDS}Q", file.read_bytes())
    slots = {slot: count for slot, count in enumerate(words[:IOCTLS]) if count}
    others, failed, refused = (slots.pop(slot, 0) for slot in (OTHERS, FAILURES, REFUSED))
    calls = {slot if slot < UVM_BASE else 0x30000000 + slot - UVM_BASE: count for slot, count in slots.items()}
    pairs = words[IOCTLS:]
    commands = {pairs[at] - 1: pairs[at + 1] for at in range(0, len(pairs), 2) if pairs[at]}
    return calls, others, failed, refused, commands


def main(cudatrace, command):
    command = command or [sys.executable, os.path.abspath(__file__), "--job"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "counter.c").write_text(COUNTER)
        names = {"IOCTLS": IOCTLS, "COMMANDS": COMMANDS, "UVM_BASE": UVM_BASE, "OTHERS": OTHERS,
                 "FAILURES": FAILURES, "REFUSED": REFUSED}
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", *(f"-D{name}={value}" for name, value in names.items()),
                        "-o", folder / "counter.so", folder / "counter.c", "-ldl"], check=True)
        file = folder / "counts"
        file.write_bytes(bytes(8 * (IOCTLS + 2 * COMMANDS)))
        # The first program on a machine loads the driver for unified memory, whose devices must be known.
        subprocess.run(command, stdout=subprocess.DEVNULL, timeout=600, check=False)
        preload = ["env", f"LD_PRELOAD={folder / 'counter.so'}", f"IOCTL_COUNTS={file}"]
        done = subprocess.run([cudatrace, "-q", "-f", "json", "-e", SCRIPT, "--", *preload, *command],
                              stdout=subprocess.PIPE, text=True, timeout=600)
        calls, others, failed, refused, commands = counted(file)
    check("cudatrace ended well", done.returncode, 0)
    found = maps(done.stdout)
    number = lambda counts: {int(key): count for key, count in counts.items()}
    check("ioctls", sum(found["@calls"].values()), sum(calls.values()))
    check("some", sum(calls.values()) > 0, True)
    seen = number(found["@calls"])
    for name in sorted(set(seen) | set(calls)):
        check(f"ioctl {name:#x}", seen.get(name, 0), calls.get(name, 0))
    check("control commands", number(found["@commands"]), commands)
    check("failed system calls", found["@failed"] or 0, failed)
    check("control commands that the driver refused", found["@refused"] or 0, refused)
    unnamed = [name for kind in ("@names", "@command_names") for name in found[kind] if name.isdigit()]
    print(f"       {others} ioctls on these files are none of the driver's; without a name: {unnamed or 'none'}")
    for kind in ("@names", "@command_names"):
        for name, count in sorted(found[kind].items(), key=lambda row: -row[1]):
            print(f"{count:8}  {name}")
    return len(FAILED)


if __name__ == "__main__":
    if sys.argv[1:] == ["--job"]:
        job()
    else:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
