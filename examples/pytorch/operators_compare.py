"""Compares operators of a trace with those of torch.profiler. operators_compare.py PROFILED TRACED STEPS

The trace has the whole program: three steps before the measured ones, and the copy of the weights. So calls of a step are compared as
differences of what both have of each operator in a step, times the number of steps.
"""
import json
import sys

profiled = {}
for line in open(sys.argv[1]):
    calls, ns, name = line.rstrip("\n").split(" ", 2)
    profiled[name] = (int(calls), int(ns))
maps = {}
for line in open(sys.argv[2]):
    if line.startswith("{"):
        record = json.loads(line)
        if record.get("type") == "map":
            maps.update(record["data"])
steps = int(sys.argv[3])
traced_steps = steps + 3
calls, ns = maps.get("@all", {}), maps.get("@ns", {})
rows = same = 0
for name, (count, time) in sorted(profiled.items(), key=lambda row: -row[1][1]):
    if name not in calls:
        continue
    rows += 1
    expected = count * traced_steps / steps
    is_same = abs(calls[name] - expected) < 1
    same += is_same
    if time > 0 or not is_same:
        gpu = ns.get(name, 0) / traced_steps
        off = 100 * (gpu / (time / steps) - 1) if time else 0.0
        print("%-50s calls %8d, expected %10.1f   GPU us a step %9.1f, torch.profiler %9.1f (%+.1f %%)"
              % (name[:50], calls[name], expected, gpu / 1000, time / steps / 1000, off))
print("%d operators, of %d the same number of calls" % (rows, same))
