"""Small PyTorch operations with predictable driver calls: launches, an allocation, copies both ways."""
import sys
import time

import torch

OPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

x = torch.zeros(1024, device="cuda")
x.add_(1)
torch.cuda.synchronize()

start = time.perf_counter()
for _ in range(OPS):
    x.add_(1)
torch.cuda.synchronize()
per_op = (time.perf_counter() - start) / OPS * 1e6

big = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
host = torch.ones(1 << 20, dtype=torch.uint8)
big[: 1 << 20].copy_(host)
back = big[: 1 << 20].cpu()
assert back.sum().item() == 1 << 20

a = torch.randn(512, 512, device="cuda")
b = (a @ a).relu()
torch.cuda.synchronize()
print(f"ops {OPS} checksum {x[0].item():.0f} us_per_op {per_op:.2f}")
