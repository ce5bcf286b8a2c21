"""A training loop of a small Llama with random weights on random text: train.py [--seconds 20] [--plant norms,text]

Prints the steps per second, each second. `--plant` adds faults that training loops really have, for a tracer to find:

    norms   the norm of every gradient is read by the host, one by one
    text    the words of the next batch are made one by one, in Python, while the GPU waits
"""
import argparse
import time

import torch
import transformers

ROWS, WORDS, VOCABULARY = 8, 256, 32000


def batch(faults):
    if "text" in faults:
        rows = [[(row * 31 + word * 17) % VOCABULARY for word in range(WORDS)] for row in range(ROWS)]
        for row in rows:
            row.sort(key=lambda word: hash(str(word)))  # PLANTED: text
        return torch.tensor(rows).cuda()
    return torch.randint(0, VOCABULARY, (ROWS, WORDS), device="cuda")


def step(model, optimizer, faults):
    words = batch(faults)
    loss = model(input_ids=words, labels=words).loss
    loss.backward()
    if "norms" in faults:
        norms = [weight.grad.norm().item() for weight in model.parameters()]  # PLANTED: norms
        assert max(norms) < 1e6, "the gradients explode"
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--plant", default="")
    options = parser.parse_args()
    faults = set(options.plant.split(","))
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
    )
    model = transformers.LlamaForCausalLM(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(3):
        step(model, optimizer, faults)
    print("ready", flush=True)
    for second in range(1, options.seconds + 1):
        begin, steps = time.monotonic(), 0
        while time.monotonic() < begin + 1:
            loss = step(model, optimizer, faults)
            steps += 1
            if steps % 8 == 0:
                torch.cuda.synchronize()
        print("%3d s  %5.1f steps/s, loss %.3f" % (second, steps / (time.monotonic() - begin), loss), flush=True)


main()
