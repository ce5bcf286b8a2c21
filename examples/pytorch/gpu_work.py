"""Work on the GPU whose times are known: python3 gpu_work.py truth | profiled | loop SECONDS | price | profiled_price | held | ranges | workers

truth     prints what CUDA events around each of its matrix products measure
profiled  the same work under torch.profiler, whose kernels it prints: `kernel COUNT TOTAL_US NAME`
held      small operations under torch.profiler for some seconds
loop      small operations for so many seconds; prints the longest of each second
workers   epochs whose data four forked workers load, for ten seconds; prints how many
ranges    training steps with NVTX ranges; prints the time of each range by CUDA events
price     the time of one small operation, of a replay of a graph, and of a training step, in us; profiled_price: under torch.profiler
"""

import sys
import time

import torch


def matrices():
    return [torch.randn(4096, 4096, device="cuda") for _ in range(2)]


def work():
    a, b = matrices()
    host = torch.empty(4 << 20, dtype=torch.float32, pin_memory=True)
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    pairs = []
    for _ in range(100):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        c = a @ b
        end.record()
        pairs.append((begin, end))
        c.relu_()
        host.copy_(c.view(-1)[: host.numel()], non_blocking=True)
        torch.softmax(c, 1)
    torch.cuda.synchronize()
    return sum(begin.elapsed_time(end) for begin, end in pairs) * 1e3


def profiled():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        work()
    totals = {}
    for event in profiler.events():
        count, total = totals.get(event.name, (0, 0))
        totals[event.name] = (count + 1, total + event.device_time)
    for name, (count, total) in totals.items():
        print("kernel", count, round(total, 1), name)


def loop(seconds):
    x = torch.zeros(1024, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    print("running", flush=True)
    end, launched = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        second, longest = time.perf_counter() + 1, 0
        while time.perf_counter() < second:
            begin = time.perf_counter()
            x.add_(1)
            longest = max(longest, time.perf_counter() - begin)
            launched += 1
            if launched % 1000 == 0:
                torch.cuda.synchronize()
        print(f"longest {longest * 1e3:.2f} ms, launched {launched}", flush=True)
    print("launched", launched)


def held():
    from torch.profiler import ProfilerActivity, profile

    x = torch.zeros(1024, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        print("profiling", flush=True)
        end = time.perf_counter() + 6
        while time.perf_counter() < end:
            x.add_(1)
            torch.cuda.synchronize()
            time.sleep(1e-3)
    print(len(profiler.events()), "events of the profiler")


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.full((512,), float(index))


def workers():
    """The workers are forked from a process that uses CUDA, so they cannot."""
    weights = torch.randn(512, 512, device="cuda")
    loader = torch.utils.data.DataLoader(Samples(), batch_size=32, num_workers=4)
    print("running", flush=True)
    end, epochs = time.perf_counter() + 10, 0
    while time.perf_counter() < end:
        for batch in loader:
            (batch.cuda() @ weights).sum().item()
        epochs += 1
    print("epochs", epochs)


def ranges():
    model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(4)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(1024, 4096, device="cuda")
    times = {}

    def in_range(name, part):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.nvtx.range_push(name)
        begin.record()
        result = part()
        end.record()
        torch.cuda.nvtx.range_pop()
        times.setdefault(name, []).append((begin, end))
        return result

    for step in range(60):
        if step == 10:
            torch.cuda.synchronize()
            times.clear()
        loss = in_range("forward", lambda: model(data).square().mean())
        in_range("backward", loss.backward)
        in_range("optimizer", optimizer.step)
        optimizer.zero_grad()
    torch.cuda.synchronize()
    for name, pairs in times.items():
        print(f"range {name} {sum(begin.elapsed_time(end) for begin, end in pairs) * 1e3:.0f} us in the last 50 steps")


def best(run, count, rounds):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run(count)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / count * 1e6)
    return sorted(times)[rounds // 4]


def profiled_price():
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]):
        price()


def price():
    x = torch.zeros(1024, device="cuda")

    def add(count):
        for _ in range(count):
            x.add_(1)

    add(5000)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            x.add_(1)

    def replay(count):
        for _ in range(count):
            graph.replay()

    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(64, 512, device="cuda")

    def step(count):
        for _ in range(count):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()

    replay(20)
    step(50)
    print(f"add {best(add, 4000, 16):.2f} replay {best(replay, 100, 8):.1f} step {best(step, 100, 8):.0f}")


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "truth":
        print(f"events {work():.1f} us")
    elif what == "loop":
        loop(float(sys.argv[2]))
    else:
        {"profiled": profiled, "price": price, "profiled_price": profiled_price, "ranges": ranges, "held": held, "workers": workers}[what]()
