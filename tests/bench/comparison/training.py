"""Training of resnet20 by two processes, beside PyTorch's DistributedDataParallel over gloo."""
import csv
import json
import os
import shutil

from comparison import links as slow_links
from comparison.figures import figures_of
from comparison.processes import Failure, run, run_ranks
from comparison.tables import Contestant, Table

PEER = "DDP + gloo"
ALONE = "the peer without an exchange"
RANKS = 2
BATCH, SMALL_BATCH = 32, 8
MODEL = ["--model", "resnet20", "--data", "noise:32", "--threads", "1", "--validate", "end",
         "--checkpoint-every", "0"]
PARAMETERS = 334072
NETWORK_MBIT = 200

# Wirings by name: what `train` is given.
BUCKETS = "ar --set wiring.bucket_bytes=262144"
PLAIN = {"ar": "ar", "ar, direct": "ar --set wiring.all_reduce=direct", "ar, buckets": BUCKETS,
         "sgp": "sgp", "osgp": "osgp"}
STRAGGLER = {"ar": "ar", "sgp": "sgp", "osgp": "osgp", "osgp, staleness 4":
             "osgp --set wiring.staleness=4", "eager-solo": "eager-solo"}
SLOW = {"ar": "ar", "ar, buckets": BUCKETS, "osgp": "osgp",
        "osgp, staleness 4": "osgp --set wiring.staleness=4", "gtopk": "gtopk",
        "choco-sgd": "choco-sgd"}


def without_warm_up(seconds):
    return seconds[len(seconds) // 5:]


def figures_of_run(folder, steps, ranks, but_last=0):
    """Of the steps in metrics.csv of a run, without the first fifth and the last `but_last`."""
    seconds = {}
    with open(os.path.join(folder, "metrics.csv"), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["batch_time_s"]:
                seconds.setdefault(row["rank"], []).append(float(row["batch_time_s"]))
    if [len(of_rank) for of_rank in seconds.values()] != [steps] * ranks:
        raise Failure(f"{folder}/metrics.csv has not {steps} steps of each rank")
    return figures_of([x for of_rank in seconds.values()
                       for x in without_warm_up(of_rank[:steps - but_last])])


class Training:
    """Runs of both programs with the same steps, delay and links."""

    def __init__(self, options, steps, delay=None, links=None, batch=BATCH):
        self.options, self.steps, self.batch = options, steps, batch
        self.delay, self.links = delay, links  # delay(): seconds, known once the first table is
        self.out = os.path.join(options.folder, "training")

    def ours(self, wiring):
        shutil.rmtree(self.out, ignore_errors=True)
        command = ["train", "--algorithm"] + wiring.split() + MODEL
        command += ["--steps", str(self.steps), "--batch-size", str(self.batch), "--out", self.out]
        if self.delay:
            command += ["--delay", f"rotate=0ms..{1e3 * self.delay():.0f}ms"]
        if self.links:
            run_ranks([self.options.program] + command + ["--transport", "tcp"], RANKS,
                      self.links.inside, self.links.address(0))
        else:
            run([self.options.program, "launch", "-n", str(RANKS), "--"] + command)
        return {"": figures_of_run(self.out, self.steps, RANKS)}

    def ddp(self, *more):
        command = [self.options.python, "tests/bench/peers/ddp_resnet20.py", "--steps",
                   str(self.steps), "--batch-size", str(self.batch), *more]
        if self.delay:
            command += ["--delay", f"{self.delay():.3f}"]
        if self.links:
            outputs = run_ranks(command + ["--interface", "eth0"], RANKS, self.links.inside,
                                self.links.address(0))
        else:
            outputs = run_ranks(command, RANKS)
        ranks = [json.loads(output.splitlines()[-1]) for output in outputs]
        if any(rank["parameters"] != PARAMETERS for rank in ranks):
            raise Failure(f"the peer's model has {ranks[0]['parameters']} parameters")
        return {"": figures_of([x for rank in ranks for x in without_warm_up(rank["seconds"])])}


def commands(training, wirings, extra):
    launch = f"grapevine launch -n {RANKS} -- train --algorithm A " + " ".join(MODEL)
    return [f"{launch} --steps {training.steps} --batch-size {training.batch}{extra}",
            "with A = " + "; ".join(wirings.values()),
            "tests/bench/peers/ddp_resnet20.py, one for each rank"]


def table(options, name, title, wirings, training, extra):
    contestants = []
    if options.python:
        contestants.append(Contestant(PEER, training.ddp))
    for label, wiring in wirings.items():
        contestants.append(Contestant(label, lambda wiring=wiring: training.ours(wiring)))
    return Table(name, title, contestants, [(PEER, label) for label in wirings],
                 commands(training, wirings, extra), unit="ms", rows="contestants",
                 ratio_of="mean", items=RANKS * training.batch)


def tables(options, stack):
    """stack: a contextlib.ExitStack that holds the links as long as the tables are measured."""
    steps, plain_wirings, straggler_wirings, slow_wirings = 60, PLAIN, STRAGGLER, SLOW
    if options.quick:
        steps, plain_wirings, straggler_wirings = 4, {"ar": "ar"}, {"osgp": "osgp"}
        slow_wirings = {"gtopk": "gtopk"}
    if not options.python:
        options.absent("DDP + gloo: no python3 here can import torch (Debian: python3-torch)")
    measured = Training(options, steps)
    plain = table(options, "training", "Training, undisturbed", plain_wirings, measured, "")

    def half_a_step():
        of_first = plain.results[plain.contestants[0].name][""]
        return 0.5 * of_first[0].median

    straggler = table(options, "training-straggler",
                      "Training, one rank of the two half a step late, another one at each step",
                      straggler_wirings, Training(options, steps, half_a_step),
                      " --delay rotate=0ms..H")
    straggler.note = lambda: f"H = {1e3 * half_a_step():.0f} ms."
    if options.python:
        plain.contestants.append(Contestant(ALONE, lambda: measured.ddp("--alone")))
        plain.commands.append(f"{ALONE}: ddp_resnet20.py --alone, which exchanges nothing")
        plain.pairs.append((PEER, ALONE))
    result = [plain, straggler]
    missing = slow_links.why_no_links()
    if missing:
        options.absent(missing)
    else:
        links = stack.enter_context(slow_links.Links(RANKS))
        links.limit(NETWORK_MBIT)
        for batch in (BATCH, SMALL_BATCH):
            result.append(table(
                options, f"training-slow-link-{batch}",
                f"Training over a link of {NETWORK_MBIT} Mbit/s, batches of {batch}", slow_wirings,
                Training(options, steps, links=links, batch=batch), " --transport tcp"))
    return result
