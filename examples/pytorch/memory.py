"""What torch.cuda.memory records of the memory that lines.py gets from CUDA, by line, for a comparison with cudatrace. memory.py [STEPS]

Compare with: cudatrace -e 'cuda:alloc { @[pyline(own)] = sum(args.bytes) }' -- python3 memory.py
"""
import collections
import os
import runpy
import sys

import torch

torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
here = os.path.dirname(os.path.abspath(__file__))
sys.argv = ["lines.py"] + sys.argv[1:]
runpy.run_path(os.path.join(here, "lines.py"), run_name="__main__")
total = collections.Counter()
for event in torch.cuda.memory._snapshot()["device_traces"][0]:
    if event["action"] in ("segment_alloc", "segment_map"):
        frames = [frame for frame in event["frames"] if "packages" not in frame["filename"] and "python3" not in frame["filename"]]
        line = "%s:%d" % (frames[0]["filename"], frames[0]["line"]) if frames else "(no Python)"
        total[line] += event["size"]
for line, size in total.most_common():
    print("torch %s: %d" % (line, size))
