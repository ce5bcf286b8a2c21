#!/usr/bin/env python3
"""Runs bpftrace's own programs with cudatrace, and beside bpftrace where it is installed.

    test-bpftrace.py [OPTION]... FOLDER

FOLDER is bpftrace's source tree (`tests/runtime`, `tests/testprogs`, `tools/*.bt`), or a folder of `.bt` files such as
/usr/sbin. This repository has none of bpftrace's files. Run as root, with gcc for the test programs; the probes of USDT in them
need <sys/sdt.h>.

A test of `tests/runtime` runs as bpftrace's own engine runs it: its `BEFORE`, the program, `AFTER` once the probes are
attached, and then its `EXPECT` lines are looked for. A tool has no such lines: it runs for a moment and ends by SIGINT, and the
headings that it prints and whether it has maps are compared. Each program has one verdict:

    same        cudatrace prints what the test expects; a tool prints the same heading and maps
    wording     both refuse the program, or print usage, version and the like: only the words differ
    different   it ran, and printed something else
    refused     cudatrace did not start it
    neither     this bpftrace does not print what the test expects either
    skipped     the machine lacks what the test requires
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import glob
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ATTACHED = ("__BPFTRACE_NOTIFY_PROBES_ATTACHED", "BPFTRACE_NOTIFY_PROBES_ATTACHED")
VERDICTS = ("same", "wording", "different", "refused", "neither", "skipped")
# Directives that may be repeated, and those of which a test has one.
LISTS = {"EXPECT", "EXPECT_NONE", "EXPECT_REGEX", "EXPECT_REGEX_NONE", "EXPECT_FILE", "EXPECT_JSON",
         "BEFORE", "SETUP", "CLEANUP", "REQUIRES", "REQUIRES_FEATURE", "ENV"}
SINGLE = {"NAME", "RUN", "PROG", "AFTER", "TIMEOUT", "ARCH", "MIN_KERNEL", "MAX_KERNEL", "WILL_FAIL", "RETURN_CODE",
          "NEW_PIDNS", "SKIP_IF_ENV_HAS"}
# Tests of what is printed about bpftrace itself.
ABOUT_ITSELF = re.compile(r"\{\{BPFTRACE\}\}\s+(--help|--version|--info|-h|-V)\b")
# The engine waits this long for "attached" before the test's own time begins.
ATTACH_SECONDS = 15
TOOL_SECONDS = 2

Run = collections.namedtuple("Run", "output attached status")
Verdict = collections.namedtuple("Verdict", "word reason")


def read_suite(path, literal):
    """The tests of one file. `literal`: `EXPECT` is text, as since bpftrace 0.21, and no regular expression."""
    test = None
    tests = []
    for line in open(path, encoding="utf-8"):
        if line.startswith("#"):
            continue
        word, _, rest = line.strip().partition(" ")
        if word == "NAME":
            test = {"suite": os.path.basename(path), "literal": literal}
            tests.append(test)
        if test is None or not word:
            continue
        if word in LISTS:
            test.setdefault(word, []).append(rest.strip())
        elif word in SINGLE:
            test[word] = rest.strip().strip('"') if word == "NAME" else rest.strip()
        elif word.isupper():
            test.setdefault("unknown", word)
    return [test for test in tests if "RUN" in test or "PROG" in test]


def read_suites(folder):
    paths = [path for path in sorted(glob.glob(f"{folder}/*")) if os.path.isfile(path) and "." not in os.path.basename(path)]
    literal = any(re.search("^EXPECT_REGEX", open(path, encoding="utf-8").read(), re.M) for path in paths)
    return [test for path in paths for test in read_suite(path, literal)]


def build(tests, work, cflags):
    """Test programs and libraries, built as bpftrace's CMakeLists do; one that does not build is left out."""
    for folder in ("runtime", "testprogs", "testlibs", "data"):
        if os.path.isdir(f"{tests}/{folder}"):
            shutil.copytree(f"{tests}/{folder}", f"{work}/{folder}", symlinks=True)
    flags = ["-g", "-O0", "-w", f"-I{work}/testlibs", *cflags]
    probe = subprocess.run(["gcc", *flags, "-E", "-xc", "-"], input=b"#include <sys/sdt.h>\n", capture_output=True)
    if probe.returncode == 0:
        flags.append("-DHAVE_SYSTEMTAP_SYS_SDT_H")
    for source in glob.glob(f"{work}/testlibs/*.c"):
        name = os.path.basename(source)[:-2]
        subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-o", f"{work}/testlibs/lib{name}.so", source], capture_output=True)
    for source in glob.glob(f"{work}/testprogs/*.c"):
        libraries = [f"-L{work}/testlibs", f"-Wl,-rpath,{work}/testlibs", "-lusdt_tp"] if "usdt_lib" in source else []
        for kind, suffix in (("-no-pie", ""), ("-pie", "-pie")):
            subprocess.run(["gcc", *flags, "-fPIC", kind, "-o", source[:-2] + suffix, source, *libraries, "-lm", "-ldl", "-lpthread"],
                           capture_output=True)


