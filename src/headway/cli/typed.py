"""Errors in the words that were typed: an option and its value, in place of a field and what was made of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import click

from headway.errors import SHOWN_MAX

FIELD: Final = re.compile(
    r"""(?:jobs\[\d+\]\.|(?:job|service)\ (?:'.*?'|".*?"):\ )?  # whose field it is, as servers and clients say it
    (?:work\.(?:commands\[\d+\]\.|limits\.)?|service\.)?
    (?P<field>period\ of\ the\ status\ checker|[a-z_][a-z_0-9]*)(?:\[[^\]]*\])?
    \ (?:is|has)\ (?P<value>.*);\ allowed:\ (?P<allowed>.*)""",
    re.VERBOSE | re.DOTALL,
)
"""What is wrong with a field, as `InvalidInput` says it, but not with one of a file."""

NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
"""What is shown without quotes."""

CALLED: Final = {
    "period of the status checker": ("check_every", "every"),
    "output": ("outputs",),
    "input": ("inputs",),
    "queue_max": ("queue",),
    "policy": ("texts", "added"),
    "job": ("number",),
    "slots_of": ("bounds",),
}
"""Parameters of commands that stand for a field of another name."""


class Probability(click.FloatRange):
    """A number between 0 and 1; not 0, and `nan` is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number.

        Raises:
            click.BadParameter: it is none, or not in the range.
        """
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{found} is not in the range {self._describe_range()}.", param, ctx)
        return found


def in_words_typed(message: str, group: click.Command, words: Sequence[str]) -> str:
    """An error with the option that was typed in place of the field that it names, if there is such an option.

    Args:
        group: the command that the words belong to.
    """
    found = FIELD.fullmatch(message)
    command = named(group, words)
    if found is None or command is None:
        return message
    names = (found["field"], *CALLED.get(found["field"], ()))
    for option in command.params:
        if isinstance(option, click.Option) and option.name in names and (typed := _typed(option, words)):
            return f"{typed[0]} is {typed[1] if typed[1] else found['value']}; allowed: {found['allowed']}"
    return message


def named(group: click.Command, words: Sequence[str]) -> click.Command | None:
    """The command that words name, below a group or the groups in it."""
    for word in words:
        if not isinstance(group, click.Group):
            break
        below = group.get_command(click.Context(group), word)
        group = below if below is not None else group
    return None if isinstance(group, click.Group) else group


def _typed(option: click.Option, words: Sequence[str]) -> tuple[str, str] | None:
    """The option as it was typed, and its value, empty where it has none, several or a long one; None if it was not."""
    values: list[str] = []
    name = ""
    for place, word in enumerate(words):
        if word == "--":
            break
        before, equals, after = word.partition("=")
        if before in option.opts:
            name = before
            values.append(after if equals else "".join(words[place + 1 : place + 2]))
    if not name or option.is_flag or len(values) > 1:
        return (name, "") if name else None
    if len(values[0]) > SHOWN_MAX:
        return name, ""
    return name, values[0] if NUMBER.fullmatch(values[0]) else repr(values[0])
