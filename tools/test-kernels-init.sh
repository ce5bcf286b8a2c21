#!/bin/busybox sh
# The first process of a machine that tools/test-kernels.sh boots: runs the live tests, or a command, and powers off.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t devtmpfs dev /dev
ln -s /proc/self/fd /dev/fd
# What systemd allows; before Linux 6.6 each function that is probed is an open file.
ulimit -n 524288
ln -s /proc/self/fd/1 /dev/stdout
# The stand-in for NVIDIA's driver, and the device files that NVIDIA's own tool makes.
if [ -e /lib/modules/nvidia-uvm.ko ]; then
    insmod /lib/modules/nvidia.ko
    insmod /lib/modules/nvidia-uvm.ko
    mknod -m 666 /dev/nvidiactl c 195 255
    mknod -m 666 /dev/nvidia0 c 195 0
    mknod -m 666 /dev/nvidia-uvm c "$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)" 0
fi
# A case may wait minutes for the single uprobes of the case before it, which Linux 6.1 removes one by one.
export PATH=/bin HOME=/root CUDATRACE_LIVE=required CUDATRACE_LIVE_SECONDS=240 CUDATRACE_LIVE_LOG=/dev/console \
    CUDATRACE_LIVE_CASES="$(cat /etc/cases)" CUDATRACE_LIVE_ORDER=/etc/order
{
    echo "kernel $(uname -r)"
    if [ -e /etc/command ]; then
        (cd "$(cat /etc/root)" && sh /etc/command 2>&1)
        echo "command ended with $?"
    else
        "$(cat /etc/runner)" --test-threads=1 --color=never 2>&1
        echo "runner ended with $?"
    fi
} >/dev/ttyS1
poweroff -f
