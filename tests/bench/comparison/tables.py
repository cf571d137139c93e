"""Tables of a comparison: they are measured in interleaved rounds and written as Markdown."""
import dataclasses
import statistics
import sys
import typing

from comparison.figures import over_rounds, ratios

SCALES = {"ms": 1e3, "us": 1e6}


@dataclasses.dataclass
class Contestant:
    name: str
    run: typing.Callable  # returns the Figures of each case, by its name


@dataclasses.dataclass
class Listing:
    """Figures of any kind that belong to a case; no ratios."""
    name: str
    title: str
    contestants: list  # whose run returns values by column, by the name of the case
    columns: list
    commands: list
    note: typing.Callable = None
    results: dict = dataclasses.field(default_factory=dict)  # contestant → case → rounds

    def text(self, values):
        return " ".join(number(values[column]) for column in self.columns)

    def lines(self):
        lines = [markdown_row([""] + self.columns), "|---" * (1 + len(self.columns)) + "|"]
        for cases in self.results.values():
            for case, rounds in cases.items():
                lines.append(markdown_row([case] + [
                    number(statistics.median(values[column] for values in rounds))
                    for column in self.columns]))
        return lines


@dataclasses.dataclass
class Table:
    """Times of each contestant in each case, and ratios between contestants."""
    name: str
    title: str
    contestants: list
    pairs: list       # (peer, ours): ratios of the same round
    commands: list    # lines
    unit: str = "ms"
    rows: str = "cases"      # or "contestants", for tables with one case
    ratio_of: str = "median"  # the figure that is divided
    items: int = 0    # in one measurement: rates are given where it is not 0
    note: typing.Callable = None
    # contestant → case → rounds; tables that share it have ratios between their contestants
    results: dict = dataclasses.field(default_factory=dict)

    def present(self, name):
        return name in self.results

    def text(self, figures):
        return f"{number(figures.median * SCALES[self.unit])} {self.unit}"

    def lines(self):
        return by_contestant(self) if self.rows == "contestants" else by_case(self)


def progress(text):
    print(text, file=sys.stderr, flush=True)


def measure(tables, rounds):
    """Each contestant once in each round; every round begins with another one."""
    for turn in range(rounds):
        for table in tables:
            # The first round is in order: the first contestant may give what the others need.
            first = turn % len(table.contestants)
            for contestant in table.contestants[first:] + table.contestants[:first]:
                cases = contestant.run()
                of_contestant = table.results.setdefault(contestant.name, {})
                for case, figures in cases.items():
                    of_contestant.setdefault(case, []).append(figures)
                progress(f"round {turn + 1}/{rounds}  {table.name}  {contestant.name}: " +
                         ", ".join(f"{case} {table.text(figures)}".strip()
                                   for case, figures in cases.items()))


def number(value):
    """Three significant digits, thousands with a comma."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def ratio_text(table, peer, ours, case):
    above, below = (table.results.get(name, {}).get(case) for name in (peer, ours))
    if not (above and below):
        return "–"
    middle, least, most = ratios(above, below, table.ratio_of)
    return f"{middle:.2f} ({least:.2f} .. {most:.2f})"


def markdown_row(cells):
    return "| " + " | ".join(cells) + " |"


def by_contestant(table):
    rate = ["images/s"] if table.items else []
    names = [contestant.name for contestant in table.contestants]
    peers = list(dict.fromkeys(peer for peer, _ in table.pairs if peer in names))
    lines = [markdown_row(["", f"mean, {table.unit}", "median", "p10", "p99"] + rate +
                          [f"{peer} / this" for peer in peers]),
             "|---" * (5 + len(rate) + len(peers)) + "|"]
    for name in names:
        (case, rounds), = table.results[name].items()
        cells = [name] + [number(over_rounds(rounds, figure) * SCALES[table.unit])
                          for figure in ("mean", "median", "p10", "p99")]
        if table.items:
            cells.append(number(table.items / over_rounds(rounds, "mean")))
        for peer in peers:
            cells.append(ratio_text(table, peer, name, case) if (peer, name) in table.pairs
                         else "")
        lines.append(markdown_row(cells))
    return lines


def figures_text(rounds, unit):
    if not rounds:
        return "–"
    values = [number(over_rounds(rounds, figure) * SCALES[unit])
              for figure in ("median", "p10", "p99")]
    return f"{values[0]} ({values[1]} .. {values[2]})"


def by_case(table):
    names = [contestant.name for contestant in table.contestants]
    pairs = [pair for pair in table.pairs if all(table.present(name) for name in pair)]
    cases = list(table.results[names[-1]])
    lines = [markdown_row([table.unit] + names + [f"{peer} / {ours}" for peer, ours in pairs]),
             "|---" * (1 + len(names) + len(pairs)) + "|"]
    for case in cases:
        cells = [case]
        for name in names:
            cells.append(figures_text(table.results[name].get(case), table.unit))
        cells += [ratio_text(table, peer, ours, case) for peer, ours in pairs]
        lines.append(markdown_row(cells))
    return lines


def markdown(table):
    lines = [f"### {table.title}", "```"] + table.commands + ["```"]
    if table.note:
        lines += [table.note(), ""]
    return lines + table.lines()
