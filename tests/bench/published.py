#!/usr/bin/env python3
"""Published figures beside those of `grapevine simulate --maths none`, from virtual time.

Usage: published.py GRAPEVINE [--tables reductions resnet20 gossip staleness] [--ranks P…]

reductions  milliseconds of one dense, top-k and gTop-k reduction on 1 Gbit/s, beside the closed forms
            of gTop-k's cost model (Shi et al. 2019)
resnet20    images a second and worker on 1 Gbit/s, beside the throughput that gTop-k publishes
gossip      milliseconds of an iteration on 10 Gbit/s, ResNet-50 on nodes of 8 V100, beside those of
            SlowMo (Wang et al. 2020): 32 nodes
staleness   of GEM's commits where the queue of the server is never empty: n - 1 in theory
"""
import argparse
import json
import math
import subprocess
import tempfile

GIGABIT = "alpha=0.436e-3,beta=9e-9"  # of the cost model: 3.6e-5 ms for a float
TEN_GIGABIT = "alpha=25e-6,beta=8e-10"
RESNET20, RESNET50, MODEL = 269_722, 25_557_032, 25 * 2**20
DENSITY = 0.001
RESNET20_BATCH, RESNET20_ALONE = 32, 920.6  # images a second of one GPU without any exchange
RESNET20_PUBLISHED = {  # dense, top-k, gTop-k
    4: (821.7, 908.8, 916.3), 8: (705.2, 753.0, 868.7), 16: (520.4, 737.6, 808.5),
    32: (287.9, 696.0, 789.3)}
SLOWMO = {"ar": 420, "sgp": 304, "osgp": 271}  # ms, at 32 nodes
# What remains of the 420 ms once the all-reduce of the model is taken off: the one figure that is fitted.
NODE_COMPUTE = 0.420 - 2 * 31 / 32 * 4 * RESNET50 * 8e-10


def simulate(program, algorithm, ranks, steps, network, compute, parameters, *more):
    with tempfile.TemporaryDirectory() as out:
        command = [program, "simulate", "--algorithm", algorithm, "--workers", str(ranks), "--steps",
                   str(steps), "--maths", "none", "--parameters", str(parameters), "--network",
                   network, "--compute", str(compute), "--trace", "off", "--validate", "end",
                   "--checkpoint-every", "0", "--momentum", "0", "--json", "--overwrite", "--out",
                   out, *more]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout.splitlines()[-1])


def step_ms(*arguments):
    return 1e3 * simulate(*arguments)["step_seconds"]["mean"]


def closed_forms(ranks, parameters):
    alpha, beta, k, rounds = 0.436, 3.6e-5, DENSITY * parameters, math.log2(ranks)
    return {"ar": 2 * alpha * (ranks - 1) + 2 * (ranks - 1) / ranks * parameters * beta,
            "topk": alpha * rounds + 2 * (ranks - 1) * k * beta,
            "gtopk": alpha * rounds + 2 * k * beta * rounds}


def settings(algorithm):
    return ["--set", "wiring.all_reduce=ring"] if algorithm == "ar" else ["--set", f"wiring.density={DENSITY}"]


def reductions(program, all_ranks):
    print("ms of one reduction of 26,214,400 parameters, 1 Gbit/s: simulated (closed form)")
    print("P     ar                 topk              gtopk")
    for ranks in all_ranks:
        forms = closed_forms(ranks, MODEL)
        cells = []
        for name in forms:
            ms = step_ms(program, name, ranks, 3, GIGABIT, 0, MODEL, *settings(name))
            cells.append(f"{ms:.2f} ({forms[name]:.2f})")
        print(f"{ranks:<5} {cells[0]:<18} {cells[1]:<17} {cells[2]}", flush=True)


def resnet20(program, all_ranks):
    print("ResNet-20, batch 32, 1 Gbit/s: images a second and worker, simulated (published)")
    print("P     dense            top-k            gTop-k")
    for ranks in [r for r in all_ranks if r in RESNET20_PUBLISHED]:
        cells = []
        for name, published in zip(("ar", "topk", "gtopk"), RESNET20_PUBLISHED[ranks]):
            ms = step_ms(program, name, ranks, 5, GIGABIT, RESNET20_BATCH / RESNET20_ALONE, RESNET20,
                         *settings(name))
            cells.append(f"{1e3 * RESNET20_BATCH / ms:.1f} ({published})")
        print(f"{ranks:<5} {cells[0]:<16} {cells[1]:<16} {cells[2]}", flush=True)


def gossip(program, all_ranks):
    print(f"ResNet-50 on nodes of 8 V100, 10 Gbit/s, {1e3 * NODE_COMPUTE:.0f} ms of computing: ms of "
          "an iteration (published)")
    print("nodes ar            sgp           osgp          ad-psgd")
    for ranks in [r for r in all_ranks if r <= 32]:
        cells = []
        for name in ("ar", "sgp", "osgp", "ad-psgd"):
            ms = step_ms(program, name, ranks, 40, TEN_GIGABIT, NODE_COMPUTE, RESNET50)
            cells.append(f"{ms:.0f}" + (f" ({SLOWMO[name]})" if ranks == 32 and name in SLOWMO else ""))
        print(f"{ranks:<5} " + " ".join(f"{cell:<13}" for cell in cells), flush=True)


def staleness(program, _):
    print("staleness of GEM's commits, a server whose queue is never empty")
    print("n     mean     p50  most  n - 1")
    for ranks in (5, 10, 20, 30):
        found = simulate(program, "gem", ranks, 60, TEN_GIGABIT, 0.001, RESNET50)["staleness"]
        print(f"{ranks:<5} {found['mean']:<8.2f} {found['p50']:<4} {found['max']:<5} {ranks - 1}",
              flush=True)


def main():
    tables = {"reductions": reductions, "resnet20": resnet20, "gossip": gossip,
              "staleness": staleness}
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grapevine")
    parser.add_argument("--tables", nargs="+", choices=list(tables), default=list(tables))
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8, 16, 32, 64, 128])
    options = parser.parse_args()
    for name in options.tables:
        tables[name](options.grapevine, options.ranks)
        print()


if __name__ == "__main__":
    main()