def end(process, how=signal.SIGKILL):
    """Ends a process with all of its group."""
    try:
        os.killpg(process.pid, how)
    except ProcessLookupError:
        pass


class Machine:
    """Where programs run: the folder, and the programs that trace."""

    def __init__(self, work, options):
        self.work, self.options = work, options
        self.patience = options.patience

    def shell(self, command, **how):
        return subprocess.Popen(command, shell=True, cwd=self.work, start_new_session=True, **how)

    def quiet(self, command):
        nothing = subprocess.DEVNULL
        return self.shell(command, stdin=nothing, stdout=nothing, stderr=nothing)

    def succeeds(self, command):
        return self.quiet(command).wait() == 0

    def started(self, command):
        """Starts a test's BEFORE; returns it with the pid of its program once that runs."""
        process = self.quiet(command)
        name = os.path.basename(command.split()[-1])
        until = time.time() + 5 * self.patience
        while time.time() < until:
            found = subprocess.run(["pgrep", "-s", str(process.pid), "-x", name[:15]], capture_output=True, text=True).stdout.split()
            if found:
                return process, found[0]
            time.sleep(0.05)
        return process, str(process.pid)

    def trace(self, command, seconds, env, after=None, interrupt=False):
        """Runs a command that traces, until it ends or its time is over."""
        env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "__BPFTRACE_NOTIFY_PROBES_ATTACHED": "1",
               "BPFTRACE_NOTIFY_PROBES_ATTACHED": "1", **env}
        tracer = self.shell(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
        lines, attached, behind = [], threading.Event(), None

        def read():
            for line in tracer.stdout:
                text = line.decode("utf-8", "backslashreplace")
                if text.strip() in ATTACHED:
                    attached.set()
                else:
                    lines.append(text)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        deadline = time.time() + ATTACH_SECONDS * self.patience
        while time.time() < deadline and tracer.poll() is None:
            if attached.wait(0.02) and behind is None:
                # What follows the attachment looks for the tracer by its name: here it is this one and no other.
                near = (after or "true").replace("$(pidof bpftrace)", f"$(pgrep -g {tracer.pid} | tail -n 1)")
                behind = self.quiet(re.sub(r"pkill (\S+) bpftrace", rf"pkill \1 -g {tracer.pid}", near))
                deadline = time.time() + seconds * self.patience
        timed_out = tracer.poll() is None
        if timed_out:
            end(tracer, signal.SIGINT if interrupt else signal.SIGTERM)
            # The shell ends before the tracer does, which then prints its maps.
            reader.join(5 * self.patience)
        end(tracer)
        for process in filter(None, [behind]):
            end(process)
            process.wait()
        reader.join(2)
        status = 0 if timed_out else tracer.wait()
        return Run("".join(lines), attached.is_set(), status)


def lacks(test, machine):
    """What this machine lacks for a test."""
    release = [int(part) for part in re.findall(r"\d+", platform.release())[:2]]
    version = lambda text: [int(part) for part in re.findall(r"\d+", text)[:2]]
    if "unknown" in test:
        return f"directive {test['unknown']} is not known here"
    if "ARCH" in test and platform.machine() not in re.split(r"[|\s]+", test["ARCH"]):
        return f"architecture {test['ARCH']}"
    if version(test.get("MIN_KERNEL", "0")) > release or version(test.get("MAX_KERNEL", "99")) < release:
        return "another kernel"
    if "NEW_PIDNS" in test or "EXPECT_JSON" in test and not test["literal"]:
        return "its directives are not run here"
    for requirement in test.get("REQUIRES", []):
        if not machine.succeeds(requirement):
            return f"requires `{requirement}`"
    named = re.findall(r"\./(testprogs/[\w/.-]*\w)", " ".join([test.get("RUN", ""), test.get("PROG", ""), *test.get("BEFORE", [])]))
    for path in named:
        if not os.path.exists(f"{machine.work}/{path}"):
            return f"{path} is not built here"
    return None


def documents(text, path):
    """The JSON documents of a text: one, or one a line."""
    try:
        return [json.loads(part) for part in (text.strip().splitlines() if path.endswith(".ndjson") else [text])]
    except ValueError:
        return text


def unmet(test, run, work):
    """The first expectation that the output does not meet, or None."""
    found = lambda pattern: re.search(pattern, run.output, re.M)
    # `Attaching N probes...` is `Attached N probes` since bpftrace 0.24.
    for expected in test.get("EXPECT", []):
        expected = re.sub(r"Attaching (\d+) probes?(\\?\.){0,3}", r"Attached \1 probe", expected)
        if not (expected in run.output if test["literal"] else found(expected)):
            return f"no `{expected}`"
    for expected in test.get("EXPECT_REGEX", []):
        if not found(expected):
            return f"no /{expected}/"
    for refused in test.get("EXPECT_NONE", []):
        if refused in run.output:
            return f"`{refused}` is printed"
    for refused in test.get("EXPECT_REGEX_NONE", []):
        if found(refused):
            return f"/{refused}/ is printed"
    for path in test.get("EXPECT_FILE", []):
        if open(f"{work}/{path}", encoding="utf-8").read().strip() not in run.output:
            return f"not the text of {path}"
    for path in test.get("EXPECT_JSON", []):
        if documents(run.output, path) != documents(open(f"{work}/{path}", encoding="utf-8").read(), path):
            return f"not the values of {path}"
    if "WILL_FAIL" not in test and run.status != int(test.get("RETURN_CODE", 0)):
        return f"status {run.status}"
    return None


def run_test(test, tracer, machine):
    """One test with one tracer: its run, and the first expectation that is not met."""
    for command in test.get("SETUP", []):
        machine.succeeds(command)
    before = [machine.started(command) for command in test.get("BEFORE", [])]
    options = " -q -f json" if "EXPECT_JSON" in test else ""
    command = test["RUN"] if "RUN" in test else "{{BPFTRACE}}" + options + " -e " + shlex.quote(test["PROG"])
    for process, pid in before:
        command = command.replace("{{BEFORE_PID}}", pid, 1)
    command = command.replace("{{BEFORE_PID}}", before[0][1] if before else "0").replace("{{BPFTRACE}}", tracer)
    env = dict(entry.split("=", 1) for line in test.get("ENV", []) for entry in line.split())
    try:
        run = machine.trace(command, int(test.get("TIMEOUT", 5)), env, test.get("AFTER"))
    finally:
        for process, _ in before:
            end(process)
            process.wait()
        for command in test.get("CLEANUP", []):
            machine.succeeds(command)
    return run, unmet(test, run, machine.work)


def complaint(run):
    """The first message of a tracer that did not start."""
    lines = [line.strip() for line in run.output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error|ERROR)", line) or re.search(r": error", line)]
    return (errors or lines or [f"status {run.status}, no message"])[0]


def judge_test(test, machine):
    lacking = lacks(test, machine)
    if lacking:
        return Verdict("skipped", lacking), None, None
    ours, mine = run_test(test, machine.options.cudatrace, machine)
    theirs = None
    if machine.options.bpftrace and (mine or machine.options.both):
        theirs, other = run_test(test, machine.options.bpftrace, machine)
        if mine and other:
            return Verdict("neither", f"{mine}; bpftrace: {other}"), ours, theirs
    if not mine:
        return Verdict("same", ""), ours, theirs
    refused = ours.status and not ours.attached
    both = "WILL_FAIL" in test or theirs and theirs.status and not theirs.attached
    if ABOUT_ITSELF.search(test.get("RUN", "")) or refused and both:
        return Verdict("wording", complaint(ours)), ours, theirs
    return Verdict("refused", complaint(ours)) if refused else Verdict("different", mine), ours, theirs


def shape(run, path):
    """What two runs of a tool have in common: the texts of its BEGIN that were printed, and the names of its maps."""
    lines = [line.rstrip() for line in run.output.splitlines()]
    texts = re.findall(r'printf\("([^"%]*[^"%\s\\])\s*(?:\\n)?"', open(path, encoding="utf-8").read())
    printed = [text for text in texts if any(text in line for line in lines)]
    maps = {match.group(1) for match in (re.match(r"(@\w*)[\[:]", line) for line in lines) if match}
    return printed, maps


def judge_tool(path, machine):
    runs = [machine.trace(f"{tracer} {path}", TOOL_SECONDS, {}, interrupt=True)
            for tracer in (machine.options.cudatrace, machine.options.bpftrace) if tracer]
    ours, theirs = runs[0], runs[1] if len(runs) > 1 else None
    if not ours.attached:
        word = "neither" if theirs and not theirs.attached else "refused"
        return Verdict(word, complaint(ours)), ours, theirs
    if theirs and not theirs.attached:
        return Verdict("same", "bpftrace itself does not start it"), ours, theirs
    if theirs:
        (texts, maps), (their_texts, their_maps) = shape(ours, path), shape(theirs, path)
        if texts != their_texts:
            return Verdict("different", f"prints {texts}, not {their_texts}"), ours, theirs
        # What happens in a moment differs from run to run.
        if maps ^ their_maps and not (maps and their_maps):
            return Verdict("different", f"maps {sorted(maps)}, not {sorted(their_maps)}"), ours, theirs
    return Verdict("same", ""), ours, theirs


def programs(folder, work, options):
    """All programs of a folder: (name, what it is, a function that judges it)."""
    found = []
    if os.path.isdir(f"{folder}/tests/runtime"):
        build(f"{folder}/tests", work, options.cflags.split())
        for test in read_suites(f"{work}/runtime"):
            text = " ".join(test.get(key, "") for key in ("RUN", "PROG"))
            found.append((f"{test['suite']}.{test['NAME']}", "test", text, lambda machine, test=test: judge_test(test, machine)))
    for path in sorted(glob.glob(f"{folder}/tools/*.bt") or glob.glob(f"{folder}/*.bt")):
        text = open(path, encoding="utf-8").read()
        found.append((os.path.basename(path), "tool", text, lambda machine, path=os.path.abspath(path): judge_tool(path, machine)))
    chosen = options.only or ["*"]
    return [program for program in found if any(fnmatch.fnmatch(program[0], pattern) for pattern in chosen)]


# Programs that need these have a count of their own: cudatrace does not have them.
KERNEL = re.compile(r"\b(k(ret)?(probe|func)|f(entry|exit)|iter|watchpoint|asyncwatchpoint|k|kr|kf|w|aw|it)s?:(?!:)(?=[\w*/\"0-9$])")


def report(rows, counts):
    width = max((len(name) for name, *_ in rows), default=4)
    for name, kind, verdict, kernel in rows:
        note = " (kernel probe)" if kernel and verdict.word != "same" else ""
        print(f"{verdict.word:<10} {name:<{width}}  {verdict.reason}{note}".rstrip())
    print(f"\n{'':<34}" + "".join(f"{kind:>8}" for kind in counts))
    for word in VERDICTS:
        for kernel, label in ((False, word), (True, f"{word}, on functions of the kernel")):
            numbers = [counts[kind][(word, kernel)] for kind in counts]
            if any(numbers):
                print(f"{label:<34}" + "".join(f"{number:>8}" for number in numbers))
    print(f"{'all':<34}" + "".join(f"{sum(counts[kind].values()):>8}" for kind in counts))


def show(name, run, title):
    if run:
        print(f"--- {name}: {title}, status {run.status}, {'attached' if run.attached else 'not attached'}")
        print(run.output.rstrip()[:4000])


def full_path(path):
    """The full path of a program, since tests run in a folder of their own."""
    found = shutil.which(path or "")
    if path and not found:
        sys.exit(f"test-bpftrace: no program `{path}`")
    return os.path.abspath(found) if found else None


def main():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="bpftrace's source tree, or a folder of .bt files")
    parser.add_argument("--cudatrace", default=f"{here}/target/release/cudatrace", help="the cudatrace to run")
    parser.add_argument("--bpftrace", default=shutil.which("bpftrace"), help="the bpftrace beside it; empty: none")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="programs whose name is like this: `call.*`, `execsnoop.bt`")
    parser.add_argument("--both", action="store_true", help="run bpftrace also where cudatrace does what the test expects")
    parser.add_argument("--jobs", type=int, default=1, help="files of tests at a time; programs that count what the whole system does may then differ")
    parser.add_argument("--patience", type=float, default=1, help="factor for all timeouts, on a slow machine")
    parser.add_argument("--cflags", default="", help="for the test programs, as in --cflags=-I..., a folder with sys/sdt.h")
    parser.add_argument("--verbose", action="store_true", help="show the outputs of programs that are not the same")
    options = parser.parse_args()
    options.cudatrace, options.bpftrace = map(full_path, (options.cudatrace, options.bpftrace))
    if os.geteuid() != 0:
        sys.exit("test-bpftrace: tracing needs root")
    rows, counts = [], collections.defaultdict(collections.Counter)
    with tempfile.TemporaryDirectory(prefix="test-bpftrace.") as work, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        os.chmod(work, 0o755)
        # `comm` of the tracer is part of some outputs.
        os.symlink(options.cudatrace, f"{work}/bpftrace")
        options.cudatrace = f"{work}/bpftrace"
        machine = Machine(work, options)
        chosen = programs(options.folder, work, options)
        if not chosen:
            sys.exit(f"test-bpftrace: no programs in {options.folder}")
        # Tests of one file may share files: they run one after the other.
        suites = itertools.groupby(chosen, key=lambda program: program[0].split(".")[0])
        in_turn = lambda suite: [judge(machine) for _, _, _, judge in suite]
        futures = [pool.submit(in_turn, list(suite)) for _, suite in suites]
        judged = (result for future in futures for result in future.result())
        for (name, kind, text, _), (verdict, ours, theirs) in zip(chosen, judged):
            kernel = bool(KERNEL.search(text))
            rows.append((name, kind, verdict, kernel))
            counts[kind][(verdict.word, kernel)] += 1
            if sys.stderr.isatty():
                print(f"\r{len(rows)}/{len(chosen)} ", end="", file=sys.stderr)
            if options.verbose and verdict.word in ("different", "refused", "neither"):
                show(name, ours, "cudatrace")
                show(name, theirs, "bpftrace")
    report(rows, counts)


if __name__ == "__main__":
    main()
