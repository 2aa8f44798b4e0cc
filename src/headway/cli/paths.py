"""Paths as words of a command line."""

from __future__ import annotations

import os

import click


class GivenPath(click.Path):
    """A path that is not empty: `--out "$FOLDER"` gives an empty one where the variable has no value."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path, as `click` sees to it.

        Raises:
            click.BadParameter: it is empty, or not what is allowed.
        """
        if value == "":
            self.fail("'' is not a valid path", param, ctx)
        return super().convert(value, param, ctx)
