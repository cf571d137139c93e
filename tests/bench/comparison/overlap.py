"""Gossip that overlaps, over links on which a message takes 0.8 of the time of a gradient.

Gradients take their time asleep (--delay): the cores are free for messages.
"""
import os
import shutil

from comparison import links as slow_links
from comparison.figures import over_rounds
from comparison.processes import run_ranks
from comparison.tables import Contestant, Table
from comparison.training import RANKS, figures_of_run

# lenet's 61,706 parameters and the heads of packets take 80 ms at this rate.
NETWORK_MBIT = 26
DELAY_MS = 100
ALONE = "without an exchange"
TARGET = 1.05


class Overlap:
    def __init__(self, options, steps, links):
        self.options, self.steps, self.links = options, steps, links
        self.out = os.path.join(options.folder, "overlap")
        # Local steps up to the end, after which there is one exchange.
        self.wirings = {ALONE: f"local-sgd --set wiring.local_steps={steps}", "sgp": "sgp",
                        "osgp": "osgp"}

    def command(self, wiring):
        delay = ",".join(f"rank={rank}:{DELAY_MS}ms" for rank in range(RANKS))
        return ["train", "--algorithm", *wiring.split(), "--model", "lenet", "--data", "glyphs",
                "--batch-size", "1", "--steps", str(self.steps), "--delay", delay, "--transport",
                "tcp", "--threads", "1", "--validate", "end", "--checkpoint-every", "0"]

    def run(self, wiring):
        shutil.rmtree(self.out, ignore_errors=True)
        run_ranks([self.options.program] + self.command(wiring) + ["--out", self.out], RANKS,
                  self.links.inside, self.links.address(0))
        return {"": figures_of_run(self.out, self.steps, RANKS, but_last=1)}


def note(table):
    """Communication is what sgp takes longer than ranks that exchange nothing."""
    def mean(name):
        return over_rounds(table.results[name][""], "mean")
    compute, communication = mean(ALONE), mean("sgp") - mean(ALONE)
    longer = max(compute, communication)
    return (f"Communication: {1e3 * communication:.0f} ms, {communication / compute:.2f} of a "
            f"gradient. Of the longer of the two osgp takes {mean('osgp') / longer:.2f} (target: at "
            f"most {TARGET}), sgp {mean('sgp') / longer:.2f}.")


def tables(options, stack):
    missing = slow_links.why_no_links()
    if missing:
        if missing not in options.missing:
            options.absent(missing)
        return []
    links = stack.enter_context(slow_links.Links(RANKS))
    links.limit(NETWORK_MBIT)
    of = Overlap(options, 10 if options.quick else 100, links)
    contestants = [Contestant(name, lambda wiring=wiring: of.run(wiring))
                   for name, wiring in of.wirings.items()]
    table = Table("overlap",
                  f"Gradients of {DELAY_MS} ms asleep, over a link of {NETWORK_MBIT} Mbit/s",
                  contestants, [(ALONE, name) for name in of.wirings if name != ALONE],
                  ["grapevine " + " ".join(of.command("A")),
                   "in each of two network namespaces, with A = " + "; ".join(of.wirings.values())],
                  rows="contestants", ratio_of="mean")
    table.note = lambda: note(table)
    return [table]
