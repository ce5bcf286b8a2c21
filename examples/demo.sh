#!/bin/bash
# Traces the workload, on the real GPU if there is one, else on the simulated CUDA.
set -eu
cudatrace=$(realpath "$1")
cd "$(dirname "$0")/build"
export LD_LIBRARY_PATH=$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
workload=./workload_driver
if [ -e /dev/nvidiactl ] && driver=$(ldconfig -p | awk '/libcuda.so.1 /{print $NF; exit}') && [ -n "$driver" ]; then
    echo "== a real GPU: $driver"
    mkdir -p gpu && cp -f workload_driver gpu/
    export LD_LIBRARY_PATH=$(dirname "$driver")
    workload=./gpu/workload_driver
else
    echo "== no GPU here: the simulated CUDA in $PWD"
fi
if [ "$(id -u)" != 0 ]; then
    echo "tracing needs root: try sudo make demo" >&2
    exit 1
fi
quiet() { sed '/^count \|^bytes \|^failed \|^total /d'; }
step() { printf '\n== %s\n$ cudatrace %s -- %s\n' "$1" "$2" "$workload"; }

step "allocations: size, duration and result of each call" "memory"
"$cudatrace" memory -- $workload | quiet | head -n 15
step "how long the calls take" "-e 'uretprobe:libcuda:cuMemcpy* { @us[func] = hist(duration / 1000) }'"
"$cudatrace" -e 'uretprobe:libcuda:cuMemcpy* { @us[func] = hist(duration / 1000) }' -- $workload | quiet
step "launches by kernel name" "kernels"
"$cudatrace" kernels -- $workload | quiet
step "calls that failed" "errors"
"$cudatrace" errors -- $workload | quiet
