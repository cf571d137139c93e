#!/usr/bin/env python3
"""Predictions of `grapevine simulate --from-trace` beside real runs on slow links.

Usage: twin.py GRAPEVINE [--rates R…] [--steps N] [--rounds N] [--wirings NAME…]

Four processes train in network namespaces, joined by links whose senders are limited by tc. One run of
`ar` at the first rate is recorded. From its trace alone each wiring is predicted at each rate, with
even ranks and with a straggler that rotates, and then run. Prints the mean time of a step, predicted
and real (the median of the rounds), the errors, and whether the fastest wiring was named right. Needs
root and iproute2.
"""
import argparse
import csv
import json
import os
import secrets
import shutil
import statistics
import subprocess
import tempfile

from comparison.links import Links

RANKS = 4
EVEN = "lognormal=-3:0.05"  # 50 ms without burning a core: the machine may have fewer cores than ranks
ROTATING = "rotate=0ms..90ms"
WIRINGS = {
    "ar": ["--algorithm", "ar"],
    "osgp": ["--algorithm", "osgp", "--set", "wiring.staleness=4"],
    "eager-quorum": ["--algorithm", "eager-quorum", "--set", "wiring.quorum=3"],
    "gtopk": ["--algorithm", "gtopk"],
}


def job(options, wiring, delay):
    return WIRINGS[wiring] + ["--model", "lenet", "--data", "glyphs:2400", "--batch-size", "4",
                              "--steps", str(options.steps), "--threads", "1", "--delay", delay,
                              "--validate", "end", "--checkpoint-every", "0", "--json"]


def run(options, links, wiring, delay, out):
    """Trains for real; returns the mean step of the run."""
    shutil.rmtree(out, ignore_errors=True)
    port = secrets.randbelow(10000) + 20000  # none that the system gives to clients
    token = secrets.token_hex(16)
    processes = []
    for rank in range(RANKS):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS),
                           MASTER_ADDR="10.79.0.1", MASTER_PORT=str(port),
                           GRAPEVINE_JOB_TOKEN=token)
        command = ["ip", "netns", "exec", links.space(rank), options.grapevine, "train"]
        command += job(options, wiring, delay) + ["--transport", "tcp", "--out", out]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True))
    ends = [process.communicate() for process in processes]
    if any(process.returncode != 0 for process in processes):
        raise SystemExit("a run failed: " + "".join(err for _, err in ends))
    return json.loads(ends[0][0].splitlines()[-1])["step_seconds"]["mean"]


def predict(options, recorded, wiring, mbit, straggler, alpha, out):
    command = [options.grapevine, "simulate", "--from-trace", recorded, "--steps",
               str(options.steps), "--network", f"alpha={alpha},beta={8e-6 / mbit}", "--trace",
               "off", "--json", "--overwrite", "--out", out] + WIRINGS[wiring]
    if straggler:
        command += ["--delay", ROTATING]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    return json.loads(done.stdout.splitlines()[-1])["step_seconds"]["mean"]


def measured_alpha(options, recorded, mbit):
    """What a message took besides its bytes, at the rate of the recorded run: the median of the edges.

    All messages of `ar` have one size, so the simulator cannot tell the two apart by itself.
    """
    tables = os.path.join(recorded, "tables")
    subprocess.run([options.grapevine, "trace", recorded, "--csv", tables], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with open(os.path.join(tables, "edges.csv"), newline="") as file:
        edges = list(csv.DictReader(file))
    rest = [float(edge["p50_latency_s"]) - int(edge["bytes"]) / int(edge["messages"]) * 8e-6 / mbit
            for edge in edges]
    return max(0, statistics.median(rest))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grapevine")
    parser.add_argument("--rates", type=int, nargs="+", default=[1000, 200, 50], help="Mbit/s")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--wirings", nargs="+", default=list(WIRINGS))
    options = parser.parse_args()
    errors, right = [], 0
    with Links(RANKS) as links, tempfile.TemporaryDirectory() as folder:
        recorded = os.path.join(folder, "recorded")
        links.limit(options.rates[0])
        run(options, links, "ar", EVEN, recorded)
        alpha = measured_alpha(options, recorded, options.rates[0])
        print(f"recorded: ar at {options.rates[0]} Mbit/s, alpha {alpha:.2g} s")
        print("Mbit/s  ranks      wiring        predicted_ms  real_ms  error")
        for mbit in options.rates:
            links.limit(mbit)
            for straggler in (False, True):
                delay = EVEN + ("," + ROTATING if straggler else "")
                cell = {}
                for wiring in options.wirings:
                    out = os.path.join(folder, "run")
                    guess = predict(options, recorded, wiring, mbit, straggler, alpha,
                                    os.path.join(folder, "guess"))
                    real = statistics.median(run(options, links, wiring, delay, out)
                                             for _ in range(options.rounds))
                    errors.append(abs(guess / real - 1))
                    cell[wiring] = (guess, real)
                    print(f"{mbit:<7} {'straggler' if straggler else 'even':<10} {wiring:<13} "
                          f"{1e3 * guess:<13.1f} {1e3 * real:<8.1f} {guess / real - 1:+.1%}",
                          flush=True)
                best = [min(cell, key=lambda name: cell[name][i]) for i in (0, 1)]
                right += best[0] == best[1]
                print(f"        fastest: predicted {best[0]}, real {best[1]}", flush=True)
    print(f"median error {statistics.median(errors):.1%}, worst {max(errors):.1%}, fastest named "
          f"right in {right} of {2 * len(options.rates)} cells")


if __name__ == "__main__":
    main()
