"""Collectives on several GPUs, with kernels beside some of them: python3 collectives.py

Each rank reduces 64 MiB twenty times while it multiplies matrices, and gathers 16 MiB ten times while it does nothing else. The last rank
is late at each gathering by a millisecond of the GPU. Prints what CUDA events around the collectives measure."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as processes


def rank_of(rank, ranks):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    gradients = torch.ones(16 << 20, device="cuda")
    shard = torch.ones(4 << 20, device="cuda")
    whole = torch.empty(ranks * (4 << 20), device="cuda")
    matrix = torch.randn(4096, 4096, device="cuda")
    for _ in range(3):
        dist.all_reduce(gradients)
        dist.all_gather_into_tensor(whole, shard)
        matrix @ matrix
    torch.cuda.synchronize()
    dist.barrier()
    for _ in range(20):
        work = dist.all_reduce(gradients, async_op=True)
        for _ in range(4):
            matrix @ matrix
        work.wait()
    torch.cuda.synchronize()
    pairs = []
    for _ in range(10):
        dist.barrier()
        torch.cuda.synchronize()
        if rank == ranks - 1:
            torch.cuda._sleep(2_000_000)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        dist.all_gather_into_tensor(whole, shard)
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    print(f"rank {rank}, process {os.getpid()}: 10 gatherings in {sum(b.elapsed_time(e) for b, e in pairs):.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    processes.spawn(rank_of, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
