"""How long it takes to choose what to rent for 1,000 jobs, of 50 types, and what it costs beside Kim12's rule.

python bench/renting.py
"""

from __future__ import annotations

import os
import random
import statistics
import time
from dataclasses import replace
from pathlib import Path

import measure
from headway.model.instant import HOUR, SECOND
from headway.model.renting import UNIT, Offer
from headway.renting.choosing import Choice, OpenTask, cheapest, cheapest_each
from headway.renting.formats import read_prices

JOBS, TYPES, FUTURES, ROUNDS = 1000, 50, 20, 5
LIST = "ec2-us-east-1-instances-ondemand-reserved.csv"
SLACKS = {"tight": (1.1, 2.0), "some slack": (1.5, 6.0), "much slack": (5.0, 40.0)}
"""Due dates, in run times from now."""


def of_ec2() -> tuple[Offer, ...] | None:
    """Types of EC2 in one region; None where there is no list."""
    folder = Path(os.environ.get("HEADWAY_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (folder / "cloud" / LIST).exists():
        return None
    prices = read_prices(folder / "cloud" / LIST)
    rows = [row for row in prices.rows if row.speed and row.price]
    types = [row.type for row in random.Random(1).sample(rows, TYPES)]
    return prices.offers("aws", "us-east-1", types, reference="m5.large", start_time=90 * SECOND, limit=1000)


def drawn() -> tuple[Offer, ...]:
    """Types of which hardly one is never better than another."""
    draw = random.Random(2)
    offers = []
    for kind in range(TYPES):
        slots, speed = draw.choice([1, 2, 4, 8, 16]), draw.uniform(0.5, 2)
        price = int(slots * speed**1.2 * 0.05 * UNIT * draw.uniform(0.9, 1.1))
        start = draw.randint(0, 200) * SECOND
        offers.append(Offer("cloud", f"t{kind}", slots, price, speed, start_time=start, limit=1000))
    return tuple(offers)


def tasks(slack: tuple[float, float], futures: int) -> list[OpenTask]:
    """A task of each job: run times of a quarter of an hour in the middle."""
    draw = random.Random(3)
    made = []
    for job in range(JOBS):
        middle = draw.lognormvariate(6.8, 1) * SECOND
        times = tuple(int(middle * (draw.lognormvariate(0, 0.3) if futures > 1 else 1)) for _ in range(futures))
        made.append(OpenTask(job, 0, 300 * SECOND + int(max(times) * draw.uniform(*slack)), times))
    return made


def timed(wanted: list[OpenTask], offers: tuple[Offer, ...]) -> tuple[float, Choice]:
    """Seconds of the processor, and what was chosen."""
    began = time.process_time()
    choice = cheapest(wanted, offers, now=0)
    return time.process_time() - began, choice


def main() -> None:
    """Print the section of the report."""
    lists = {"drawn": drawn()}
    if (ec2 := of_ec2()) is not None:
        lists["EC2"] = ec2
    rows = []
    for name, offers in lists.items():
        for billed, period in (("by the second", SECOND), ("by the hour", HOUR)):
            same = tuple(replace(offer, period=period) for offer in offers)
            for slack, span in SLACKS.items():
                runs = [timed(tasks(span, 1), same) for _ in range(ROUNDS)]
                several = [timed(tasks(span, FUTURES), same) for _ in range(ROUNDS)]
                choice, paper = runs[0][1], cheapest_each(tasks(span, 1), same, now=0)
                rows.append(
                    (
                        f"{name}, {billed}, {slack}",
                        f"{1e3 * statistics.median(seconds for seconds, _ in runs):.0f}",
                        f"{1e3 * statistics.median(seconds for seconds, _ in several):.0f}",
                        len(choice.hires),
                        f"{choice.cost / UNIT:.2f}",
                        f"{paper.cost / UNIT:.2f}",
                        f"{len(choice.missed)} / {len(paper.missed)}",
                    )
                )
    columns = "machines", "cost", "Kim12", "missed"
    measure.section(
        "What to rent for 1,000 jobs",
        f"""`headway.renting.choosing.cheapest` for {JOBS:,} jobs of one task and {TYPES} types, in milliseconds of the
        processor, median of {ROUNDS}; plain Python. Once with run times that are known, once with {FUTURES} that are
        equally likely, to be sure to 90 %. Then, with known run times, how many machines it rents, what they cost, and
        what the rule of Kim12 pays, a machine for each; and how many jobs either leaves out. Wanted: at most 100
        ms.""",
        measure.table(("types, billed, due dates", "ms", f"ms, {FUTURES} futures", *columns), rows),
    )


if __name__ == "__main__":
    main()
