#!/bin/sh
# `gpu:` probes on a real GPU, with PyTorch: the times against CUDA events and torch.profiler, attaching to a running job, and the price.
# Usage: examples/pytorch/gpu.sh CUDATRACE PYTHON [truth] [late] [price] [joins] [ranges] [record] [bare] [detached] [held] [children]
#        [prompt] [threads]
set -u
tool=$1 python=$2
shift 2
here=$(dirname "$0")
work="$python $here/gpu_work.py"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

truth() {
    echo "== truth: 100 products of matrices, by CUDA events and by gpu:kernel"
    $tool -q -e 'gpu:kernel { @count[kernel_name(args.kernel, full)] = count(); @us[kernel_name(args.kernel, full)] = sum(args.duration) }' \
        -o "$out/maps" -- $work truth
    grep gemm "$out/maps"
    echo "== the same work by torch.profiler"
    $work profiled 2>/dev/null | sort -k3 -n | tail -8
    echo "== all kernels by gpu:kernel"
    cut -c1-150 "$out/maps"
    $tool gpu -- $work truth
    $tool copies -- $work truth | head -6
    $tool delay --hists=1 -- $work truth | head -12
}

late() {
    echo "== late: a job that runs, twice; the longest operation of each second"
    $work loop 14 > "$out/loop" &
    job=$!
    while ! grep -q running "$out/loop"; do sleep 0.2; done
    sleep 2
    for round in 1 2; do
        date +"attached %S.%N"
        $tool -e 'gpu:kernel { @n = count(); if (@first == 0) { @first = 1; printf("first record after %d ms\n", elapsed / 1000000) } }
            interval:s:2 { exit() }' -p $job
        date +"detached %S.%N"
        sleep 1
    done
    wait $job
    cat "$out/loop"
}

price() {
    echo "== price: us of an operation, of a graph's replay, of a training step; rounds of all ways in turn"
    for round in 1 2 3 4; do
        echo "nothing          $($work price)"
        echo "count            $($tool -q -e 'gpu:kernel { @ = count() }' -o "$out/x" -- $work price)"
        echo "gpu              $($tool -q gpu -o "$out/x" -- $work price)"
        echo "gpu, in process  $($tool -q --in-process gpu -o "$out/x" -- $work price)"
        echo "graphs as one    $($tool -q -e 'gpu:graph { @ = hist(args.duration) }' -o "$out/x" -- $work price)"
    done
}

joins() {
    echo "== joins: what records know of their launch"
    $tool -e 'cuda:launch { @of[corr] = tid; @launches = count() }
        gpu:kernel { @kernels[func, tid == pid] = count(); if ((uint64)@of[corr] == tid) { @same = count() } else { @other = count() } }
        gpu:mem* { @copies[probe, func] = count() } gpu:sync { @waits[args.type, func] = count() } END { clear(@of) }' -- $work truth
    $tool -e 'gpu:kernel { @ns[ustack(6)] = sum(args.duration); if (len(ustack) > 6) { @deep = count() } else { @flat = count() } }
        gpu:memcpy { @copied[ustack(3)] = sum(args.bytes) }' -- $work truth
    $tool idle --sites --top=3 -- $work truth
    echo "== price of joins: us"
    for round in 1 2 3; do
        echo "nothing             $($work price)"
        echo "count               $($tool -q -e 'gpu:kernel { @ = count() }' -o "$out/x" -- $work price)"
        echo "tid, func           $($tool -q -e 'gpu:kernel { @[tid, func] = count() }' -o "$out/x" -- $work price)"
        echo "corr                $($tool -q -e 'cuda:launch { @of[corr] = nsecs } gpu:kernel { @ = count(); delete(@of, corr) }' -o "$out/x" -- $work price)"
        echo "corr, in process    $($tool -q --in-process -e 'cuda:launch { @of[corr] = nsecs } gpu:kernel { @ = count(); delete(@of, corr) }' -o "$out/x" -- $work price)"
        echo "ustack(16)          $($tool -q -e 'gpu:kernel { @[ustack(16)] = count() }' -o "$out/x" -- $work price)"
        echo "ustack, in process  $($tool -q --in-process -e 'gpu:kernel { @[ustack(16)] = count() }' -o "$out/x" -- $work price)"
    done
}

ranges() {
    echo "== ranges: training steps; a backward launches in a thread of its own, which has no range"
    $tool nvtx --kernels --top=8 -- $work ranges
}

record() {
    echo "== record: rows of the GPU, with arrows from the launches; the price of a training step"
    $tool record --gpu --export jsonl="$out/r.jsonl" --export chrome="$out/r.json" --export perfetto="$out/r.pftrace" -- $work truth
    $tool report "$out/r.jsonl" --html "$out/r.html"
    $python - "$out/r.json" << 'END'
import json, sys
rows = json.load(open(sys.argv[1]))["traceEvents"]
calls = {row["args"]["correlation"] for row in rows if row.get("cat") == "cuda_driver"}
kernels = [row for row in rows if row.get("cat") == "kernel"]
print(len(kernels), "kernels,", sum(row["args"]["correlation"] in calls for row in kernels), "with their launch")
END
    for round in 1 2 3; do
        echo "nothing       $($work price)"
        echo "record        $($tool -q record --export jsonl=/dev/null -- $work price)"
        echo "record --gpu  $($tool -q record --gpu --export jsonl=/dev/null -- $work price)"
    done
}

