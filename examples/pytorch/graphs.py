"""CUDA graphs in PyTorch: one captured by hand and replayed 50 times, and what torch.compile makes of a function.

    cudatrace graphs -- python3 graphs.py
"""
import torch
g = torch.cuda.CUDAGraph()
x = torch.randn(512, 512, device="cuda"); w = torch.randn(512, 512, device="cuda")
s = torch.cuda.Stream()
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    for _ in range(3): y = torch.relu(x @ w)
torch.cuda.current_stream().wait_stream(s)
with torch.cuda.graph(g):
    y = torch.relu(x @ w); z = y.softmax(-1)
for _ in range(50): g.replay()
torch.cuda.synchronize(); print("graph ok", z.sum().item())
f = torch.compile(lambda a: (a @ w).relu().sum(-1).sqrt(), mode="reduce-overhead")
for _ in range(8): f(x)
torch.cuda.synchronize(); print("compile ok")
