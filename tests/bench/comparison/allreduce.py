"""All-reduces between processes of one host, beside gloo and Open MPI."""
import json
import os
import shutil

from comparison.builds import has_ucx
from comparison.figures import Figures, figures_of
from comparison.processes import run, run_ranks
from comparison.tables import Contestant, Table

MPI = "mpirun --allow-run-as-root --oversubscribe"
MPI_TCP = "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include lo"


def size_name(size):
    for unit, name in ((10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def case_name(ranks, size):
    return f"{ranks} ranks, {size_name(size)}"


class AllReduce:
    """The same sizes, numbers of ranks and iterations for all programs."""

    def __init__(self, options):
        self.options = options
        self.ranks = [2] if options.quick else [2, 4]
        # Many small ones, few large ones.
        self.batches = [(3, [8, 10**6])] if options.quick else [
            (50, [8, 10**3, 10**6]), (9, [25 * 10**6, 10**8])]

    def over_all(self, measure):
        """measure(ranks, iterations, sizes): Figures by size."""
        cases = {}
        for ranks in self.ranks:
            for iterations, sizes in self.batches:
                of_sizes = measure(ranks, iterations, sizes)
                cases.update({case_name(ranks, size): of_sizes[size] for size in sizes})
        return cases

    def ours(self, transport, algorithm):
        def measure(ranks, iterations, sizes):
            output = run([self.options.program, "bench", "allreduce", "--transport", transport,
                          "--all-reduce", algorithm, "--ranks", str(ranks), "--iterations",
                          str(iterations), "--bytes", ",".join(map(str, sizes)), "--json"])
            lines = [json.loads(line) for line in output.splitlines()]
            return {line["bytes"]: Figures(line["median_s"], line["p10_s"], line["p99_s"],
                                           line["median_s"]) for line in lines}
        return lambda: self.over_all(measure)

    def gloo(self):
        def measure(ranks, iterations, sizes):
            outputs = run_ranks([self.options.python, "tests/bench/peers/gloo_allreduce.py",
                                 "--iterations", str(iterations), "--bytes", *map(str, sizes)],
                                ranks)
            return seconds_by_size(outputs[0])
        return lambda: self.over_all(measure)

    def open_mpi(self, program, more):
        def measure(ranks, iterations, sizes):
            return seconds_by_size(run(MPI.split() + more.split() + [
                "-n", str(ranks), program, str(iterations), *map(str, sizes)]))
        return lambda: self.over_all(measure)


def seconds_by_size(output):
    lines = [json.loads(line) for line in output.splitlines()]
    return {line["bytes"]: figures_of(line["seconds"]) for line in lines}


def names_of(contestants):
    return {contestant.name for contestant in contestants}


def mpi_program(options):
    """The peer's program, or None where there is no MPI."""
    if not (shutil.which("mpicc") and shutil.which("mpirun")):
        options.absent("Open MPI: no mpicc and mpirun here (scripts/setup --peers installs them)")
        return None
    program = os.path.join(options.folder, "mpi_allreduce")
    run(["mpicc", "-O3", "-march=native", "-Wall", "-o", program, "tests/bench/peers/mpi_allreduce.c"])
    return program


def tables(options, stack):
    del stack
    measured, results = AllReduce(options), {}
    tcp, shared = [], []
    if options.python:
        tcp.append(Contestant("gloo", measured.gloo()))
    else:
        options.absent("gloo: no python3 here can import torch (Debian: python3-torch)")
    program = mpi_program(options)
    if program:
        tcp.append(Contestant("Open MPI, tcp", measured.open_mpi(program, MPI_TCP)))
        shared.append(Contestant("Open MPI", measured.open_mpi(program, "")))
    wires = [("tcp", tcp), ("shm", shared)]
    if has_ucx(options):
        wires.append(("ucx", shared))
    for transport, contestants in wires:
        for algorithm in ("ring", "direct", "auto"):
            contestants.append(Contestant(f"{transport}, {algorithm}",
                                          measured.ours(transport, algorithm)))
    ours = ("grapevine bench allreduce --transport T --all-reduce ring|direct|auto --ranks N --bytes B "
            "--iterations I --json")
    iterations = "; ".join(f"I = {count} for {', '.join(map(size_name, sizes))}"
                           for count, sizes in measured.batches)
    return [
        Table("allreduce-tcp", "All-reduce over tcp on one host", tcp,
              [("gloo", "tcp, ring"), ("gloo", "tcp, direct"), ("gloo", "tcp, auto"),
               ("Open MPI, tcp", "tcp, direct")],
              [ours, iterations, "tests/bench/peers/gloo_allreduce.py, one for each rank",
               f"{MPI} {MPI_TCP} -n N mpi_allreduce"], results=results),
        Table("allreduce-shm", "All-reduce in shared memory", shared,
              [pair for pair in (("gloo", "shm, direct"), ("gloo", "ucx, direct"),
                                 ("Open MPI", "shm, direct")) if pair[1] in names_of(shared)],
              [ours + "   (ucx: its own choice of wires)", iterations,
               f"{MPI} -n N mpi_allreduce"], results=results),
    ]
