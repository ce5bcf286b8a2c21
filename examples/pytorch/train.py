"""A small training job with habits worth finding: churn, waits, an OOM, a graph, copies both ways, two streams."""
import sys, time, torch
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(256, 512).pin_memory()
label = torch.randint(0, 10, (256,))
side = torch.cuda.Stream()
for step in range(steps):
    x = data.cuda(non_blocking=True); y = label.cuda()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    loss.item()
    with torch.cuda.stream(side):
        z = x * 2
    side.synchronize()
    if step % 10 == 0:
        big = torch.empty(1 << 30, dtype=torch.uint8, device="cuda"); del big; torch.cuda.empty_cache()
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    print("oom caught")
g = torch.cuda.CUDAGraph(); buf = torch.zeros(1024, device="cuda")
with torch.cuda.graph(g):
    buf.add_(1); buf.mul_(2)
for _ in range(5): g.replay()
torch.cuda.synchronize()
print("loss %.4f graph %.0f" % (loss.item(), buf[0].item()))
