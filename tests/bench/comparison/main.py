"""Grapevine and what people would use instead, in interleaved rounds on this machine. See scripts/bench."""
import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(BENCH))
sys.path.insert(0, BENCH)

from comparison import allreduce, engine, overlap, training, wires  # noqa: E402
from comparison import tables as tables_of  # noqa: E402
from comparison.processes import Failure  # noqa: E402

SUBJECTS = {"training": training.tables, "overlap": overlap.tables, "allreduce": allreduce.tables,
            "wires": wires.tables, "engine": engine.tables}


def python_with_torch():
    """A python3 that imports torch with gloo, or None."""
    check = "import torch.distributed as d; assert d.is_available() and d.is_gloo_available()"
    older = "import torch.distributed as d; assert d.is_available()"  # before is_gloo_available
    for name in ("python3", "/usr/bin/python3"):
        path = shutil.which(name)
        for test in (check, older):
            if path and subprocess.run([path, "-c", test], capture_output=True).returncode == 0:
                return path
    return None


def machine():
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        for line in info:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    with open("/proc/meminfo", encoding="utf-8") as info:
        memory_gb = int(info.readline().split()[1]) / 1e6
    system = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return (f"{os.cpu_count()} cores ({model}), {memory_gb:.0f} GB, {system}, "
            f"Linux {platform.release()}")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of tiny sizes")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds [5]")
    parser.add_argument("--only", nargs="+", metavar="SUBJECT", default=list(SUBJECTS),
                        help="of " + ", ".join(SUBJECTS))
    parser.add_argument("--output", metavar="FILE.md",
                        help="write the tables there, and the figures to FILE.json [print them]")
    parser.add_argument("--program", default=os.path.join(ROOT, "build/bin/grapevine"),
                        help="[build/bin/grapevine]")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}: give a whole number from 1")
    for subject in options.only:
        if subject not in SUBJECTS:
            parser.error(f"--only has '{subject}': choose from {', '.join(SUBJECTS)}")
    if options.output and not options.output.endswith(".md"):
        parser.error(f"--output is '{options.output}': give a name that ends in .md")
    if options.output and not os.path.isdir(os.path.dirname(options.output) or "."):
        parser.error(f"--output is '{options.output}': its folder does not exist")
    if not os.access(options.program, os.X_OK):
        parser.error(f"{options.program} is not built: run 'scripts/test' or "
                     "'cmake --build --preset release'")
    options.program = os.path.abspath(options.program)
    options.output = options.output and os.path.abspath(options.output)
    os.chdir(ROOT)
    if options.quick:
        options.rounds = 1
    options.only = list(dict.fromkeys(options.only))
    return options


def write(options, tables, missing, load):
    head = [f"{machine()}; load at the start {load:.1f}; {datetime.date.today()}; "
            f"{options.rounds} interleaved rounds. Figures are medians over the rounds; a ratio "
            "is that of the same round: the median, and in brackets the least and the greatest."]
    head += [f"Not measured: {line}." for line in missing]
    text = "\n\n".join(["\n".join(head)] + ["\n".join(tables_of.markdown(t)) for t in tables])
    if not options.output:
        print(text)
        return
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    # Tables may share the results of their contestants.
    figures = {table.name: {name: {case: [x if isinstance(x, dict) else dataclasses.asdict(x)
                                          for x in rounds]
                                   for case, rounds in cases.items()}
                            for name, cases in table.results.items()} for table in tables}
    with open(options.output[:-3] + ".json", "w", encoding="utf-8") as file:
        json.dump({"machine": machine(), "rounds": options.rounds, "not_measured": missing,
                   "seconds": figures}, file, indent=1)


def main():
    options = parse(sys.argv[1:])
    # As Ctrl-C: a program that is being measured would go on without an end.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.python = python_with_torch()
    missing = []

    def absent(line):
        missing.append(line)
        tables_of.progress("not measured: " + line)

    options.absent, options.missing = absent, missing
    load = os.getloadavg()[0]
    tables = []
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as options.folder, \
                contextlib.ExitStack() as stack:
            for subject in options.only:
                tables += SUBJECTS[subject](options, stack)
            tables_of.measure(tables, options.rounds)
            write(options, tables, missing, load)
    except (Failure, OSError, subprocess.CalledProcessError) as failure:
        raise SystemExit(f"error: {failure}")
    except KeyboardInterrupt:
        raise SystemExit("error: interrupted; nothing is written")


if __name__ == "__main__":
    main()
