"""The engine by itself: the growth of its cost, start-up, many processes, and idle time."""
import json
import os
import resource
import shutil
import subprocess
import time

from comparison.processes import Failure, last_line, run
from comparison.tables import Contestant, Listing

GROWTH = {"step_us": "us per step of a rank", "cpu_us_per_step": "CPU us per step",
          "messages_per_step": "messages per step", "messages_per_cpu_s": "messages / CPU s",
          "memory_per_worker": "peak memory of a worker, MB"}
STEP = ["--validate", "end", "--checkpoint-every", "0", "--threads", "1"]


def count_name(value):
    return f"{value:.0e}".replace("e+0", "e") if value >= 10**4 else str(value)


class Growth:
    def __init__(self, options):
        self.program = os.path.join(os.path.dirname(options.program), "engine_bench")
        self.quick = options.quick
        if not os.access(self.program, os.X_OK):
            raise Failure(f"{self.program} is not built: run 'scripts/test'")

    def command(self, preset):
        return [self.program, f"--benchmark_filter=engine_growth/{preset}/",
                "--benchmark_format=json"]

    def run(self, preset):
        smoke = {"GRAPEVINE_BENCH_SMOKE": "1"} if self.quick else {}
        cases = {}
        for line in json.loads(run(self.command(preset), smoke, timeout=1200))["benchmarks"]:
            workers, parameters = map(int, line["name"].split("/")[2:4])
            values = {GROWTH[name]: line[name] for name in GROWTH}
            values[GROWTH["memory_per_worker"]] /= 1e6
            cases[f"{preset}, {workers} workers, d = {count_name(parameters)}"] = values
        return cases


def processor_seconds():
    """Of all processes that have ended, with the processes that they started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Program:
    """Whole runs of the program."""

    def __init__(self, options):
        self.options = options
        self.out = os.path.join(options.folder, "engine")

    def first_step(self):
        """Seconds from exec to the first row of metrics.csv."""
        shutil.rmtree(self.out, ignore_errors=True)
        command = [self.options.program, "train", "--model", "lenet", "--workers", "2", "--steps",
                   "20", "--out", self.out] + STEP
        before, begin = processor_seconds(), time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        seconds = self.wait_for_row(process, begin)
        _, errors = process.communicate()
        if process.returncode != 0 or seconds is None:
            raise Failure(f"{' '.join(command)}: {last_line(errors.decode())}")
        processor = processor_seconds() - before  # of the whole run
        return {"from exec to the first step of lenet": {"s": seconds, "CPU s": processor}}

    def wait_for_row(self, process, begin):
        path = os.path.join(self.out, "metrics.csv")
        while process.poll() is None:
            try:
                with open(path, encoding="utf-8") as file:
                    if file.read().count("\n") >= 2:
                        return time.monotonic() - begin
            except FileNotFoundError:
                pass
            time.sleep(0.002)
        return None

    def ended(self, name, command):
        """Seconds and processor seconds of a command, with the processes that it starts."""
        before, begin = processor_seconds(), time.monotonic()
        run(command)
        seconds = time.monotonic() - begin
        return {name: {"s": seconds, "CPU s": processor_seconds() - before}}

    def waiting(self):
        shutil.rmtree(self.out, ignore_errors=True)
        length = "100ms" if self.options.quick else "1s"
        return self.ended(f"10 steps of 2 workers, each {length} late", [
            self.options.program, "train", "--model", "linear", "--data", "noise:8", "--workers",
            "2", "--steps", "10", "--batch-size", "1", "--delay", f"random=2:{length}", "--out",
            self.out] + STEP)

    def processes(self):
        shutil.rmtree(self.out, ignore_errors=True)
        count = "4" if self.options.quick else "64"
        return self.ended(f"one step of {count} processes", [
            self.options.program, "launch", "-n", count, "--", "train", "--algorithm", "sgp",
            "--model", "linear", "--data", "noise:8", "--steps", "1", "--batch-size", "1",
            "--out", self.out] + STEP)


def tables(options, stack):
    del stack
    growth, program = Growth(options), Program(options)
    return [
        Listing("growth", "Cost of a step by workers P and parameters d, in one process",
                [Contestant(preset, lambda preset=preset: growth.run(preset))
                 for preset in ("sgp", "osgp", "ar")], list(GROWTH.values()),
                ["build/bin/engine_bench --benchmark_filter=engine_growth"]),
        Listing("program", "Whole runs",
                [Contestant("first step", program.first_step),
                 Contestant("waiting", program.waiting),
                 Contestant("processes", program.processes)], ["s", "CPU s"],
                ["grapevine train --model lenet --workers 2 --steps 20",
                 "grapevine train --model linear --data noise:8 --workers 2 --steps 10 --batch-size 1 "
                 "--delay random=2:1s",
                 "grapevine launch -n 64 -- train --algorithm sgp --model linear --data noise:8 "
                 "--steps 1 --batch-size 1",
                 "all with " + " ".join(STEP)]),
    ]
