#!/usr/bin/env python3
"""Runs scripts/bench --quick, with bad input, and up to a signal. Usage: comparison_test.py GRAPEVINE

The tables have all rows, with positive figures; nothing is said about times. Peers that this machine
lacks are named.
"""
import json
import math
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What each table has on any machine.
OURS = {"training": {"ar"}, "training-straggler": {"osgp"},
        "allreduce-tcp": {"tcp, ring", "tcp, direct"},
        "allreduce-shm": {"shm, ring", "shm, direct"}, "wires": {"memcpy", "shm", "tcp"},
        "growth": {"sgp", "ar"}, "program": {"first step", "waiting", "processes"}}
MAY_LACK = ("DDP + gloo: ", "gloo: ", "Open MPI: ", "ucx_perftest is ", "links of a given rate ",
            "ucx: ")


def bench(program, *arguments):
    return subprocess.run([os.path.join(ROOT, "scripts/bench"), "--program", program, *arguments],
                          capture_output=True, text=True)


def check(right, what):
    if not right:
        raise SystemExit("failed: " + what)


def check_bad_input(program):
    for arguments, said in ((["--rounds", "0"], "--rounds is 0"),
                            (["--only", "speed"], "--only has 'speed'"),
                            (["--output", "tables.txt"], "ends in .md"),
                            (["--output", "/no/such/folder/t.md"], "does not exist"),
                            (["--program", "/no/such/program"], "is not built")):
        done = bench(program, *arguments)
        check(done.returncode == 2 and said in done.stderr.splitlines()[-1],
              f"{arguments}: code {done.returncode}, {done.stderr}")


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def check_end_by_signal():
    """The program that is being measured ends with the comparison."""
    with tempfile.TemporaryDirectory(prefix="comparison-") as folder:
        mark = os.path.join(folder, "pid")
        program = os.path.join(folder, "engine_bench")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho $$ >'{mark}.new'\nmv '{mark}.new' '{mark}'\nexec sleep 600\n")
        os.chmod(program, 0o755)
        bench_run = subprocess.Popen([os.path.join(ROOT, "scripts/bench"), "--program", program,
                                      "--only", "engine"], stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 120
        while not os.path.exists(mark):
            check(bench_run.poll() is None and time.monotonic() < end, "nothing is measured")
            time.sleep(0.05)
        bench_run.terminate()
        said = bench_run.communicate(timeout=120)[1]
        with open(mark, encoding="utf-8") as file:
            pid = int(file.read())
        check(bench_run.returncode == 1 and "interrupted" in said, said)
        check(not is_running(pid), f"process {pid} continues")


def check_figures(name, values):
    """Medians, rates, bytes: all positive and finite; memory and processor time may be too small."""
    for figure, value in values.items():
        least = -1 if "memory" in figure or "CPU" in figure else 0
        check(math.isfinite(value) and value > least, f"{name}: {figure} is {value}")


def check_tables(folder, figures):
    with open(os.path.join(folder, "tables.md"), encoding="utf-8") as file:
        text = file.read()
    for table, expected in OURS.items():
        cases = figures["seconds"][table]
        check(expected <= set(cases), f"{table} has {sorted(cases)}")
        for contestant, of_case in cases.items():
            check(len(of_case) > 0, f"{table}, {contestant} has no case")
            for case, rounds in of_case.items():
                check(len(rounds) == 1, f"{table}, {contestant}, {case}: {len(rounds)} rounds")
                check_figures(f"{table}, {contestant}, {case}", rounds[0])
                check(contestant in text or case in text, f"{contestant} is not in the text")
    for line in figures["not_measured"]:
        check(line.startswith(MAY_LACK) and line in text, f"'{line}' was not measured")


def main():
    program = os.path.abspath(sys.argv[1])
    check_bad_input(program)
    check_end_by_signal()
    with tempfile.TemporaryDirectory(prefix="comparison-") as folder:
        done = bench(program, "--quick", "--output", os.path.join(folder, "tables.md"))
        check(done.returncode == 0, done.stderr)
        with open(os.path.join(folder, "tables.json"), encoding="utf-8") as file:
            check_tables(folder, json.load(file))


if __name__ == "__main__":
    main()
