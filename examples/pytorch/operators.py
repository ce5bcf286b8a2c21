"""A training step of GPT-2 with random weights, for its operators: how often each runs, and for how long its kernels do.

operators.py STEPS                  the steps, as a trace sees them; prints the last loss and the time of the best step
operators.py STEPS profile FILE     the same steps with torch.profiler; FILE gets a line for each operator: calls, ns of its own kernels, name
"""
import sys
import time

import torch
import transformers


def step(model, optimizer, words):
    loss = model(input_ids=words, labels=words).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def main():
    steps = int(sys.argv[1])
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    config = transformers.GPT2Config(n_layer=6, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    words = torch.randint(0, 50257, (8, 256)).cuda()
    for _ in range(3):
        step(model, optimizer, words)
    torch.cuda.synchronize()
    times = []

    def run():
        for _ in range(steps):
            begin = time.perf_counter()
            loss = step(model, optimizer, words)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return loss

    if len(sys.argv) > 3 and sys.argv[2] == "profile":
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            loss = run()
        with open(sys.argv[3], "w") as file:
            for row in profile.key_averages():
                file.write("%d %d %s\n" % (row.count, row.self_device_time_total * 1000, row.key))
    else:
        loss = run()
    print("best %.2f ms, loss %r" % (1000 * min(times), loss.item()))


main()
