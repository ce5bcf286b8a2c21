#!/bin/sh
# Runs every program of this directory on the simulation and compares what they print with what they must.
#
#   check.sh BUILD        exit status 0: all is well
#
# Each check is a function or a line of its own; a failure names it and the script goes on to the next.

build=$1
here=$(dirname "$0")
failed=0
out=$(mktemp)
trap 'rm -f "$out" "$out.list" "$out.truth"' EXIT

ok() { echo "ok      $1"; }
bad() { echo "FAILED  $1"; failed=1; }
verdict() { if [ "$1" = 0 ]; then ok "$2"; else bad "$2"; fi; }

# run NAME COMMAND...: must exit with 0; its output is kept for the next checks.
run() {
    name=$1
    shift
    "$@" > "$out" 2>&1
    verdict $? "$name"
}
# says "LINE": the last run printed exactly this line.
says() { grep -qx -- "$1" "$out" || { bad "  $name says: $1"; sed 's/^/        /' "$out" | grep -F -- "${1% *}"; }; }
# value "WORDS": the number after these words.
value() { sed -n "s/^$1 //p" "$out"; }
same() { [ "$(value "$1")" = "$(value "$2")" ] || bad "  $name: $1 ($(value "$1")) equals $2 ($(value "$2"))"; }

symbols() { nm -D --defined-only "$1" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | LC_ALL=C sort; }
# Functions of $1, named like $2, whose first instruction is not a push of rbp. (objdump names other code by the distance
# from the nearest symbol.)
without_push() {
    objdump -d --no-show-raw-insn "$1" | awk -v like="$2" '
        /^[0-9a-f]+ <.*[-+]0x[0-9a-f]+>:$/ { name = ""; next }
        /^[0-9a-f]+ <.*>:$/ { name = $2; gsub(/[<>:]/, "", name); sub(/@.*/, "", name); next }
        name != "" { if (name ~ like && !/push +%rbp/) print name; name = "" }'
}

# ---- the libraries ----
LC_ALL=C sort "$here/driver/functions.txt" > "$out.list"
symbols "$build/libcuda.so.1" | cmp -s - "$out.list"
verdict $? "libcuda exports the functions of the list and no other"
[ -z "$(nm -D --defined-only "$build/libcuda.so.1" | awk '{ print $1 }' | sort | uniq -d)" ]
verdict $? "each of them has an address of its own"
[ -z "$(nm "$build/libcuda.so.1" 2>/dev/null)" ] && readelf -n "$build/libcuda.so.1" | grep -q 'Build ID'
verdict $? "libcuda is stripped and has a build id"
for library in libcuda.so.1 libcudart.so.12 libcudart.so.13; do
    without=$(without_push "$build/$library" '^(cu|__cuda)')
    [ -z "$without" ]
    verdict $? "the functions of $library begin with push %rbp${without:+: not $without}"
    readelf -d "$build/$library" | grep -q "SONAME.*\[$library\]"
    verdict $? "$library has its SONAME"
done
for major in 12 13; do
    nm -D --with-symbol-versions "$build/libcudart.so.$major" | grep -q " cudaMalloc@@libcudart.so.$major$"
    verdict $? "cudaMalloc has the version libcudart.so.$major"
done
run "destructors find the driver shut down" "$build/workload_habits" at_exit
run "the driver's own tests" env CUDASIM_MEMORY=64M CUDASIM_FAST=1 "$build/driver_test"
cat "$out"

for library in libcupti.so.12 libcupti.so.13; do
    readelf -d "$build/$library" | grep -q "SONAME.*\[$library\]" && nm -D --with-symbol-versions "$build/$library" | grep -q " cuptiSubscribe@@$library$"
    verdict $? "$library has its SONAME and its version"
done
run "libcupti's own tests" "$build/cupti_test"
cat "$out"
rm -f "$out.truth"
run "libcupti's records add up" env CUPTI_MAJOR=12 CUDASIM_GPU_TRUTH="$out.truth" "$build/cupti_test" totals
sort "$out" > "$out.list"
sort "$out.truth" | cmp - "$out.list"
verdict $? "  to the totals that the driver keeps"
rm -f "$out.truth"

