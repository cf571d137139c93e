#!/usr/bin/env python3
"""What a change of the wiring costs a running job, in milliseconds and in steps.

Usage: live_changes.py GRAPEVINE [--processes P] [--transports NAME…] [--rounds N] [--job "OPTIONS"]

One job of P processes changes `ar → sgp → gtopk → gem → ar` by epoch. The pause of a change is the longest
time between two steps of one rank around it, less the median time of a step in that run: what the rank
would not have waited without the change. Prints the median and the longest of all rounds, beside the
median step; on standard error the contributions of the runs: produced, and dropped.
"""
import argparse
import collections
import csv
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

CHAIN = ["ar", "sgp", "gtopk", "gem", "ar"]
EPOCHS_EACH = 2


def schedule(path):
    with open(path, "w") as file:
        for place, algorithm in enumerate(CHAIN[1:], 1):
            file.write(f'[[change]]\nepoch = {place * EPOCHS_EACH}\nalgorithm = "{algorithm}"\n')


def gaps(path):
    """By rank: (end of the gap, its length) of all pairs of neighbouring steps."""
    ends = collections.defaultdict(list)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            ends[row["rank"]].append(float(row["time_s"]))
    return {rank: [(after, after - before) for before, after in zip(times, times[1:])]
            for rank, times in ((rank, sorted(times)) for rank, times in ends.items())}


def pauses(by_rank, changes):
    """The longest gap of any rank at each change, less the median step.

    A change stops all ranks at once, so the gaps that belong to one overlap: ranks are compared by the
    time at which the gap ended.
    """
    step = statistics.median(length for steps in by_rank.values() for _, length in steps)
    longest = sorted(((length, end) for steps in by_rank.values() for end, length in steps), reverse=True)
    found = []
    for length, end in longest:
        if all(abs(end - other) > 5 * step for _, other in found):
            found.append((length, end))
        if len(found) == changes:
            break
    return step, [length - step for length, _ in sorted(found, key=lambda gap: gap[1])]


def run(options, transport, folder):
    plan = os.path.join(folder, "schedule.toml")
    schedule(plan)
    out = os.path.join(folder, "run")
    command = [options.grapevine, "launch", "-n", str(options.processes), "--", "train", "--algorithm", CHAIN[0],
               "--epochs", str(EPOCHS_EACH * len(CHAIN)), "--schedule", plan, "--threads", "1", "--validate", "end",
               "--checkpoint-every", "0", "--transport", transport, "--out", out, "--overwrite", "--json"]
    done = subprocess.run(command + shlex.split(options.job), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}: {done.stderr}")
    changes = done.stderr.count("changed: ")
    if changes != len(CHAIN) - 1:
        raise SystemExit(f"{changes} changes instead of {len(CHAIN) - 1}: {done.stderr}")
    with open(os.path.join(out, "summary.json")) as file:
        summary = json.load(file)
    return pauses(gaps(os.path.join(out, "metrics.csv")), changes) + (summary,)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("grapevine")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--transports", nargs="+", default=["tcp", "ucx", "shm"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--job", default="--model lenet --data glyphs:2400 --batch-size 16",
                        help="options of train")
    options = parser.parse_args()
    changes = [f"{before} → {after}" for before, after in zip(CHAIN, CHAIN[1:])]
    print("| transport | change | pause, median | longest | median step | pause in steps |")
    print("|---|---|---|---|---|---|")
    for transport in options.transports:
        rounds = []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                rounds.append(run(options, transport, folder))
        step = statistics.median(r[0] for r in rounds)
        for place, change in enumerate(changes):
            each = [r[1][place] for r in rounds]
            print(f"| {transport} | {change} | {statistics.median(each) * 1e3:.0f} ms | {max(each) * 1e3:.0f} ms "
                  f"| {step * 1e3:.1f} ms | {statistics.median(each) / step:.1f} |", flush=True)
        counts = [r[2]["contributions"] for r in rounds]
        print(f"{transport}: {sum(c['produced'] for c in counts)} produced, "
              f"{sum(c['dropped'] for c in counts)} dropped", file=sys.stderr)


if __name__ == "__main__":
    main()
