#!/usr/bin/env python3
"""The memory of process 0, which supervises a run, beside that of the others.

Usage: process_memory.py GRAPEVINE [--processes N…] [--checkpoints N] [--algorithm NAME]
                         [--transport NAME] [--model NAME] [--data NAME] [--batch-size B]
                         [--optimizer NAME]

For each number of processes, one run with one worker in each: after its first steps it writes N
checkpoints by request, the last process is killed and another one returns in its place, which takes
the whole state of training from a member, one more checkpoint, and the end. Greatest resident memory of a process until then (VmHWM), in MB of 10^6 bytes:

  state       bytes of the newest checkpoint for each rank
  first       of process 0, and the greatest of the others, before the first checkpoint
  checkpoint  the same, after the checkpoints
  return      the same, once the new process has taken a step and the last checkpoint is written; of
              the others without the new one, where there is any other
  end         the same, shortly before their end
  new         of the new process, which received a state

Each rank stores its own state, so the columns of process 0 must not grow with the number of
processes. The exit code is 1 if a run did not end as asked.
"""
import argparse
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

import churn


class Peaks:
    """The greatest resident memory of processes, in bytes, which is read 20 times a second."""

    def __init__(self):
        self.peaks, self.ends = {}, threading.Event()
        self.lock = threading.Lock()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def watch(self, pid):
        with self.lock:
            self.peaks[pid] = 0

    def of(self, pids):
        with self.lock:
            return [self.peaks[pid] for pid in pids]

    def close(self):
        self.ends.set()
        self.reader.join()

    def read(self):
        while not self.ends.wait(0.05):
            with self.lock:
                for pid, peak in self.peaks.items():
                    self.peaks[pid] = max(peak, peak_of(pid))


def peak_of(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return next((1024 * int(line.split()[1]) for line in status
                         if line.startswith("VmHWM:")), 0)
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0


def wait_until(is_so, process, what, log):
    deadline = time.monotonic() + 900
    while not is_so():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{what}: see {log}")
        time.sleep(0.05)


class Run:
    def __init__(self, options, processes, folder):
        self.grapevine, self.count = options.grapevine, processes
        self.out = os.path.join(folder, f"run-{processes}")
        options = argparse.Namespace(**vars(options), lr="0.0001", lost_after="")
        options.processes = processes
        self.peaks = Peaks()
        self.job = churn.Job(options, f"{options.algorithm} --optimizer {options.optimizer}",
                             self.out, 10**8)
        for process in self.job.processes:
            self.peaks.watch(process.pid)

    def wait(self, is_so, what):
        wait_until(is_so, self.job.processes[0], what, self.out + ".log")

    def control(self, *request):
        return subprocess.run([self.grapevine, "control", self.out, *request], text=True,
                              capture_output=True, timeout=120, check=False)

    def status(self):
        answer = self.control("status", "--json")
        return json.loads(answer.stdout) if answer.returncode == 0 else None

    def has_steps(self, more=3):
        """From now on every rank takes that many."""
        first = {}

        def have():
            status = self.status()
            if not status or status["stage"] != "running":
                return False
            steps = {rank["rank"]: rank["steps"] for rank in status["ranks"]}
            for rank, step in steps.items():
                first.setdefault(rank, step)
            return len(steps) == self.count and all(
                rank["state"] not in ("lost", "no answer") for rank in status["ranks"]) and all(
                    step >= first[rank] + more for rank, step in steps.items())
        return have

    def newest(self):
        return os.path.realpath(os.path.join(self.out, "checkpoint", "latest"))

    def write_checkpoint(self):
        before = self.newest()
        answer = self.control("checkpoint")
        if answer.returncode != 0:
            raise SystemExit(answer.stderr)
        self.wait(lambda: self.newest() != before, "no checkpoint")

    def state_bytes(self):
        return sum(entry.stat().st_size for entry in os.scandir(self.newest())) / self.count

    def replace_last(self):
        self.job.replace(self.count - 1)
        self.peaks.watch(self.job.processes[-1].pid)

    def memory(self, others=None):
        """Of process 0, and the greatest of the others."""
        own, *rest = self.peaks.of([process.pid for process in self.job.processes][:others])
        return own, max(rest)


def cell(memory):
    return " / ".join(f"{bytes_ / 1e6:,.0f}" for bytes_ in memory)


def measure(options, processes, folder):
    run = Run(options, processes, folder)
    try:
        run.wait(lambda: os.path.exists(os.path.join(run.out, "control.sock")), "no run")
        run.wait(run.has_steps(), "no steps")
        cells = [run.memory()]
        for _ in range(options.checkpoints):
            run.write_checkpoint()
        state = run.state_bytes()
        cells.append(run.memory())
        run.replace_last()
        run.wait(run.has_steps(), "the new process takes no step")
        run.write_checkpoint()
        # With two processes there is no other one but the new one.
        others = processes - 1 if processes > 2 else None
        cells.append(run.memory(others))
        new = run.peaks.of([run.job.processes[-1].pid])
        code = run.job.end()
        cells.append(run.memory(others))
        print(f"{processes:9d}  {state / 1e6:8,.0f}  " +
              "  ".join(f"{cell(memory):>15s}" for memory in cells) + f"  {cell(new):>7s}",
              flush=True)
        return code == 4
    finally:
        run.peaks.close()
        run.job.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grapevine")
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--checkpoints", type=int, default=3)
    parser.add_argument("--algorithm", default="sgp")
    parser.add_argument("--transport", default="tcp")
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--data", default="hyperplane:60000")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--optimizer", default="sgd")
    options = parser.parse_args()
    if min(options.processes) < 2:
        parser.error("--processes: a run has at least 2, because the last one is replaced")
    if options.checkpoints < 1:
        parser.error("--checkpoints: at least 1")
    folder = tempfile.mkdtemp(prefix="memory-")
    print("processes     state            first       checkpoint           return              end"
          "      new")
    good = [measure(options, processes, folder) for processes in options.processes]
    if not all(good):
        raise SystemExit(f"a run did not end as asked: see {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
