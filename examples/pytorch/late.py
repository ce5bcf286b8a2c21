"""A training loop that keeps what it should drop: 32 MiB a step, for as long as it is left running.

    python3 late.py & sleep 10; cudatrace memleak -p $!

Says after each step how much it has kept so far, so that what a tracer attached on the way finds can be compared.
"""
import os, sys, time, torch
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 30
model = torch.nn.Linear(1024, 1024).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
kept, end = [], time.time() + seconds
print("pid", os.getpid(), flush=True)
while time.time() < end:
    loss = model(torch.randn(4096, 1024, device="cuda")).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    kept.append(torch.full((32 << 18,), loss.item(), device="cuda"))  # 32 MiB of floats that nobody asks for again
    print(time.strftime("%H:%M:%S"), len(kept), "kept", len(kept) * 32, "MiB", torch.cuda.memory_reserved() >> 20, "reserved", flush=True)
    time.sleep(0.25)