bare() {
    echo "== bare: the price beside that of CUPTI alone with the same kind of records, and of torch.profiler; us"
    gcc -O2 -shared -fPIC "$here/bare_cupti.c" -o "$out/bare.so" -ldl
    BARE_CUPTI=$($python -c 'import glob, sysconfig; print(glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/**/libcupti.so.1[23]", recursive=True)[0])')
    export BARE_CUPTI
    for round in 1 2 3 4; do
        echo "nothing          $($work price)"
        echo "CUPTI alone      $(CUDA_INJECTION64_PATH="$out/bare.so" $work price 2>/dev/null)"
        echo "count            $($tool -q -e 'gpu:kernel { @ = count() }' -o "$out/x" -- $work price)"
        echo "gpu              $($tool -q gpu -o "$out/x" -- $work price)"
        echo "torch.profiler   $($work profiled_price 2>/dev/null)"
    done
    CUDA_INJECTION64_PATH="$out/bare.so" $work price
}

detached() {
    echo "== detached: a job before, during and after a trace; launches in each second"
    $work loop 24 > "$out/loop" &
    job=$!
    while ! grep -q running "$out/loop"; do sleep 0.2; done
    sleep 7
    $tool -q -e 'gpu:kernel { @n = count() } interval:s:7 { exit() }' -p $job
    wait $job
    cat "$out/loop"
}

held() {
    echo "== held: torch.profiler has CUPTI, and keeps it"
    $work held > "$out/held" &
    job=$!
    while ! grep -q profiling "$out/held"; do sleep 0.2; done
    $tool -e 'gpu:kernel { @n = count() } interval:s:2 { exit() }' -p $job
    wait $job
    cat "$out/held"
}

children() {
    echo "== children: one without the variable; workers that are forked, of a job that runs and of one that is started"
    $tool -e 'gpu:kernel { @n = count() }' -- env -u CUDA_INJECTION64_PATH $work loop 5 | tail -3
    $work workers > "$out/workers" &
    job=$!
    while ! grep -q running "$out/workers"; do sleep 0.2; done
    timeout -s INT 6 $tool -v -e 'gpu:kernel { @n = count() }' -p $job 2>&1 | grep -v compiled
    wait $job
    echo "exit status $?"
    cat "$out/workers"
    $tool -e 'gpu:kernel { @n = count() }' -- env -u CUDA_INJECTION64_PATH $work workers
}

prompt() {
    echo "== prompt: a job is chosen, then a clause needs another kind of records"
    $work loop 14 > "$out/loop" &
    job=$!
    while ! grep -q running "$out/loop"; do sleep 0.2; done
    {
        echo 'gpu:kernel { @n = count(); @us = avg(args.duration / 1000) }'
        echo ":pid $job"
        sleep 2
        echo '@n'
        echo 'gpu:sync { @waits[args.type] = count() }'
        sleep 2
        echo '@n'
        echo '@waits'
        sleep 1
    } | $tool
    wait $job
    cat "$out/loop"
}

threads() {
    echo "== threads: eight launch; busy and idle times add up (needs \`make -C examples/cuda gpu\`)"
    eight="$here/../build/gpu/workload_gpu --threads 8 --kernels 2000 --graphs 4 --rounds 5"
    for round in 1 2; do
        $tool -q -e 'gpu:kernel { @ms_after_its_end = hist((nsecs(monotonic) - args.end) / 1000000) }' -- $eight | grep -A30 '^@'
        $tool -e 'gpu:kernel { printf("kernel %d %d\n", args.start, args.end) } gpu:idle { printf("gap %d %d\n", args.start, args.end) }' \
            -o "$out/records" -- $eight > /dev/null
        $python - "$out/records" << 'END'
import sys
spans = {"kernel": [], "gap": []}
for line in open(sys.argv[1]):
    kind, *times = line.split()
    spans.get(kind, []).append(tuple(map(int, times)))
def covered(spans):
    total, until = 0, 0
    for start, end in spans:
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total
kernels, gaps = spans["kernel"], spans["gap"]
run = max(end for _, end in kernels) - min(start for start, _ in kernels)
late = sum(next[0] < last[0] for last, next in zip(kernels, kernels[1:]))
print(f"{len(kernels)} kernels, {late} after one that began later; of {run / 1e6:.3f} ms busy {covered(sorted(kernels)) / 1e6:.3f}, "
      f"in the order of records {covered(kernels) / 1e6:.3f}, idle {covered(sorted(gaps)) / 1e6:.3f} in {len(gaps)} gaps, "
      f"either {covered(sorted(kernels + gaps)) / 1e6:.3f}")
END
        for script in gpu idle; do $tool -q $script -- $eight | grep -E "busy for|IDLE|RUN" -A2; done
    done
}

for part in ${*:-truth late price joins ranges record bare detached held children prompt threads}; do $part; done
