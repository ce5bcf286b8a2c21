"""A training loop of GPT-2 with random weights: which of its lines let the GPU work, allocate, copy and wait?

lines.py [STEPS [wait]]: `wait` begins after a line on the standard input. Prints the time of a step, the best of all, and the last loss.
"""
import sys
import time

import torch
import transformers


def batch(rows=8, words=256):
    return torch.randint(0, 50257, (rows, words)).cuda()  # COPIES


def step(model, optimizer):
    words = batch()
    loss = model(input_ids=words, labels=words).loss  # FORWARD
    loss.backward()  # BACKWARD
    optimizer.step()  # OPTIMIZER
    optimizer.zero_grad(set_to_none=True)
    return loss.item()  # WAITS


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    config = transformers.GPT2Config(n_layer=6, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    model = transformers.GPT2LMHeadModel(config).cuda()  # WEIGHTS
    optimizer = torch.optim.AdamW(model.parameters())
    losses = [step(model, optimizer) for _ in range(3)]
    if "wait" in sys.argv:
        print("ready", flush=True)
        sys.stdin.readline()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        losses.append(step(model, optimizer))
        times.append(time.perf_counter() - begin)
    print("best %.2f ms, median %.2f ms, loss %r" % (1000 * min(times), 1000 * sorted(times)[len(times) // 2], losses[-1]))


main()
