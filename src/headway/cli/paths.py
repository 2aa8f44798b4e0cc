"""Paths as words of a command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from headway.errors import HeadwayError, InvalidInput

PICTURE_ENDINGS: Final = (".png", ".svg", ".pdf")
"""How names of pictures end that a command draws."""


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


class WrittenPath(GivenPath):
    """A file that a command writes at its end. That it can be written is seen to before anything is computed.

    Args:
        endings: its name must have one of these, in any case; none: it may be any.
    """

    def __init__(self, *endings: str) -> None:
        super().__init__(dir_okay=False)
        self._endings = endings

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path.

        Raises:
            click.BadParameter: it is empty, or a folder.
            HeadwayError: its name has another ending, or there is no folder for it.
        """
        found = super().convert(value, param, ctx)
        path = Path(os.fsdecode(found))
        if self._endings and not path.name.lower().endswith(self._endings):
            named = max(param.opts, key=len) if param is not None else "file"
            raise InvalidInput(named, str(path), f"a name that ends in one of {', '.join(self._endings)}")
        if not path.parent.is_dir():
            raise HeadwayError(f"cannot write {path}: there is no folder {path.parent}", "Make it, or name another.")
        return found


class PicturePath(WrittenPath):
    """The file of a picture that a command draws."""

    def __init__(self) -> None:
        super().__init__(*PICTURE_ENDINGS)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path.

        Raises:
            HeadwayError: see `WrittenPath`; or there is nothing to draw with.
        """
        from headway.pictures.canvas import check_installed  # loads much

        found = super().convert(value, param, ctx)
        check_installed()
        return found
