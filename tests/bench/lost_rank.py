#!/usr/bin/env python3
"""How long the others stand still when a process of a run is killed, or until the run has ended.

Usage: lost_rank.py GRAPEVINE [--rounds N] [--processes N] [--steps N] [--algorithm NAME…]
                    [--transport NAME] [--ends]

In each round a random process other than the first is killed by SIGKILL after the first checkpoint;
undisturbed runs take turns with these. The standstill is the longest time between two steps of a
remaining rank, from metrics.csv, after the kill's run has left its first tenth behind. Each run has
to end well, with produced = applied + pending + dropped + destroyed.

With --ends the run needs all its processes: `launch` starts it, a process is killed, and the time
counts until `launch`, which waits for its last process, has ended with exit code 3 and the number of
the killed process in its last line. N rounds kill a random process other than the first, N others
process 0, which has the supervisor; each kind has a line for each algorithm.
"""
import argparse
import csv
import json
import os
import random
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(options, algorithm, out, rank, port, token):
    environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(options.processes),
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GRAPEVINE_JOB_TOKEN=token)
    command = [options.grapevine, "train", "--algorithm", algorithm, "--model", "mlp", "--data",
               "glyphs", "--batch-size", "16", "--steps", str(options.steps), "--transport",
               options.transport, "--checkpoint-every", "0.2", "--validate", "end", "--threads", "1",
               "--out", out]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)


def wait_for(path, process):
    deadline = time.monotonic() + 120
    while not os.path.exists(path):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("no checkpoint: " + process.communicate()[1])
        time.sleep(0.002)


def longest_gap(out, lost):
    times = {}
    with open(os.path.join(out, "metrics.csv"), encoding="utf-8") as table:
        for row in csv.DictReader(table):
            if row["rank"] and int(row["rank"]) not in lost and row["time_s"]:
                times.setdefault(int(row["rank"]), []).append(float(row["time_s"]))
    gaps = []
    for steps in times.values():
        steps = steps[len(steps) // 10:]
        gaps += [after - before for before, after in zip(steps, steps[1:])]
    return max(gaps)


def run(options, algorithm, kills):
    folder = tempfile.mkdtemp(prefix="lost-")
    out, port, token = os.path.join(folder, "run"), free_port(), secrets.token_hex(32)
    processes = [start(options, algorithm, out, rank, port, token)
                 for rank in range(options.processes)]
    lost = []
    if kills:
        wait_for(os.path.join(out, "checkpoint", "latest"), processes[0])
        time.sleep(random.uniform(0, 0.3))
        lost = [random.randrange(1, options.processes)]
        processes[lost[0]].kill()
    for rank, process in enumerate(processes):
        _, err = process.communicate(timeout=300)
        if rank not in lost and process.returncode != 0:
            raise SystemExit(f"{algorithm}, process {rank} of {lost}: {process.returncode}\n{err}")
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    counts = summary["contributions"]
    parts = sum(counts[key] for key in ("applied", "pending", "dropped", "destroyed"))
    if counts["produced"] != parts or summary["lost_ranks"] != lost:
        raise SystemExit(f"{algorithm}: {counts}, lost {summary['lost_ranks']} instead of {lost}")
    gap = longest_gap(out, lost)
    shutil.rmtree(folder)
    return gap, counts["dropped"]


def child_with_rank(launch, rank):
    with open(f"/proc/{launch}/task/{launch}/children", encoding="ascii") as file:
        children = file.read().split()
    for child in children:
        with open(f"/proc/{child}/environ", encoding="utf-8") as file:
            if f"RANK={rank}" in file.read().split("\0"):
                return int(child)
    raise SystemExit(f"launch has no process with RANK={rank}: {children}")


def seconds_to_end(options, algorithm, rank):
    folder = tempfile.mkdtemp(prefix="ended-")
    out, log = os.path.join(folder, "run"), os.path.join(folder, "log")
    command = [options.grapevine, "launch", "-n", str(options.processes), "--", "train",
               "--algorithm", algorithm, "--model", "mlp", "--data", "glyphs", "--batch-size", "16",
               "--steps", "100000000", "--transport", options.transport, "--checkpoint-every", "0.2",
               "--threads", "1", "--min-ranks", str(options.processes), "--out", out]
    with open(log, "w", encoding="utf-8") as file:
        launch = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
    try:
        deadline = time.monotonic() + 120
        while not os.path.exists(os.path.join(out, "checkpoint", "latest")):
            if launch.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the run does not begin: see " + log)
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.3))
        began = time.monotonic()
        os.kill(child_with_rank(launch.pid, rank), signal.SIGKILL)
        launch.wait(timeout=120)
        seconds = time.monotonic() - began
    finally:
        if launch.poll() is None:
            launch.terminate()  # it ends its processes
            launch.wait()
    with open(log, encoding="utf-8") as file:
        last = file.read().splitlines()[-1]
    if launch.returncode != 3 or f"process {rank} " not in last:
        raise SystemExit(f"{algorithm}: exit code {launch.returncode}, '{last}'")
    shutil.rmtree(folder)
    return seconds


def print_ends(options):
    print("from the death of a process to the end of the run, s: median (least .. greatest)")
    for algorithm in options.algorithm:
        ends = {"another process": [], "process 0": []}
        for _ in range(options.rounds):
            another = random.randrange(1, options.processes)
            ends["another process"].append(seconds_to_end(options, algorithm, another))
            ends["process 0"].append(seconds_to_end(options, algorithm, 0))
        for killed, seconds in ends.items():
            print(f"{algorithm:16} {killed:16} {statistics.median(seconds):.2f} "
                  f"({min(seconds):.2f} .. {max(seconds):.2f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("grapevine")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--ends", action="store_true")
    parser.add_argument("--algorithm", nargs="+",
                        default=["ar", "topk", "local-sgd", "sgp", "d-psgd", "choco-sgd", "ad-psgd",
                                 "eager-majority", "wagma"])
    options = parser.parse_args()
    if options.ends:
        print_ends(options)
        return
    print("longest time between two steps, ms: median (most)")
    print("preset           undisturbed      a process killed   gradients dropped")
    for algorithm in options.algorithm:
        calm, killed, dropped = [], [], []
        for _ in range(options.rounds):
            calm.append(run(options, algorithm, False)[0])
            gap, count = run(options, algorithm, True)
            killed.append(gap)
            dropped.append(count)
        shown = [f"{1000 * statistics.median(gaps):6.0f} ({1000 * max(gaps):4.0f})"
                 for gaps in (calm, killed)]
        print(f"{algorithm:16} {shown[0]}      {shown[1]}     {max(dropped)}", flush=True)


if __name__ == "__main__":
    main()
