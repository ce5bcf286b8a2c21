"""Programs for recordings.sh: python3 recordings.py ranges|rank|decode|train [profiler]"""
import contextlib
import os
import sys
import time

import torch


def ranges():
    """Ranges of NVTX of each form, and those of operators."""
    nvtx, x = torch.cuda.nvtx, torch.randn(2048, 2048, device="cuda")
    job = nvtx.range_start("job")
    for _ in range(200):
        nvtx.range_push("outer")
        with nvtx.range("inner"):
            x @ x
        nvtx.mark("tick")
        nvtx.range_pop()
    nvtx.range_end(job)
    with torch.autograd.profiler.emit_nvtx():
        torch.nn.Linear(2048, 2048).cuda()(x).sum().backward()
    torch.cuda.synchronize()


def rank():
    """A rank of a job of two, of which rank 1 computes twice as long."""
    import torch.distributed as dist

    own = int(os.environ["RANK"])
    torch.cuda.set_device(own)
    dist.init_process_group("nccl", device_id=torch.device("cuda", own))
    x, gradients = torch.randn(4096, 4096, device="cuda"), torch.randn(1 << 22, device="cuda")
    for _ in range(60):
        for _ in range(4 + 4 * own):
            x @ x
        dist.all_reduce(gradients)
    torch.cuda.synchronize()
    dist.destroy_process_group()


def best(run, first, rounds):
    """Prints the best time of `rounds`, after `first` others; under torch.profiler if that is asked for."""

    def timed():
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3

    with torch.profiler.profile() if "profiler" in sys.argv else contextlib.nullcontext():
        for _ in range(first):
            timed()
        print(f"best ms {min(timed() for _ in range(rounds)):.1f}")


def decode():
    """Greedy decoding by a small GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=6)).cuda().eval()
    ids = torch.randint(0, 50000, (1, 8), device="cuda")
    with torch.no_grad():
        best(lambda: model.generate(ids, max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0), 3, 12)


def train():
    """Steps of a training of the same model."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=6)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    words = torch.randint(0, 50000, (2, 64), device="cuda")

    def step():
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    best(step, 10, 60)


{"ranges": ranges, "rank": rank, "decode": decode, "train": train}[sys.argv[1]]()
