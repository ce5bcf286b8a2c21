"""Two threads, one for each GPU, that allocate and launch, and now and then switch to the other device."""
import sys, threading, torch
n = min(2, torch.cuda.device_count())
def work(device, ops):
    with torch.cuda.device(device):
        x = torch.zeros(1 << 20, device="cuda")
        for i in range(ops):
            x.add_(1)
            if i % 10 == 0:
                with torch.cuda.device((device + 1) % n):
                    y = torch.zeros(1 << 10, device="cuda")
        torch.cuda.synchronize()
    for d in range(n):
        torch.cuda.get_device_properties(d)
threads = [threading.Thread(target=work, args=(d, 1000 * (1 + d))) for d in range(n)]
while True:
    for t in threads: t.start()
    for t in threads: t.join()
    if "--loop" not in sys.argv: break
    threads = [threading.Thread(target=work, args=(d, 1000 * (1 + d))) for d in range(n)]
for d in range(n):
    print("device", d, "bytes", torch.cuda.memory_reserved(d), "add_", 1000 * (1 + d), flush=True)
