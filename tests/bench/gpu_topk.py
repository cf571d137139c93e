"""torch.topk over |x| at the size and density of cuda_kernels_bench: device-event median."""

import statistics

import torch

D = 25 << 20
K = int(0.001 * D)
ROUNDS = 20

x = torch.randn(D, device="cuda")
size = x.abs()
times = []
for i in range(ROUNDS + 3):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.topk(size, K, sorted=False)
    end.record()
    end.synchronize()
    if i >= 3:
        times.append(begin.elapsed_time(end) * 1000)
print(f"\n| torch.topk of {D}, k = {K} | {statistics.median(times):.1f} us |")
