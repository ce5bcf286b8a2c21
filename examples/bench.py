#!/usr/bin/env python3
"""What a probe hit costs: processor time of one traced call in ns, as a ratio to an empty probe attached the same way.

Rounds are interleaved and medians compared, so that a machine that speeds up or slows down does not decide.
Usage: bench.py CUDATRACE [ROUNDS]
"""
import pathlib
import re
import statistics
import subprocess
import sys

BUILD = pathlib.Path(__file__).parent.resolve() / "build"
LIB = BUILD / "libhammer.so"
CALLS = 300_000

# name, script ({f} is the probed function), function, baseline, ratio allowed
CASES = [
    ("empty entry", "uprobe:{lib}:{f} {{ }}", "push", None, None),
    ("@ = count()", "uprobe:{lib}:{f} {{ @ = count() }}", "push", "empty entry", 1.08),
    ("@[func] = count()", "uprobe:{lib}:{f} {{ @[func] = count() }}", "push", "empty entry", 1.12),
    ("@[func] = count(), 2 functions", "uprobe:{lib}:hammer_pu*,uprobe:{lib}:hammer_nop5 {{ @[func] = count() }}", "push", "empty entry", 1.12),
    ("@x++", "uprobe:{lib}:{f} {{ @x++ }}", "push", "empty entry", None),
    ("empty entry, endbr64", "uprobe:{lib}:{f} {{ }}", "endbr64", "empty entry", 1.30),
    ("empty entry and return", "uprobe:{lib}:{f} {{ }} uretprobe:{lib}:{f} {{ }}", "push", None, None),
    ("empty return", "uretprobe:{lib}:{f} {{ }}", "push", "empty entry and return", None),
    ("@[func] = hist(duration)", "uretprobe:{lib}:{f} {{ @[func] = hist(duration) }}", "push", "empty entry and return", 1.25),
    ("sum of arg and duration", "uretprobe:{lib}:{f} {{ @[arg0 & 1] = sum(duration) }}", "push", "empty entry and return", None),
    ("printf", "uprobe:{lib}:{f} {{ printf(\"%d\\n\", arg0) }}", "push", "empty entry", None),
]


def once(cudatrace, script, function):
    hammer = [str(BUILD / "hammer"), "--function", function, "--threads", "1", "--calls", str(CALLS)]
    text = script.format(lib=LIB, f=f"hammer_{function}")
    run = subprocess.run([cudatrace, "-q", "-e", text, "--", *hammer], capture_output=True, text=True, check=True)
    return float(re.search(r"^cpu_ns_per_call ([\d.]+)", run.stdout, re.M).group(1))


def main():
    cudatrace, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    times = {name: [] for name, *_ in CASES}
    for _ in range(rounds):
        for name, script, function, _, _ in CASES:
            times[name].append(once(cudatrace, script, function))
    median = {name: statistics.median(values) for name, values in times.items()}
    failed = False
    print(f"{'body':<34}{'ns/call':>9}{'ratio':>8}  allowed")
    for name, _, _, base, allowed in CASES:
        ratio = median[name] / median[base] if base else 1.0
        over = allowed is not None and ratio > allowed
        failed |= over
        print(f"{name:<34}{median[name]:>9.0f}{ratio:>8.2f}  {allowed or '':<6}{' TOO MUCH' if over else ''}")
    sys.exit(failed)


main()
