#!/usr/bin/env python3
"""A run whose processes are killed and replaced again and again.

Usage: churn.py GRAPEVINE [--seconds S] [--processes N] [--algorithm NAME…] [--every A:B] [--seed N]
                [--transport NAME] [--restarts N] [--checkpoint-every EPOCHS]
                [--model NAME] [--data NAME] [--batch-size B] [--lr LR] [--delay TEXT]
                [--delay-both] [--stopped SHARE] [--lost-after S]

NAME may be followed by `--set KEY=VALUE`, in quotes. Every A to B seconds a random process other
than the first is killed by SIGKILL, or, with the probability SHARE, stopped by SIGSTOP for the rest
of the run, and another one is started in its place at once. An undisturbed run of as many steps
follows, without `--delay`, which makes the steps of the disturbed one take time and few cores;
`--delay-both` delays it, too, for a method whose result depends on how many gradients are on their
way at a time. Per algorithm, from metrics.csv and the log of process 0:

  kills       and how many of them were followed by a return
  after kill  seconds from a kill to the next completed step of another rank: median, 99th percentile
  standstill  the longest time without a step of any rank
  return      seconds from the start of a process to its first step: median, 99th percentile. With
              `--model mlp --data hyperplane:20000` the model that it receives has 10 MB; with
              `--every 3:4` no process is killed before it has returned
  ledger      produced = applied + pending + dropped + destroyed, or by how much not
  stopped     and how many processes counted as lost by their silence: some are killed or replaced
              before
  loss        of the last model on the test data, over that of the undisturbed run at equal samples:
              take data whose loss does not tend to 0, as `hyperplane`

The exit code is 1 if a ledger is not exact, no process returned, or a run did not end as asked.

With --restarts N, what a job does that cannot lose a process: a random process is killed after 3 s
of training, the others end, and all are started again from the newest checkpoint, N times. Seconds
from the kill to the first step, and until the slowest rank has the steps again that it had at the
kill: median and greatest.
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
import subprocess
import tempfile
import time


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def file_name(algorithm):
    return algorithm.replace("--set", "").replace("=", "-").replace(" ", "-")


class Job:
    """The processes of one run."""

    def __init__(self, options, algorithm, out, steps, checkpoint_every=0, resume=False,
                 delay=""):
        self.options, self.out = options, out
        self.port, self.token = free_port(), secrets.token_hex(16)
        self.command = [options.grapevine, "train", "--algorithm", *algorithm.split(), "--model",
                        options.model, "--data", options.data, "--batch-size",
                        str(options.batch_size), "--steps", str(steps),
                        "--transport", options.transport, "--validate", "end",
                        "--checkpoint-every", str(checkpoint_every), "--threads", "1",
                        "--lr", options.lr, "--min-ranks", str(1 if not checkpoint_every else
                                                           options.processes), "--out", out]
        if delay:
            self.command += ["--delay", delay]
        if options.lost_after:
            self.command += ["--lost-after", options.lost_after]
        if resume:
            self.command += ["--resume", out]
        self.log = open(out + ".log", "a", encoding="utf-8")
        self.stopped = []
        self.processes = [self.start(rank) for rank in range(options.processes)]

    def start(self, rank):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(self.options.processes),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.port),
                           GRAPEVINE_JOB_TOKEN=self.token)
        stderr = self.log if rank == 0 else subprocess.DEVNULL
        return subprocess.Popen(self.command, env=environment, stdout=subprocess.DEVNULL,
                                stderr=stderr)

    def replace(self, rank, stopped=False):
        """In place of a killed one; a stopped one stays as it is until the end."""
        lost = self.processes[rank]
        if stopped:
            lost.send_signal(signal.SIGSTOP)
            self.stopped.append(lost)
        else:
            lost.kill()
            lost.wait()
        self.processes[rank] = self.start(rank)

    def end(self):
        self.processes[0].send_signal(signal.SIGTERM)
        code = self.processes[0].wait(timeout=120)
        for process in self.processes[1:]:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
        self.kill()
        return code

    def kill(self):
        for process in self.processes + self.stopped:
            process.kill()
            process.wait()


def rows_of(out):
    with open(os.path.join(out, "metrics.csv"), encoding="utf-8") as table:
        return [(float(row["time_s"]), int(row["rank"]), float(row["loss"]))
                for row in csv.DictReader(table) if row["time_s"] and row["loss"]]


def wait_for_steps(out, process):
    path = os.path.join(out, "metrics.csv")
    deadline = time.monotonic() + 120
    while not os.path.exists(path) or os.path.getsize(path) < 2000:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the run does not begin: see " + out + ".log")
        time.sleep(0.01)


def disturbed(options, algorithm, folder, rng):
    out = os.path.join(folder, file_name(algorithm))
    job = Job(options, algorithm, out, 10**8, delay=options.delay)
    try:
        return disturb(options, job, out, rng)
    finally:
        job.kill()


def disturb(options, job, out, rng):
    wait_for_steps(out, job.processes[0])
    first, rows = time.monotonic(), rows_of(out)
    zero = first - rows[-1][0]  # of the run's clock, on this one
    least, most = (float(x) for x in options.every.split(":"))
    kills = []
    while time.monotonic() - first < options.seconds:
        time.sleep(rng.uniform(least, most))
        rank = rng.randrange(1, options.processes)
        kills.append((time.monotonic() - zero, rank))
        job.replace(rank, rng.random() < options.stopped)
        if job.processes[0].poll() is not None:
            raise SystemExit("the run has ended: see " + out + ".log")
    time.sleep(5)  # the last one returns
    stopped = len(job.stopped)
    code = job.end()
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    with open(out + ".log", encoding="utf-8") as log:
        silent = log.read().count("it counts as lost")
    return code, kills, rows_of(out), summary, f"{stopped} / {silent}"


def seconds_after(kills, rows):
    times = sorted((time_s, rank) for time_s, rank, _ in rows)
    gaps = []
    for at, killed in kills:
        later = [time_s for time_s, rank in times if time_s > at and rank != killed]
        if later:
            gaps.append(later[0] - at)
    return gaps


def seconds_to_return(kills, rows):
    """From a restart to the first step of the rank after it, before it is killed again."""
    returns = []
    for i, (at, rank) in enumerate(kills):
        again = next((later for later, other in kills[i + 1:] if other == rank), float("inf"))
        # Steps of its earlier life may be reported a moment after its death.
        steps = [t for t, r, _ in rows if r == rank and at + 0.5 < t < again]
        if steps:
            returns.append(min(steps) - at)
    return returns


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def least_steps(out, processes):
    """The steps of the slowest rank; of rows that are whole."""
    steps = [0] * processes
    try:
        with open(os.path.join(out, "metrics.csv"), encoding="utf-8") as table:
            header, *lines = table.read().split("\n")[:-1]
            rank, step = (header.split(",").index(name) for name in ("rank", "step"))
            for cells in (line.split(",") for line in lines):
                if cells[rank]:
                    steps[int(cells[rank])] = max(steps[int(cells[rank])], int(cells[step]) + 1)
    except (FileNotFoundError, ValueError):  # a run that begins writes it anew
        pass
    return min(steps)


def seconds_until(began, out, processes, steps, job):
    while least_steps(out, processes) < steps:
        if job.processes[0].poll() is not None or time.monotonic() - began > 120:
            raise SystemExit("the run does not continue: see " + out + ".log")
        time.sleep(0.02)
    return time.monotonic() - began


def restarted(options, algorithm, folder, rng):
    """Seconds from each kill to the first step after it, and to the steps that there were; the steps
    of a rank that were done again."""
    out = os.path.join(folder, file_name(algorithm) + "-restarted")
    every = options.checkpoint_every
    job = Job(options, algorithm, out, 10**8, every)
    wait_for_steps(out, job.processes[0])
    first, again, lost = [], [], []
    for _ in range(options.restarts):
        time.sleep(3)
        began = time.monotonic()
        job.processes[rng.randrange(1, options.processes)].kill()
        had = least_steps(out, options.processes)
        for process in job.processes:
            process.wait(timeout=60)
        job = Job(options, algorithm, out, 10**8, every, resume=True)
        # Rows after the checkpoint go as the run begins.
        while (kept := least_steps(out, options.processes)) >= had:
            if job.processes[0].poll() is not None or time.monotonic() - began > 120:
                raise SystemExit("the run does not continue: see " + out + ".log")
            time.sleep(0.005)
        lost.append(had - kept)
        first.append(seconds_until(began, out, options.processes, kept + 1, job))
        again.append(seconds_until(began, out, options.processes, had + 1, job))
    job.end()
    return first, again, lost


def print_restarts(options, algorithm, folder, rng):
    first, again, lost = restarted(options, algorithm, folder, rng)
    print(f"{algorithm:15s} {len(first)} restarts: first step after {quantile(first, 0.5):.2f} s "
          f"(at most {max(first):.2f}), as far as before after {quantile(again, 0.5):.2f} s (at most "
          f"{max(again):.2f}), {quantile(lost, 0.5)} steps of each rank done again", flush=True)


def test_loss(options, out):
    """Of the model that the run has left."""
    done = subprocess.run([options.grapevine, "evaluate", out, "--json"], capture_output=True,
                          text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit("the model cannot be evaluated: " + done.stderr)
    return json.loads(done.stdout.splitlines()[-1])["loss"]


def undisturbed_loss(options, algorithm, folder, steps):
    out = os.path.join(folder, file_name(algorithm) + "-undisturbed")
    job = Job(options, algorithm, out, steps, delay=options.delay if options.delay_both else "")
    job.processes[0].wait(timeout=3600)
    for process in job.processes[1:]:
        process.wait(timeout=60)
    return test_loss(options, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grapevine")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--every", default="0.5:2")
    parser.add_argument("--stopped", type=float, default=0)
    parser.add_argument("--delay", default="")
    parser.add_argument("--delay-both", action="store_true")
    parser.add_argument("--lost-after", default="")
    parser.add_argument("--algorithm", nargs="+", default=["ar", "sgp", "ad-psgd", "eager-majority"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--data", default="glyphs")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", default="0.01")
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=float, default=0.5)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="churn-")
    if options.restarts > 0:
        for algorithm in options.algorithm:
            print_restarts(options, algorithm, folder, random.Random(options.seed))
        shutil.rmtree(folder)
        return
    print("algorithm       kills returns  after kill p50  p99  standstill  return p50   p99"
          "  ledger  loss  destroyed  stopped / silent")
    faults = 0
    for algorithm in options.algorithm:
        rng = random.Random(options.seed)
        code, kills, rows, summary, silent = disturbed(options, algorithm, folder, rng)
        counts = summary["contributions"]
        off = counts["produced"] - sum(counts[state] for state in
                                       ("applied", "pending", "dropped", "destroyed"))
        gaps = seconds_after(kills, rows)
        times = sorted(t for t, _, _ in rows)
        standstill = max(b - a for a, b in zip(times, times[1:]))
        back = seconds_to_return(kills, rows)
        steps = summary["samples"] // (options.batch_size * options.processes)
        loss = (test_loss(options, os.path.join(folder, file_name(algorithm))) /
                undisturbed_loss(options, algorithm, folder, steps))
        print(f"{algorithm:15s} {len(kills):5d} {len(back):7d}  {quantile(gaps, 0.5):14.2f} "
              f"{quantile(gaps, 0.99):4.1f}  {standstill:10.1f}  {quantile(back, 0.5):10.2f} "
              f"{quantile(back, 0.99):5.2f}  "
              f"{'exact' if off == 0 else off:>6}  {loss:.3f}  {counts['destroyed']:9d}  {silent}"
              f"{'' if code == 4 else '  exit code ' + str(code)}", flush=True)
        faults += off != 0 or code != 4 or not back
    shutil.rmtree(folder)
    if faults:
        raise SystemExit(f"{faults} of {len(options.algorithm)} runs have a fault: see above")


if __name__ == "__main__":
    main()
