#!/bin/busybox sh
# The first process of a machine that scripts/test-kernels.sh boots: runs the live tests and powers off.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
ln -s /proc/self/fd /dev/fd
# What systemd allows; before Linux 6.6 each function that is probed is an open file.
ulimit -n 524288
ln -s /proc/self/fd/1 /dev/stdout
export PATH=/bin HOME=/root CUDATRACE_LIVE=required CUDATRACE_LIVE_SECONDS=120 CUDATRACE_LIVE_CASES="$(cat /etc/cases)" CUDATRACE_LIVE_ORDER=/etc/order
{
    echo "kernel $(uname -r)"
    "$(cat /etc/runner)" --test-threads=1 --color=never 2>&1
    echo "runner ended with $?"
} >/dev/ttyS1
poweroff -f
