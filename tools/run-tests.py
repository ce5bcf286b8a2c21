#!/usr/bin/env python3
"""Runs the tests of all crates, as `cargo test --workspace` does, and the live cases in process.

    run-tests.py [PROGRAM]...

PROGRAM is the name of a test, such as `live` or `agree`; without one all run. Programs that trace run one after another: each may look
at all processes of the machine. Those that only compute run beside them, on the other CPU.
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import time

# Programs of the root package that trace nothing.
COMPUTE = {"agree", "mutants", "sources"}


def build(cargo):
    """Compiles the tests. The programs: name, folder, path, variables, whether it only computes."""
    command = [cargo, "test", "--workspace", "--quiet", "--no-run", "--message-format=json"]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = []
    for line in output.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message.get("executable"):
            name, folder = message["target"]["name"], os.path.dirname(message["manifest_path"])
            computes = folder != os.getcwd() or name in COMPUTE
            found.append((name, folder, message["executable"], {}, computes))
            if name == "live":
                found.append(("live, in process", folder, message["executable"], {"CUDATRACE_LIVE_IN_PROCESS": "1"}, False))
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
    lanes = [[program for program in programs if program[4] == computes] for computes in (False, True)]
    with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
        results = sum(pool.map(lambda lane: [run(*program[:4]) for program in lane], lanes), [])
    failed = [(name, output) for name, status, output in results if status]
    for name, output in failed:
        print(f"\n---- {name}\n{output}")
    print(f"\n{len(results) - len(failed)} of {len(results)} test programs passed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