# ---- the workloads ----
run "workload_driver" "$build/workload_driver" --threads 3 --iterations 5
says "launches vector_add 15"
says "failed cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY 1"
says "failed cuMemFree_v2 CUDA_ERROR_INVALID_VALUE 1"
says "bytes leaked 0"
same "bytes allocated" "bytes freed"
same "count cuStreamCreate" "count cuStreamDestroy_v2"
run "workload_driver, 8 threads with 100000 calls each" env CUDASIM_FAST=1 "$build/workload_driver" --threads 8 \
    --iterations 0 --calls 100000 --call alloc --no-errors
says "count cuMemAlloc_v2 800008"
same "count cuMemAlloc_v2" "count cuMemFree_v2"
run "workload_driver leaks what it is told to" env CUDASIM_FAST=1 "$build/workload_driver" --leak 1000001 --no-errors
says "bytes leaked 1000001"
CUDASIM_MEMORY=64K "$build/workload_driver" > "$out" 2>&1
[ $? = 1 ] && grep -q CUDA_ERROR_OUT_OF_MEMORY "$out"
verdict $? "workload_driver on a device with 64 KiB gives up with CUDA_ERROR_OUT_OF_MEMORY"

for kind in 12 13 _static; do
    run "workload_runtime$kind" "$build/workload_runtime$kind" --threads 3 --iterations 5
    says "launches reduce_sum 15"
    says "count cudaLaunchKernel 76"
    says "failed cudaMalloc cudaErrorMemoryAllocation 1"
    says "failed cudaFree cudaErrorInvalidValue 1"
    says "failed cudaLaunchKernel cudaErrorInvalidValue 1"
    same "bytes allocated" "bytes freed"
    same "count __cudaPushCallConfiguration" "count __cudaPopCallConfiguration"
done
run "workload_runtime13 launches through handles" "$build/workload_runtime13"
says "count __cudaGetKernel 5"
same "count __cudaLaunchKernel" "count cudaLaunchKernel"
run "workload_runtime12, a tight loop of launches" env CUDASIM_FAST=1 "$build/workload_runtime12" --threads 4 --iterations 0 \
    --calls 20000 --call launch --no-errors
says "count cudaLaunchKernel 80000"
says "launches fill 80000"

run "workload_contexts" "$build/workload_contexts" 3 100 1
run "workload_gpu" env CUDASIM_GPU_TRUTH="$out.truth" "$build/workload_gpu" --threads 3 --graphs 5 --gap 1
says "gpu graph 60"
says "gpu gap 12 us 12000"
grep '^gpu' "$out" | grep -v '^gpu gap' | LC_ALL=C sort > "$out.list"
sed 's/ count / /; s/ total .*//; s/^/gpu /' "$out.truth" | LC_ALL=C sort | cmp - "$out.list"
verdict $? "  prints what the driver did"

run "managed memory" "$build/workload_habits" managed
says "planted managed cpu_faults 33"

# ---- the hard cases and the hammer ----
run "recurse" "$build/recurse" 50 10
says "count traced_recurse 50"
run "longjmp" "$build/longjmp" 7 5 10
says "count traced_jump 12"
says "unpaired traced_jump 7"
says "unpaired traced_outer 3"
run "thread_exit" "$build/thread_exit" 3 4
says "count traced_work 7"
says "returns traced_work 4"
run "fork_workload" env CUDASIM_FAST=1 "$build/fork_workload" 3 50
says "count cuCtxGetDevice 150"
run "marked" "$build/marked" 5
says "count plain 10"
says "count watched 0"
run "late_dlopen" "$build/late_dlopen" "$build/libcuda.so.1" cuDriverGetVersion 3
says "failed cuDriverGetVersion 0"
if [ ! -e /dev/nvidiactl ]; then
    "$build/ioctls" > "$out" 2>&1
    [ $? = 2 ] && grep -q '^/dev/nvidiactl: ' "$out"
    verdict $? "ioctls needs a kernel driver"
fi
for function in push nop5 endbr64 sub mov; do
    run "hammer $function" "$build/hammer" --function $function --threads 2 --calls 10000
    says "count hammer_$function 20000"
done

exit $failed
