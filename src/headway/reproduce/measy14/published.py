"""What MEASY14 says of its figures, statement by statement, and how our numbers compare with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from headway.metrics.batches import Interval
from headway.reproduce.measy14.figures import FIGURES, MEASURES, Runs, load_text, per_job
from headway.reproduce.measy14.runs import COST, Measure, Setting
from headway.reproduce.tables import Table

Verdict = Literal["holds", "holds in part", "does not hold"]

NEAR: Final = 0.1
"""Ten percentage points: an improvement this near to the published one counts as the same."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What our runs say of a statement, and whether they confirm it."""

    ours: str
    verdict: Verdict


Judge = Callable[[Runs], Answer]


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that the paper says.

    Attributes:
        figures: the names of the figures that show it. All must have been run for an answer.
        words: what it says.
        published: its number, as printed; empty if it gives none.
        judge: computes our answer from the runs.
    """

    figures: tuple[str, ...]
    words: str
    published: str
    judge: Judge


class Gain(NamedTuple):
    """By which share a policy is better than another at one point of a figure."""

    where: str
    by: Interval


def gains(
    runs: Runs,
    figures: Iterable[str],
    policy: str,
    other: str,
    measures: Iterable[Measure] = tuple(MEASURES),
    costs: Iterable[float] = (COST,),
) -> list[Gain]:
    """The gains of a policy against another at every source, load and cost of the figures, in these measures."""
    return [
        Gain(f"{setting.source} at {load_text(setting.load)}", run.gain(against, measure))
        for name in figures
        for cost in costs
        for (setting, run), (_, against) in zip(
            FIGURES[name].points(runs, policy, cost if policy == "measy" else COST),
            FIGURES[name].points(runs, other, cost if other == "measy" else COST),
            strict=True,
        )
        for measure in measures
    ]


def most(found: Collection[Gain], published: float) -> Answer:
    """The greatest gain, compared with a published one."""
    best = max(found, key=lambda gain: gain.by.mean)
    return Answer(f"{best.by.mean:.1%} ({best.where})", near(best.by.mean, published))


def on_average(found: Collection[Gain], published: float) -> Answer:
    """The mean gain, compared with a published one."""
    mean = sum(gain.by.mean for gain in found) / len(found)
    return Answer(f"{mean:.1%}", near(mean, published))


def near(ours: float, published: float) -> Verdict:
    """An improvement holds if it is within `NEAR` of the published one. Any other improvement holds in part.

    >>> near(0.35, 0.411), near(0.2, 0.411), near(-0.1, 0.411)
    ('holds', 'holds in part', 'does not hold')
    """
    return "holds" if abs(ours - published) <= NEAR else "holds in part" if ours > 0 else "does not hold"


def always(found: Collection[Gain]) -> Answer:
    """Whether there is a gain at every point.

    It holds if at least half of the points show a gain, the average shows one, and no point shows a loss beyond its
    confidence interval. It holds in part if only the last condition fails.
    """
    better = sum(gain.by.mean > 0 for gain in found)
    worse = sum(gain.by.high < 0 for gain in found)
    mean = sum(gain.by.mean for gain in found) / len(found)
    contrary = f"; at {worse} a loss beyond the interval" if worse else ""
    is_so = better * 2 >= len(found) and mean > 0
    verdict: Verdict = "does not hold" if not is_so else "holds in part" if worse else "holds"
    return Answer(f"at {better} of {len(found)} points, by {mean:.1%} on average{contrary}", verdict)


def _migrations_by_load(runs: Runs) -> Answer:
    figure = FIGURES["fig8"]
    fewer, more = (
        [per_job(runs[Setting(source, figure.loads[end], "measy")]) for source in ("JWload", "FWload")]
        for end in (0, -1)
    )
    held = (fewer[0] < fewer[1]) + (more[0] > more[1])
    verdicts: tuple[Verdict, ...] = ("does not hold", "holds in part", "holds")
    low, high = load_text(figure.loads[0]), load_text(figure.loads[-1])
    text = f"{fewer[0]:.3f} to {fewer[1]:.3f} a job at {low}, {more[0]:.3f} to {more[1]:.3f} at {high}"
    return Answer(text, verdicts[held])


def pays_up_to(runs: Runs, name: str) -> float:
    """The greatest cost of a migration up to which MEASY is better than KEASY, in the sense of `always`; seconds.

    0 if there is none.
    """
    least = 0.0
    for cost in FIGURES[name].costs:
        if always(gains(runs, [name], "measy", "keasy", costs=[cost])).verdict != "holds":
            break
        least = cost
    return least


def _improved(measure: Measure, how: Callable[[list[Gain], float], Answer], published: float) -> Judge:
    return lambda runs: how(gains(runs, AGAINST_LOAD, "measy", "easy", [measure]), published)


def _better(figures: tuple[str, ...], *pairs: tuple[str, str]) -> Judge:
    """Whether the first policy of each pair is better than the second, everywhere."""
    return lambda runs: always([gain for pair in pairs for gain in gains(runs, figures, *pair)])


def _pays_below(name: str, limit: float) -> Judge:
    def judge(runs: Runs) -> Answer:
        costs = [cost for cost in FIGURES[name].costs if cost < limit]
        found = always(gains(runs, [name], "measy", "keasy", costs=costs))
        return Answer(f"{found.ours}; it pays up to {pays_up_to(runs, name):g} s", found.verdict)

    return judge


def _too_dear_above(name: str, limit: float) -> Judge:
    costs = [cost for cost in FIGURES[name].costs if cost > limit]
    return lambda runs: always(gains(runs, [name], "keasy", "measy", costs=costs))


AGAINST_LOAD: Final = ("fig6", "fig7")
UNTOLD: Final = ("fig9", "fig10")
FULL: Final = ("fig11", "fig12")

STATEMENTS: Final = (
    Statement(
        AGAINST_LOAD,
        "MEASY improves the mean response time of EASY by up to",
        "41.1%",
        _improved("response", most, 0.411),
    ),
    Statement(
        AGAINST_LOAD,
        "MEASY improves the mean response time of EASY on average by",
        "23.1%",
        _improved("response", on_average, 0.231),
    ),
    Statement(
        AGAINST_LOAD,
        "MEASY improves the mean bounded slowdown of EASY by up to",
        "82.9%",
        _improved("slowdown", most, 0.829),
    ),
    Statement(
        AGAINST_LOAD,
        "MEASY improves the mean bounded slowdown of EASY on average by",
        "69.3%",
        _improved("slowdown", on_average, 0.693),
    ),
    Statement(
        AGAINST_LOAD,
        "MEASY is better than the other three",
        "",
        _better(AGAINST_LOAD, ("measy", "easy"), ("measy", "keasy"), ("measy", "reasy")),
    ),
    Statement(
        AGAINST_LOAD,
        "REASY is worse than KEASY and MEASY",
        "",
        _better(AGAINST_LOAD, ("keasy", "reasy"), ("measy", "reasy")),
    ),
    Statement(("fig7",), "on JWload REASY is even worse than EASY", "", _better(("fig7",), ("easy", "reasy"))),
    Statement(("fig6",), "on FWload REASY is better than EASY", "", _better(("fig6",), ("reasy", "easy"))),
    Statement(
        ("fig8",), "JWload has fewer migrations than FWload at low load, more at high load", "", _migrations_by_load
    ),
    Statement(
        UNTOLD,
        "not told the CPU use, KEASY and MEASY are better than EASY",
        "",
        _better(UNTOLD, ("keasy", "easy"), ("measy", "easy")),
    ),
    Statement(
        UNTOLD, "not told the CPU use, MEASY is always better than KEASY", "", _better(UNTOLD, ("measy", "keasy"))
    ),
    Statement(
        FULL,
        "at 100 % CPU use KEASY and MEASY are better than EASY",
        "",
        _better(FULL, ("keasy", "easy"), ("measy", "easy")),
    ),
    Statement(FULL, "at 100 % CPU use MEASY is always better than KEASY", "", _better(FULL, ("measy", "keasy"))),
    Statement(("fig13",), "on FWload a migration pays below", "900 s", _pays_below("fig13", 900)),
    Statement(
        ("fig13",), "on FWload KEASY is a little better above a cost of", "1500 s", _too_dear_above("fig13", 1500)
    ),
    Statement(("fig14",), "on JWload a migration pays below", "480 s", _pays_below("fig14", 480)),
    Statement(("fig14",), "on JWload KEASY is a little better above a cost of", "900 s", _too_dear_above("fig14", 900)),
)
"""All statements, in order of the figures."""


def told(figures: Collection[str]) -> list[Statement]:
    """The statements that can be answered once these figures have been run."""
    return [statement for statement in STATEMENTS if set(statement.figures) <= set(figures)]


def table(answers: Sequence[tuple[Statement, Answer]]) -> Table:
    """Statements with our answers."""
    rows = [(statement.words, statement.published, answer.ours, answer.verdict) for statement, answer in answers]
    return Table("What the paper says", ("statement", "published", "ours", ""), rows)
