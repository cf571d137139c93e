#!/usr/bin/env python3
"""Throughput of `grapevine simulate --maths none`, and its growth with the number of ranks.

Usage: simulator.py GRAPEVINE [--ranks N…] [--rounds N] [--algorithm NAME] [--parameters D]

Prints a line for each number of ranks: messages between ranks, events (messages that actors handled,
and events of the network), seconds of real time of the whole process, seconds of processor time without
its start, messages and events a second of that, and the peak memory of the process. Each run has one
thread; processor time is what other programs on the machine change least.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time


def simulate(options, ranks, rounds, folder):
    command = [options.grapevine, "simulate", "--algorithm", options.algorithm, "--maths", "none",
               "--parameters", str(options.parameters), "--workers", str(ranks), "--steps",
               str(rounds), "--trace", "off", "--log-every", str(rounds), "--checkpoint-every", "0",
               "--validate", "end", "--json", "--out", os.path.join(folder, f"{ranks}-{rounds}")]
    if options.algorithm == "ar":  # by pairs it would send few messages
        command += ["--set", "wiring.all_reduce=ring"]
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        out.seek(0)
        err.seek(0)
        if status != 0:
            raise SystemExit(err.read())
        summary = json.loads(out.read().splitlines()[-1])
    return summary, seconds, usage


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grapevine")
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--algorithm", default="sgp")
    parser.add_argument("--parameters", type=int, default=25_557_032)
    options = parser.parse_args()
    print("ranks  rounds  messages    events      total_s  cpu_s   messages/s  events/s  peak_MB")
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            _, _, start = simulate(options, ranks, 1, folder)
            summary, seconds, usage = simulate(options, ranks, options.rounds, folder)
        cpu = [times.ru_utime + times.ru_stime for times in (start, usage)]
        run = max(cpu[1] - cpu[0], 1e-9)
        peak = usage.ru_maxrss / 1024
        messages, events = summary["messages_sent"], summary["events"]
        print(f"{ranks:<6} {options.rounds:<7} {messages:<11,} {events:<11,} {seconds:<8.2f} "
              f"{run:<7.2f} {messages / run:<11,.0f} {events / run:<9,.0f} {peak:.0f}", flush=True)


if __name__ == "__main__":
    main()
