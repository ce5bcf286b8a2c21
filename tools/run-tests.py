#!/usr/bin/env python3
"""Runs the tests of all crates, as `cargo test --workspace` does, and the live cases in process; as many programs at a time as there are CPUs.

    run-tests.py [PROGRAM]...

PROGRAM is the name of a test, such as `live` or `agree`; without one all run. Most programs wait for traced processes more than they
compute, so that two CPUs run them in half of the time. The longest begin first. Those of ALONE measure times, or trace all processes.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import time

# In this order; the others follow.
LONGEST = ["live", "starts_and_ends", "agree", "growth", "scripts", "in_process", "check", "started", "metrics", "endings", "otlp"]
ALONE = {"bpftrace", "floods", "verifier", "storms"}


def build(cargo):
    """Compiles the tests. The programs: name, folder, path, variables."""
    command = [cargo, "test", "--workspace", "--quiet", "--no-run", "--message-format=json"]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = []
    for line in output.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message.get("executable"):
            name, folder = message["target"]["name"], os.path.dirname(message["manifest_path"])
            found.append((name, folder, message["executable"], {}))
            if name == "live":
                found.append(("live, in process", folder, message["executable"], {"CUDATRACE_LIVE_IN_PROCESS": "1"}))
    return found


def run(name, folder, path, variables):
    start = time.time()
    done = subprocess.run([path, "--quiet"], cwd=folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    word = "ok" if done.returncode == 0 else "FAILED"
    print(f"{word:<7}{time.time() - start:6.1f} s  {name}", flush=True)
    return name, done.returncode, done.stdout


def main():
    programs = build(os.environ.get("CARGO", "cargo"))
    chosen = sys.argv[1:]
    programs = [program for program in programs if not chosen or program[0].split(",")[0] in chosen]
    rank = lambda program: LONGEST.index(program[0].split(",")[0]) if program[0].split(",")[0] in LONGEST else len(LONGEST)
    programs.sort(key=rank)
    together = [program for program in programs if program[0] not in ALONE]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda program: run(*program), together))
    results += [run(*program) for program in programs if program[0] in ALONE]
    failed = [(name, output) for name, status, output in results if status]
    for name, output in failed:
        print(f"\n---- {name}\n{output}")
    print(f"\n{len(results) - len(failed)} of {len(results)} test programs passed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
