#!/usr/bin/env python3
"""What tracing costs where it costs most: many workers, a small model, small batches.

Usage: trace_overhead.py GRAPEVINE [--pairs N] [--workers N] [--steps N] [--algorithm NAME…]

Runs with --trace on and off take turns, and each pair begins with the other one than the pair before.
The table has the median of the pairs' ratios of time, with the quartiles, for each preset.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile


def seconds(grapevine, algorithm, workers, steps, trace):
    folder = tempfile.mkdtemp(prefix="trace-")
    command = [grapevine, "train", "--algorithm", algorithm, "--model", "linear", "--batch-size", "8",
               "--workers", str(workers), "--steps", str(steps), "--threads", "1", "--validate", "end",
               "--checkpoint-every", "0", "--trace", trace, "--out", os.path.join(folder, "run"),
               "--json"]
    done = subprocess.run(command, check=True, capture_output=True, timeout=600)
    summary = json.loads(done.stdout.splitlines()[-1])
    shutil.rmtree(folder)
    return summary["wall_seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("grapevine")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--algorithm", nargs="+", default=["sgp", "ar"])
    options = parser.parse_args()
    print("preset    off (s)   on (s)   on / off  (quartiles)")
    for algorithm in options.algorithm:
        times = {"on": [], "off": []}
        for pair in range(options.pairs + 1):
            order = ("on", "off") if pair % 2 == 0 else ("off", "on")
            for trace in order:
                taken = seconds(options.grapevine, algorithm, options.workers, options.steps, trace)
                if pair > 0:  # the first one warms up
                    times[trace].append(taken)
        ratios = [on / off for on, off in zip(times["on"], times["off"])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{algorithm:8} {statistics.median(times['off']):8.2f} {statistics.median(times['on']):8.2f}"
              f"   {middle:8.4f}  ({low:.4f} .. {high:.4f})", flush=True)


if __name__ == "__main__":
    main()
