"""Compares kernel names and numbers of launches with PyTorch's own profiler, for the same run.

    python3 names.py path/to/cudatrace

Runs a job of many kinds of kernels with torch.profiler on and cudatrace beside it, and compares: mangled names once the C++
library has demangled them, and the full names as they are printed. The functions of short names must be in the profiler's.
"""
import collections
import ctypes
import json
import re
import subprocess
import sys
import tempfile

SCRIPT = """cuda:launch {
    @mangled[kernel_name(args.kernel, mangled)] = count();
    @full[kernel_name(args.kernel, full)] = count();
    @short[kernel_name(args.kernel)] = count();
}"""


def job(path):
    """Many kinds of kernels: element by element, sums, matrices, convolutions, attention, sorting, Triton."""
    import torch
    import torch.nn.functional as f
    from torch.profiler import ProfilerActivity, profile

    def steps():
        torch.manual_seed(0)
        x = torch.randn(64, 128, 256, device="cuda", requires_grad=True)
        layer = torch.nn.TransformerEncoderLayer(256, 8, 512, batch_first=True).cuda()
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
                layer(x).float().square().mean().backward()
        image = torch.randn(8, 3, 64, 64, device="cuda")
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 3), torch.nn.BatchNorm2d(32), torch.nn.GELU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(32, 64, 5, stride=2), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
            torch.nn.Linear(64, 10)).cuda()
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(3):
            f.cross_entropy(net(image), torch.arange(8, device="cuda")).backward()
            optimizer.step()
            optimizer.zero_grad()
        q = torch.randn(4, 8, 256, 64, device="cuda", dtype=torch.bfloat16)
        f.scaled_dot_product_attention(q, q, q, is_causal=True)
        y = torch.randn(100_000, device="cuda")
        y.sort()
        y.cumsum(0)
        y.topk(100)
        torch.unique(y.long())
        y[y > 0].sum()
        torch.nn.Embedding(1000, 64).cuda()(y.abs().long() % 1000).sum().backward()
        torch.linalg.svd(y[:10_000].view(100, 100))
        torch.fft.rfft(y).abs()
        try:
            torch.compile(lambda a: (a.sin() + a.cos()).relu().sum(0))(x)
        except Exception as why:
            print("without torch.compile:", str(why).splitlines()[0], file=sys.stderr)
        torch.cuda.synchronize()

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        steps()
    with tempfile.NamedTemporaryFile(suffix=".json") as trace:
        prof.export_chrome_trace(trace.name)
        events = json.load(open(trace.name))["traceEvents"]
    names = collections.Counter(e["name"] for e in events if e.get("cat") == "kernel")
    json.dump(names, open(path, "w"))


def traced(cudatrace):
    """What cudatrace counted, by map, and what the profiler did."""
    with tempfile.NamedTemporaryFile(suffix=".json") as found:
        command = [cudatrace, "-q", "-f", "json", "-e", SCRIPT, "--", sys.executable, __file__, "--job", found.name]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        profiler = collections.Counter(json.load(open(found.name)))
    maps = {}
    for line in lines:
        record = json.loads(line) if line.startswith("{") else {}
        if record.get("type") == "map":
            maps |= {name.lstrip("@"): collections.Counter(cells) for name, cells in record["data"].items()}
    return maps, profiler


def demangled(name):
    """As the C++ library writes it; C names stay."""
    cxx = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    cxx.restype = ctypes.c_char_p
    return (cxx(name.encode(), None, None, None) or name.encode()).decode()


def compare(what, ours, profiler):
    """Prints the share of launches and of names that are the same, and all that are not."""
    same = ours & profiler
    names = sum(ours[name] == times for name, times in profiler.items())
    print(f"{what}: {sum(same.values())} of {sum(profiler.values())} launches and {names} of {len(profiler)} kernels the same")
    for title, rest in (("only the profiler", profiler - ours), ("only cudatrace", ours - profiler)):
        for name, times in rest.most_common():
            print(f"  {title}: {times} x {name}")


def main():
    maps, profiler = traced(sys.argv[1])
    mangled = collections.Counter()
    for name, times in maps["mangled"].items():
        mangled[demangled(name)] += times
    compare("names, demangled by libstdc++", mangled, profiler)
    compare("full names", maps["full"], profiler)
    # In JSON kernels with the same short name are distinguished by the mangled one.
    unique = [name for name in maps["short"] if not name.startswith("_Z")]
    print(f"short names: {len(unique)} of {len(maps['short'])} are no other kernel's, too")
    for name in unique:
        if not any(re.split("[<(]", name)[0] in known for known in profiler):
            print("  unknown to the profiler:", name)


if sys.argv[1] == "--job":
    job(sys.argv[2])
else:
    main()
