"""Words that are no command line of Headway: what was typed, what is allowed, and what to do next.

`click` finds what is wrong. It is said here in the form of all other errors of commands.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

import click

from headway.cli.typed import NUMBER
from headway.errors import HeadwayError, cut, did_you_mean

VALUE: Final = re.compile(r"(?P<value>'.*'|\".*\"|\S+) is not (?:a valid|in the range|one of) .*", re.DOTALL)
"""What click says of a value that is not of its type."""

MEANT: Final = {
    re.compile(r"No such command (.*)\.", re.DOTALL): r"there is no command \1",
    re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL): r"more words than the command takes: \1",
    re.compile(r"Option '(.*)' requires an argument\."): r"\1 needs a value",
    re.compile(r"Option '(.*)' does not take a value\."): r"\1 takes no value",
}
"""What click says of whole command lines, and what is said here."""

IDS: Final = "`headway jobs` lists the ids."


def in_our_words(error: click.UsageError) -> HeadwayError:
    """The same error as Headway says it, with a hint."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        name = name_of(error.param)
        return HeadwayError(f"{name} is missing", "\n".join(filter(None, (of_ids(name), usage(error.ctx)))))
    if isinstance(error, click.BadParameter) and error.param is not None:
        return bad_value(error, error.param)
    if isinstance(error, click.NoSuchOption):
        return HeadwayError(f"there is no option {cut(error.option_name)}", near_option(error) or help_of(error.ctx))
    for said, meant in MEANT.items():
        if found := said.fullmatch(error.message):
            return HeadwayError(found.expand(meant), did_you_mean_command(error) or usage(error.ctx))
    return HeadwayError(error.message.rstrip("."), usage(error.ctx))


def bad_value(error: click.BadParameter, param: click.Parameter) -> HeadwayError:
    """What an option or argument is, and what it may be."""
    name, allowed, found = name_of(param), allowed_by(param.type), VALUE.fullmatch(error.message)
    if not allowed or found is None:
        return HeadwayError(f"{name}: {error.message.rstrip('.')}", help_of(error.ctx))
    value = found["value"].strip("'\"")
    near = did_you_mean(value, param.type.choices) if isinstance(param.type, click.Choice) else ""
    said = value if NUMBER.fullmatch(value) else found["value"]
    return HeadwayError(f"{name} is {cut(said)}; allowed: {allowed}", near or of_ids(name))


def allowed_by(wanted: click.ParamType) -> str:
    """The values of a type; empty where its own message has to say it."""
    if isinstance(wanted, click.Choice):
        return ", ".join(map(str, wanted.choices))
    if isinstance(wanted, click.Path):
        return f"the path of a {wanted.name}" if wanted.name in ("file", "directory") else "a path"
    what = {"integer": "a whole number", "float": "a number"}.get(wanted.name.removesuffix(" range"), "")
    if not isinstance(wanted, click.IntRange | click.FloatRange):
        return what
    least = "" if wanted.min is None else f"above {wanted.min}" if wanted.min_open else f"{wanted.min} or more"
    most = "" if wanted.max is None else f"below {wanted.max}" if wanted.max_open else f"at most {wanted.max}"
    if least and most and not (wanted.min_open or wanted.max_open):
        return f"{what} from {wanted.min} to {wanted.max}"
    return f"{what}, {' and '.join(filter(None, (least, most)))}"


def name_of(param: click.Parameter) -> str:
    """An option by its longest form, an argument as its command's help writes it."""
    if isinstance(param, click.Option):
        return max(param.opts, key=len)
    written = (param.metavar or str(param.name).upper()).removeprefix("-- ").split()[0].strip("[].")
    return written if "|" not in written else str(param.name).upper()


def of_ids(name: str) -> str:
    """Where to find what is called by a name; empty where that needs no word."""
    return IDS if name in ("ID", "--after") else ""


def near_option(error: click.NoSuchOption) -> str:
    """The options of the command that are near to the one typed; empty where none is."""
    params = error.ctx.command.params if error.ctx is not None else ()
    known = {name.lstrip("-"): name for param in params for name in param.opts if isinstance(param, click.Option)}
    near = get_close_matches(error.option_name.lstrip("-").lower(), known)
    return f"Did you mean {' or '.join(known[name] for name in near)}?" if near else ""


def did_you_mean_command(error: click.UsageError) -> str:
    """The commands of a group that are near to one that it does not have; empty where none is, or it is no group."""
    typed = re.fullmatch(r"No such command ['\"](.*)['\"]\.", error.message, re.DOTALL)
    if typed is None or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return ""
    return did_you_mean(typed[1], error.ctx.command.list_commands(error.ctx)) or help_of(error.ctx)


def usage(ctx: click.Context | None) -> str:
    """How the command is called."""
    return "" if ctx is None else f"{' '.join(ctx.get_usage().split())}\n{help_of(ctx)}"


def help_of(ctx: click.Context | None) -> str:
    """Where to read on."""
    return "" if ctx is None else f"`{ctx.command_path} --help` says more."
