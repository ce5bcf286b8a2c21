"""Are the numbers that cudatrace prints of a PyTorch job the true ones?

    python3 truth.py path/to/cudatrace

The job counts its own calls, made through libcudart beside a short training loop, and prints what it did as JSON. Each check runs
the job under one script or export and compares. A failed check is printed with both numbers; the exit status is their count.
"""
import collections
import ctypes
import gzip
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MIB = 1 << 20
BLOCKS = 10
FAILED = []


def libcudart():
    """The runtime that PyTorch has loaded."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    return ctypes.CDLL(re.search(r"/\S*libcudart\.so\S*", maps).group())


def job(seconds):
    """Trains a little, then makes calls whose number and results are known."""
    import torch

    model = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(256, 512, device="cuda")
    end, steps = time.time() + seconds, 0
    while steps < 20 or time.time() < end:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    torch.cuda.synchronize()
    runtime = libcudart()
    pointers = [ctypes.c_void_p() for _ in range(BLOCKS)]
    results = [runtime.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(MIB)) for p in pointers]
    assert results == [0] * BLOCKS, results
    refused = runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 50))
    direction = runtime.cudaMemcpy(pointers[0], pointers[1], ctypes.c_size_t(64), 77)
    # Two blocks stay: a leak that memleak must find.
    freed = [runtime.cudaFree(p) for p in pointers[:-2]]
    assert freed == [0] * (BLOCKS - 2), freed
    runtime.cudaGetLastError()
    print(json.dumps({"steps": steps, "refused": refused, "direction": direction, "pid": os.getpid()}), flush=True)


def run(cudatrace, *arguments, seconds=0, env=None):
    """The output of cudatrace, and the counts of the job."""
    command = [cudatrace, "-q", *arguments, "--", sys.executable, __file__, "--job", str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **(env or {})}, timeout=300)
    told = [line for line in done.stdout.splitlines() if line.startswith('{"steps"')]
    if done.returncode != 0 or not told:
        print(done.stdout[-2000:], done.stderr[-2000:])
    check("the job ended well", done.returncode, 0)
    return done.stdout, json.loads(told[0]) if told else {}, done.stderr


def check(what, got, expected):
    """Prints a comparison and notes a failure."""
    ok = expected(got) if callable(expected) else got == expected
    print(f"{'ok    ' if ok else 'FAILED'} {what}: {got!r}" + ("" if ok else f", expected {expected!r}"), flush=True)
    if not ok:
        FAILED.append(what)


def maps(output):
    """All maps of a run with `-f json`."""
    found = {}
    for line in output.splitlines():
        record = json.loads(line) if line.startswith('{"type"') else {}
        if record.get("type") in ("map", "stats", "hist"):
            found |= record["data"]
    return found


def allocations(cudatrace):
    """Only allocations that worked are counted by the operation; all are seen by the function."""
    script = """cudart:alloc / args.bytes == 1048576 / { @ok = count(); @bytes = sum(args.bytes) }
        cudart:alloc / args.bytes > 1099511627776 / { @huge = count() }
        cudart:error { @failed[func, args.result] = count() }
        uretprobe:libcudart:cudaMalloc / args.size > 1099511627776 / { @refused[retval] = count() }
        BEGIN { @huge = count(); clear(@huge) }"""
    output, _, _ = run(cudatrace, "-f", "json", "-e", script)
    found = maps(output)
    check("allocations of 1 MiB", found.get("@ok"), lambda n: n is not None and n >= BLOCKS)
    check("refused allocations among successful ones", found.get("@huge", 0), 0)
    check("refused allocations, by function", sum(found.get("@refused", {}).values()), 1)
    check("failed cudaMemcpy", sum(n for key, n in found.get("@failed", {}).items() if key.startswith("cudaMemcpy")), 1)


def errors(cudatrace):
    """The script `errors` names the functions that the program called."""
    output, _, _ = run(cudatrace, "errors")
    for name in ("cudaMalloc", "cudaMemcpy"):
        rows = [line for line in output.splitlines() if re.search(rf"\b{name}\b", line)]
        check(f"`errors` has {name}", bool(rows), True)
    check("`errors` names the result of cudaMemcpy", "cudaErrorInvalidMemcpyDirection" in output, True)


def leaks(cudatrace):
    """memleak finds the two blocks that the job keeps."""
    output, _, _ = run(cudatrace, "memleak")
    check("blocks of 1 MiB that leak", bool(re.search(r"2 blocks|\b2\b.*2\.0 MiB|2\.0 MiB.*\b2\b", output)), True)


def late(cudatrace):
    """Output of a script if libcudart is opened long after the start."""
    script = ("uprobe:libcudart:cudaMalloc / args.size == 1048576 / "
              "{ @[comm(process), ppid > 0] = count() }")
    output, _, error = run(cudatrace, "-f", "json", "-e", script)
    found = maps(output).get("@", {})
    check("process names in a library that is opened late", list(found), lambda keys: keys and all("python" in k for k in keys))
    if "error" in error:
        print(error[-1500:])


def recording(cudatrace):
    """A recording has every call: as many as a count of the same functions."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/run.jsonl"
        _, _, error = run(cudatrace, "record", "--export", f"jsonl={path}", seconds=2, env={"RANK": "3"})
        lines = [json.loads(line) for line in open(path)]
        spans = [line for line in lines if line.get("type") == "span" or "duration" in line or "dur" in line]
        check("spans in the recording", len(spans), lambda n: n > 1000)
        report = subprocess.run([cudatrace, "report", path], stdout=subprocess.PIPE, text=True)
        check("report reads it", report.returncode, 0)
        print(report.stdout[:3500])
        print(error[-500:])
        subprocess.run([cudatrace, "report", path, "--html", f"{os.environ.get('OUT', folder)}/report.html"], check=False)


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes OTLP as JSON and counts spans."""
    spans, traces = 0, set()
    # Connections stay open, as those of collectors do.
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in json.loads(body).get("resourceSpans", []):
            for scope in resource["scopeSpans"]:
                Collector.spans += len(scope["spans"])
                Collector.traces |= {span["traceId"] for span in scope["spans"]}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def spans(cudatrace):
    """Each span of a run reaches a collector on this machine, or is reported as dropped."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/run.jsonl"
        arguments = ["record", "--export", f"jsonl={path}", "--export", f"otlp={address}"]
        # The job makes more calls a second than a receiver in Python can decode, so that some are dropped.
        _, _, error = run(cudatrace, *arguments, seconds=4, env={"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_TIMEOUT": "60000"})
        print(error[-800:])
        kinds = collections.Counter(json.loads(line)["type"] for line in open(path))
    found = re.search(r"otlp=\S+: (\d+) of \d+ records were dropped", error)
    dropped = int(found[1]) if found else 0
    check("spans were recorded", kinds["span"], lambda n: n > 1000)
    # Each trace begins with a root span, which is no record. A dropped record may be an event, such as the end of a process.
    extra = Collector.spans - len(Collector.traces) + dropped - kinds["span"]
    check("spans received and dropped, beyond those recorded", extra, lambda n: 0 <= n <= kinds["event"])
    print(f"{dict(kinds)} recorded, {Collector.spans} spans received in {len(Collector.traces)} traces, {dropped} dropped")
    server.shutdown()


