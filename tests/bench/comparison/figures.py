"""Figures of a run, and of several rounds of runs."""
import dataclasses
import statistics


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclasses.dataclass
class Figures:
    """Of one run, in seconds. `mean` is what ratios are made of where a rank's steps differ."""
    median: float
    p10: float
    p99: float
    mean: float


def figures_of(seconds):
    return Figures(statistics.median(seconds), quantile(seconds, 0.1), quantile(seconds, 0.99),
                   statistics.mean(seconds))


def over_rounds(rounds, name):
    """The median over the rounds of one of their figures."""
    return statistics.median(getattr(figures, name) for figures in rounds)


def ratios(peer, ours, name):
    """Peer over ours in the same round: median, least, greatest."""
    values = [getattr(a, name) / getattr(b, name) for a, b in zip(peer, ours)]
    return statistics.median(values), min(values), max(values)
