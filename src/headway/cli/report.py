"""The output of a reproduction: sentences and tables as experiments end, or one JSON object at the end; files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headway.cli.progress import progress
from headway.cli.show import print_table
from headway.errors import HeadwayError
from headway.metrics import to_json

if TYPE_CHECKING:
    from headway.reproduce.experiment import Result

STATED: Final = ("words", "published", "ours", "low", "high")
"""What JSON says of a statement, besides its verdict."""


@dataclass
class Report:
    """Results of experiments: printed as they end, or as JSON at the end. Files go to a folder.

    Attributes:
        paper: its short name.
        folder: an existing folder; None: nothing is written.
        told: what is printed as JSON, by experiment.
        written: names of the files.
    """

    paper: str
    folder: Path | None
    as_json: bool
    told: dict[str, Any] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    def say(self, sentence: str) -> None:
        """Print a line for people."""
        if not self.as_json:
            click.echo(sentence)

    def heading(self, text: str) -> None:
        """Print a heading for people."""
        self.say(f"\n{text}")

    def aside(self, sentence: str) -> None:
        """Print a line that is not a result."""
        click.echo(sentence, err=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
        """Print a table for people."""
        if not self.as_json:
            print_table(columns, rows, right=right)

    def drawing(self) -> Path | None:
        """The folder for pictures, if they can be drawn."""
        if self.folder is not None and find_spec("matplotlib") is None:
            click.echo("No pictures: install matplotlib with `pip install 'headway[plot]'`.", err=True)
            return None
        return self.folder

    def experiment(
        self, name: str, runs: int, perform: Callable[[Callable[[int], None]], Result], title: str = ""
    ) -> list[str]:
        """Perform an experiment, with its progress, and report what came of it. Returns its tables as Markdown.

        Args:
            runs: how many runs it takes.
            perform: does it; it is given what to call with the number of runs that have ended.
            title: the heading; empty: none.
        """
        from headway.reproduce.experiment import table  # it needs numpy, which takes long to import

        ended = [0]
        with progress({name: runs}, lambda: ended):
            result = perform(lambda done: ended.__setitem__(0, done))
        if title:
            self.heading(title)
        self.say(result.about)
        tables = (*result.tables, *([table(result.statements)] if result.statements else []))
        for each in tables:
            self.heading(each.title)
            self.table(each.columns, each.rows, right=each.columns[1:])
        if folder := self.drawing():
            for picture, draw in result.pictures.items():
                draw(folder / picture)
                self.written.append(picture)
        self.rows(f"{name}.csv", result.columns, result.rows)
        self.told[name] = {
            "statements": [
                {field: value for field, value in asdict(one).items() if field in STATED} | {"verdict": one.verdict}
                for one in result.statements
            ],
            "runs": [dict(zip(result.columns, row, strict=True)) for row in result.rows],
        }
        return [each.markdown() for each in tables]

    def rows(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write a CSV file, if there is a folder.

        Raises:
            HeadwayError: it cannot be written.
        """
        if self.folder is None:
            return
        try:
            with (self.folder / name).open("w", encoding="utf-8", newline="") as file:
                lines = csv.writer(file, lineterminator="\n")
                lines.writerow(columns)
                lines.writerows(rows)
        except OSError as error:
            raise HeadwayError(f"cannot write to {self.folder}: {error.strerror or error}") from error
        self.written.append(name)

    def text(self, name: str, text: str) -> None:
        """Write a text file, if there is a folder.

        Raises:
            HeadwayError: it cannot be written.
        """
        if self.folder is None:
            return
        try:
            (self.folder / name).write_text(text, "utf-8")
        except OSError as error:
            raise HeadwayError(f"cannot write to {self.folder}: {error.strerror or error}") from error
        self.written.append(name)

    def end(self, about: Mapping[str, Any]) -> None:
        """Print the names of the files; or print everything as JSON, beginning with what it is about."""
        if self.as_json:
            click.echo(to_json({"paper": self.paper, **about, **self.told}), nl=False)
        elif self.written:
            click.echo(f"\nWritten to {self.folder}: {', '.join(self.written)}.")