def series(cudatrace):
    """The series of a process end with it, the totals stay."""
    port = 19464
    tracer = subprocess.Popen([cudatrace, "-q", "metrics", "--export", f"openmetrics={port}"])

    def scrape():
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()

    try:
        for _ in range(100):
            time.sleep(0.1)
            try:
                scrape()
                break
            except OSError:
                continue
        pids = []
        for _ in range(3):
            done = subprocess.run([sys.executable, __file__, "--job", "0"], stdout=subprocess.PIPE, text=True, check=True)
            pids.append(json.loads(done.stdout.splitlines()[-1])["pid"])
            print(len(scrape()), "bytes scraped")
        for _ in range(4):
            time.sleep(1)
            text = scrape()
        stale = [pid for pid in pids if re.search(rf'process_pid="{pid}"', text)]
        check("series of processes that have ended", stale, [])
        live = [line for line in text.splitlines() if "live_bytes{" in line and not line.endswith((" 0", " 0.0"))]
        check("live memory of no process", live, [])
        print("\n".join(line for line in text.splitlines() if "error" in line and not line.endswith(" 0"))[:2000])
        print("\n".join(line for line in text.splitlines() if "device" in line and line[0] != "#")[:3000])
    finally:
        tracer.terminate()
        tracer.wait(30)


CHECKS = [allocations, errors, leaks, late, recording, spans, series]


def main():
    if sys.argv[1] == "--job":
        return job(float(sys.argv[2]))
    wanted = sys.argv[2:]
    for part in CHECKS:
        if wanted and part.__name__ not in wanted:
            continue
        print(f"--- {part.__name__}: {part.__doc__.strip()}", flush=True)
        try:
            part(sys.argv[1])
        except Exception as why:  # one part that breaks must not hide the others
            check(part.__name__, repr(why), "no exception")
    sys.exit(len(FAILED))


if __name__ == "__main__":
    main()
