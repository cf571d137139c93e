#!/usr/bin/env python3
"""Injects stalls into real runs and counts those that `grapevine trace --blame all` names.

Usage: blame_stalls.py GRAPEVINE [--rounds N] [--seed S] [--transports inproc,ucx]
           [--exchanges aggregate,gossip,partial,server] [--show]

Each run has one stall of each kind, of other ranks, at random steps. The table has, for each exchange
and transport, the stalls that were named with the right kind and rank (of a link: both ends), and the
names that no stall explains. Runs without a stall must name nobody. Exit 1 below 95 %, or where one
does. A run is repeated where the whole machine stood still meanwhile, as virtual ones do.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

EXCHANGES = {
    "aggregate": ["--algorithm", "ar"],
    "gossip": ["--algorithm", "sgp"],
    "partial": ["--algorithm", "eager-majority"],
    "server": ["--algorithm", "downpour", "--set", "wiring.local_steps=1"],
}
WORKERS = 4
STEPS = 460
PACE = "lognormal=-4.2:0.15"  # 15 ms a step
LENGTH = 0.6  # seconds


class Machine:
    """Whether this machine stood still for a while: a thread that sleeps 10 ms sees it."""

    def __init__(self):
        self._longest = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        before = time.monotonic()
        while not self._ended.wait(0.01):
            now = time.monotonic()
            self._longest = max(self._longest, now - before)
            before = now

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def stood_still(self):
        return self._longest > LENGTH / 5


def stalls_of(exchange, rng):
    """One stall of each kind but pause, far from each other, of ranks that differ."""
    ranks = rng.sample(range(WORKERS), 3)
    steps = [60 + 70 * i + rng.randrange(20) for i in range(3)]
    rng.shuffle(steps)
    stalls = {
        ("compute", ranks[0], -1): f"compute:{ranks[0]}@{steps[0]}",
        ("data", ranks[1], -1): f"data:{ranks[1]}@{steps[1]}",
    }
    if exchange == "server":
        stalls[("link", ranks[2], WORKERS)] = f"link:{ranks[2]}-{WORKERS}@{steps[2]}"
        stalls[("server", WORKERS, -1)] = f"server:{WORKERS}@{270 + rng.randrange(10)}"
    else:
        # A neighbour in the ring, and in the graph.
        peer = (ranks[2] + 1) % WORKERS
        stalls[("link", ranks[2], peer)] = f"link:{ranks[2]}-{peer}@{steps[2]}"
    return stalls


def command_of(grapevine, exchange, transport, out, seed, stalls):
    delay = ",".join([PACE] + [f"stall={s}:{LENGTH}s" for s in stalls])
    train = ["train", *EXCHANGES[exchange], "--model", "linear", "--steps", str(STEPS), "--seed",
             str(seed), "--delay", delay, "--validate", "end", "--checkpoint-every", "0",
             "--threads", "1", "--out", out]
    if transport == "inproc":
        return [grapevine, *train, "--workers", str(WORKERS)]
    return [grapevine, "launch", "-n", str(WORKERS), "--", *train, "--transport", transport]


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def rank_in(pid):
    """Of a process of a launched job: the launcher names it."""
    with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
        for entry in file.read().split("\0"):
            if entry.startswith("RANK="):
                return int(entry[5:])
    raise RuntimeError(f"process {pid} has no RANK")


def wait_for_training(out):
    """Until the first records of the run are in its trace."""
    trace = os.path.join(out, "trace", "process-0000.gvtrace")
    deadline = time.monotonic() + 120
    while not os.path.exists(trace) or os.path.getsize(trace) < 4000:
        if time.monotonic() > deadline:
            sys.exit(f"{trace}: no record after two minutes")
        time.sleep(0.02)


def run(command, pause, rng, transport, out):
    """The ranks of the process that was stopped for a while, after the other stalls; or nothing."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    paused = set()
    if pause:
        wait_for_training(out)
        time.sleep(6.6 + 0.6 * rng.random())
        target = process.pid
        if transport != "inproc":
            target = rng.choice(children_of(process.pid))
        paused = set(range(WORKERS + 1)) if transport == "inproc" else {rank_in(target)}
        if 0 in paused:
            paused.add(WORKERS)  # the server is in process 0
        os.kill(target, signal.SIGSTOP)
        time.sleep(LENGTH)
        os.kill(target, signal.SIGCONT)
    _, error = process.communicate(timeout=300)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed: {error.decode()}")
    return paused


def blame(grapevine, out):
    # A shared machine stops programs for a tenth of a second now and then, which blame names as well.
    done = subprocess.run([grapevine, "trace", out, "--blame", "all", "--at-least", str(LENGTH / 3),
                           "--json"], check=True, capture_output=True, timeout=300)
    return json.loads(done.stdout)["culprits"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("grapevine")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--transports", default="inproc,ucx")
    parser.add_argument("--exchanges", default=",".join(EXCHANGES))
    parser.add_argument("--show", action="store_true", help="print what was not named")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"seed {options.seed}")
    print("exchange   transport  named/stalls  wrong  runs without a stall that name somebody")
    named_in_all = stalls_in_all = false_alarms = repeated = 0
    for transport in options.transports.split(","):
        for exchange in options.exchanges.split(","):
            named = stalls = wrong = alarms = 0
            missed = []
            for number in range(options.rounds):
                with_stalls = number > 0
                folder = tempfile.mkdtemp(prefix="blame-")
                out = os.path.join(folder, "run")
                wanted = stalls_of(exchange, rng) if with_stalls else {}
                command = command_of(options.grapevine, exchange, transport, out, number + 1,
                                     wanted.values())
                while True:
                    with Machine() as machine:
                        paused = run(command, with_stalls, rng, transport, out)
                    if not machine.stood_still():
                        break
                    repeated += 1
                    shutil.rmtree(out)
                culprits = blame(options.grapevine, out)
                found = {(c["kind"], c["rank"], c["peer"]) for c in culprits}
                for name in wanted:
                    stalls += 1
                    named += name in found
                    if name not in found:
                        missed.append((name, sorted(found)))
                pauses = {f for f in found if f[0] == "pause" and f[1] in paused}
                if paused:
                    stalls += 1
                    named += bool(pauses)
                    if not pauses:
                        missed.append((f"pause of {sorted(paused)}", sorted(found)))
                extra = found - set(wanted) - pauses
                if with_stalls:
                    wrong += len(extra)
                    if extra:
                        missed.append(("wrong", sorted(extra)))
                else:
                    alarms += bool(found)
                    if found:
                        missed.append(("alarm", sorted(found)))
                shutil.rmtree(folder)
            print(f"{exchange:10} {transport:9} {named:6}/{stalls:<6} {wrong:5}  {alarms}", flush=True)
            if options.show:
                for line in missed:
                    print("   ", line)
            named_in_all += named
            stalls_in_all += stalls
            false_alarms += alarms
    share = named_in_all / max(1, stalls_in_all)
    print(f"{named_in_all} of {stalls_in_all} stalls named: {100 * share:.1f} %")
    print(f"runs repeated because the whole machine stood still: {repeated}")
    return 0 if share >= 0.95 and false_alarms == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
