"""A job that runs on must not notice that its tracers are killed: `gpu:` probes are attached with -p, and the tracer gets SIGKILL at a random moment.

Usage: kills.py CUDATRACE [KILLS] [SECONDS] [OPTIONS]...     the tracers; OPTIONS such as --in-process; it ends after SECONDS at the latest
       kills.py --job SECONDS                                the job alone

The job trains a small model while other threads allocate, load libraries, print and fork. Each step's loss is known from a first run without
a tracer, and must be the same in the second.
"""
import ctypes
import os
import random
import subprocess
import sys
import threading
import time

SCRIPTS = [
    "gpu:kernel { @ = count(); @d = hist(args.duration) }",
    "gpu:kernel { @[ustack(4), func, tid] = sum(args.duration) } gpu:idle { @i = count() }",
    "gpu:kernel { @[kernel_name(args.kernel)] = stats(args.delay) } uretprobe:libcuda:cuLaunchKernel { @l = hist(duration) }",
]
STEPS = 50


def job(seconds):
    import torch

    end, stop = time.time() + seconds, threading.Event()

    def beside(work):
        def run():
            while not stop.is_set():
                work()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def forks():
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == 7, f"a child ended with {status}"
        time.sleep(0.02)

    def loads():
        library = ctypes.CDLL("libresolv.so.2")
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))
        time.sleep(0.002)

    def allocates():
        [bytearray(random.randrange(1, 1 << 16)) for _ in range(100)]
        time.sleep(0.0005)

    threads = [beside(work) for work in (forks, loads, allocates)]

    def train():
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        data = torch.randn(128, 64, device="cuda")
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    torch.use_deterministic_algorithms(True, warn_only=True)
    expected, rounds, since = train(), 0, time.time()
    print("running", flush=True)
    while time.time() < end:
        assert train() == expected, "the job's results have changed"
        rounds += 1
        if time.time() - since > 1:
            print(f"rounds {rounds}", flush=True)
            rounds, since = 0, time.time()
    stop.set()
    [thread.join() for thread in threads]
    print("done", flush=True)


def main():
    tool, kills = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seconds, options = float(sys.argv[3]) if len(sys.argv) > 3 else 120, sys.argv[4:]
    random.seed(7)
    lines = []
    run = subprocess.Popen([sys.executable, __file__, "--job", str(seconds + 20)], stdout=subprocess.PIPE, text=True)

    def read():
        for line in run.stdout:
            lines.append((time.time(), line.strip()))

    threading.Thread(target=read, daemon=True).start()
    while not lines and run.poll() is None:
        time.sleep(0.1)
    begin, killed, longest = time.time(), 0, 0
    while killed < kills and time.time() - begin < seconds and run.poll() is None:
        command = [tool, *options, "-q", "-e", SCRIPTS[killed % len(SCRIPTS)], "-p", str(run.pid)]
        tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.random() * 0.9)
        tracer.kill()
        tracer.wait()
        killed += 1
        pause = time.time() - lines[-1][0]
        longest = max(longest, pause)
        if pause > 15:
            print(f"the job hangs after kill {killed}: {[line for _, line in lines[-3:]]}")
            for task in os.listdir(f"/proc/{run.pid}/task"):
                folder = f"/proc/{run.pid}/task/{task}"
                print(task, open(f"{folder}/comm").read().strip(), open(f"{folder}/wchan").read(), open(f"{folder}/syscall").read().split()[:1])
            run.kill()
            return 1
    try:
        run.wait(begin + seconds + 60 - time.time())
    except subprocess.TimeoutExpired:
        run.kill()
    rounds = [int(line.split()[1]) for _, line in lines if line.startswith("rounds")]
    print(f"{' '.join(options) or 'by the kernel'}: {killed} kills, the job ended with {run.wait()}, '{lines[-1][1]}'; rounds a second: "
          f"first {rounds[:2]}, least {min(rounds)}, last {rounds[-2:]}; longest pause of its lines {longest:.1f} s")
    return run.wait()


if __name__ == "__main__":
    sys.exit(job(float(sys.argv[2])) if sys.argv[1] == "--job" else main())
