#!/usr/bin/env python3
"""Times PyTorch's all-reduce over gloo, as one rank of a comparison with `grapevine bench allreduce`.

Usage: RANK=R WORLD_SIZE=N MASTER_ADDR=A MASTER_PORT=P gloo_allreduce.py --iterations I --bytes B…

The time from a barrier to the sum on rank 0. Prints one JSON object per size.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed


def measure(size, iterations, rank, ranks):
    data = torch.empty(size // 4)
    seconds = []
    for turn in range(iterations + 1):
        data.fill_(rank + 1)
        torch.distributed.barrier()
        begin = time.perf_counter()
        torch.distributed.all_reduce(data)
        seconds.append(time.perf_counter() - begin)
    if not bool((data == ranks * (ranks + 1) / 2).all()):
        raise SystemExit("gloo's sum is wrong")
    if rank == 0:
        # The first one touches fresh memory.
        print(json.dumps({"bytes": size, "seconds": seconds[1:]}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--bytes", type=int, nargs="+", required=True)
    options = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    for size in options.bytes:
        measure(size, options.iterations, torch.distributed.get_rank(),
                torch.distributed.get_world_size())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
