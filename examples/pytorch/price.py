"""What each script costs a loop of small PyTorch operations.

    python3 price.py path/to/cudatrace [NAME...]

One process adds 1 to 1024 floats, back to back; scripts are attached to it and detached again, one after the other. So each
is compared with the same loop a second before and after, whatever else the machine does meanwhile. The loop stays on one
CPU, and of the operations in each second counts what the undisturbed ones took. Prints, by script, the time of an operation
without it and with it, and the median of their differences over all rounds.
"""
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

NAMES = """bandwidth calls churn doublefree errors events graphs kernels latency launchgap memcpy memleak memory metrics
modules oom silent streams summary sync top""".split()
EVERY_CALL = "uretprobe:libcuda:cu*, uretprobe:libcudart:cuda* { @[func] = hist(duration) }"
STACKS = "uprobe:libcuda:cu* { @[func, ustack(16)] = count() }"
OTHERS = {
    "memleak kernels bandwidth at once": ["memleak", "kernels", "bandwidth"],
    "an empty probe at each launch": ["-e", "uprobe:libcuda:cuLaunchKernel* { }"],
    "a histogram by function of every call": ["-e", EVERY_CALL],
    "record": ["record", "--out", "/tmp/price"],
    "in the process: a count of every call": ["--in-process", "-e", "uprobe:libcuda:cu* { @[func] = count() }"],
    "in the process: a histogram of every call": ["--in-process", "-e", EVERY_CALL],
    "in the process: record": ["record", "--in-process", "--out", "/tmp/price"],
    "call stacks of every call": ["-e", STACKS],
    "in the process: call stacks of every call": ["--in-process", "-e", STACKS],
    "in the process: memleak": ["--in-process", "memleak"],
    "in the process: metrics": ["--in-process", "metrics"],
    "metrics --devices": ["metrics", "--devices"],
}
WINDOW = 500  # operations that are timed together
ROUNDS = 5
SECONDS = 0.7  # of each half of a round
SETTLE = 0.3  # after attaching and detaching


def run_loop():
    """Says `when us_per_op` of each window."""
    import torch

    x = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    while True:
        start = time.perf_counter()
        for _ in range(WINDOW):
            x.add_(1)
        torch.cuda.synchronize()
        end = time.perf_counter()
        print(end, (end - start) / WINDOW * 1e6, flush=True)


class Loop:
    """The loop in a process of its own, and what it has said."""

    def __init__(self):
        command = [sys.executable, __file__, "--loop"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.windows = []
        threading.Thread(target=self.read, daemon=True).start()
        while len(self.windows) < 20:
            time.sleep(0.1)

    def read(self):
        for line in self.process.stdout:
            self.windows.append(tuple(map(float, line.split())))

    def usual(self, seconds):
        """Time of an operation in the next seconds: a fifth of them are faster."""
        start = time.perf_counter()
        time.sleep(seconds)
        end = time.perf_counter()
        return statistics.quantiles((us for at, us in self.windows if start <= at <= end), n=5)[0]


def attached(cudatrace, loop, words):
    command = [cudatrace, "-v", *words, "-p", str(loop.process.pid)]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = []
    for line in tracer.stderr:
        said.append(line)
        if "attached" in line:
            threading.Thread(target=tracer.stderr.read, daemon=True).start()
            return tracer
    sys.exit(f"{' '.join(command)}: {''.join(said)}")


def price(cudatrace, loop, words):
    plain, traced = [loop.usual(SECONDS)], []
    for _ in range(ROUNDS):
        tracer = attached(cudatrace, loop, words)
        time.sleep(SETTLE)
        traced.append(loop.usual(SECONDS))
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        time.sleep(SETTLE)
        plain.append(loop.usual(SECONDS))
    around = [(before + after) / 2 for before, after in zip(plain, plain[1:])]
    more = statistics.median(with_it - without for with_it, without in zip(traced, around))
    return statistics.median(plain), statistics.median(traced), more


def main():
    cudatrace, names = sys.argv[1], sys.argv[2:]
    wanted = {name: OTHERS.get(name, name.split()) for name in names} or {name: [name] for name in NAMES} | OTHERS
    loop = Loop()
    print(f"{'SCRIPT':40}{'WITHOUT':>10}{'WITH':>10}{'MORE':>10}  us an operation", flush=True)
    for name, words in wanted.items():
        without, with_it, more = price(cudatrace, loop, words)
        print(f"{name:40}{without:10.2f}{with_it:10.2f}{more:10.2f}", flush=True)
    loop.process.kill()


if __name__ == "__main__":
    run_loop() if sys.argv[1:] == ["--loop"] else main()
