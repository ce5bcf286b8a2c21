#!/usr/bin/env python3
"""What a probe in the traced process costs: processor time of one traced call in ns above the bare call, for 1 to 16 threads, beside the
kernel's probes and those of bpftrace, if that is installed.

Rounds are interleaved and medians compared. Every count must be exact, and every printed line arrives or is reported as lost.
Usage: bench_in_process.py CUDATRACE [ROUNDS]
"""
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

BUILD = pathlib.Path(__file__).parent.resolve() / "build"
LIB = BUILD / "libhammer.so"
THREADS = [1, 2, 4, 8, 16]
# All threads together. Probes in the process need more calls for a difference that can be seen.
CALLS = {"in process": 20_000_000, "kernel": 600_000, "bpftrace": 600_000}

# name, script, script of bpftrace, ns allowed in the process
CASES = [
    ("@[func] = count()", "uprobe:{lib}:hammer_push {{ @[func] = count() }}", "uprobe:{lib}:hammer_push {{ @[func] = count() }}", 15),
    (
        "@[func] = hist(duration)",
        "uretprobe:{lib}:hammer_push {{ @[func] = hist(duration) }}",
        "uprobe:{lib}:hammer_push {{ @s[tid] = nsecs }} uretprobe:{lib}:hammer_push {{ @[func] = hist(nsecs - @s[tid]); delete(@s[tid]) }}",
        60,
    ),
    (
        "printf(\"%d %d\", ...)",
        "uprobe:{lib}:hammer_push {{ printf(\"%d %d\\n\", arg0, arg1) }}",
        "uprobe:{lib}:hammer_push {{ printf(\"%d %d\\n\", arg0, arg1) }}",
        40,
    ),
]


def hammer(threads, calls):
    each = max(calls // threads, 1)
    return [str(BUILD / "hammer"), "--function", "push", "--threads", str(threads), "--calls", str(each)]


def cpu_ns(text):
    return float(re.search(r"^cpu_ns_per_call ([\d.]+)", text, re.M).group(1))


def bare(threads):
    return cpu_ns(subprocess.run(hammer(threads, CALLS["in process"]), capture_output=True, text=True, check=True).stdout)


def traced(tracer, how, script, threads):
    program = hammer(threads, CALLS[how])
    if how == "bpftrace":
        command = [shutil.which("bpftrace"), "-q", "-o", "/dev/null", "-e", script, "-c", " ".join(program)]
    else:
        options = ["--in-process"] if how == "in process" else []
        command = [tracer, *options, "-q", "-o", "/dev/null", "-e", script, "--", *program]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{how}: {run.stderr}")
    return cpu_ns(run.stdout)


def main():
    tracer, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    ways = [way for way in CALLS if way != "bpftrace" or shutil.which("bpftrace")]
    times = {}
    for _ in range(rounds):
        for threads in THREADS:
            times.setdefault(("bare", "", threads), []).append(bare(threads))
            for name, ours, theirs, _ in CASES:
                for way in ways:
                    script = (theirs if way == "bpftrace" else ours).format(lib=LIB)
                    times.setdefault((name, way, threads), []).append(traced(tracer, way, script, threads))
    median = {key: statistics.median(values) for key, values in times.items()}
    print(f"{'ns above the bare call':<26}{'':<12}" + "".join(f"{threads:>8}" for threads in THREADS) + "  threads; allowed")
    failed = False
    for name, _, _, allowed in CASES:
        for way in ways:
            above = [median[name, way, threads] - median["bare", "", threads] for threads in THREADS]
            over = way == "in process" and max(above) > allowed
            failed |= over
            limit = f"  {allowed}{' TOO MUCH' if over else ''}" if way == "in process" else ""
            print(f"{name:<26}{way:<12}" + "".join(f"{ns:>8.1f}" for ns in above) + limit)
    sys.exit(failed)


main()
