"""Commands that ask a server: how they find and reach it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import click

from headway.cli.paths import GivenPath
from headway.client.address import data_directory
from headway.client.client import Client

Command = Callable[..., Any]


def asks_server(command: Command) -> Command:
    """Give a command the options for its server. Its argument `reach` is a function that reaches the server."""

    @click.option("--url", help="The server; default $HEADWAY_URL, else the one of the data directory.")
    @click.option("--data", type=GivenPath(file_okay=False), help="Data directory of the server.")
    @click.option(
        "--tls-ca",
        type=GivenPath(dir_okay=False),
        help="File with the certificates to trust; default $HEADWAY_TLS_CA, or the server's own in its data directory.",
    )
    @functools.wraps(command)
    def with_options(url: str | None, data: str | None, tls_ca: str | None, **rest: Any) -> Any:
        return command(reach=_NamedServer(url, data, tls_ca), **rest)

    return with_options


@contextmanager
def reached(url: str | None, data: str | None, tls_ca: str | None = None, patience: float = 0.0) -> Iterator[Client]:
    """A client of that server, for one command. If the server does not answer, an error says so at once.

    It acknowledges nothing by itself, because results count as received only when they have been printed.

    Args:
        patience: seconds that a server may be away after its first answer, because it may be starting again.
    """
    with Client(url, data=data, tls_ca=tls_ca, patience=patience, acknowledge=False) as client:
        yield client


class _NamedServer:
    """The server that the options of a command name."""

    def __init__(self, url: str | None, data: str | None, tls_ca: str | None) -> None:
        self._url, self._data, self._tls_ca = url, data, tls_ca

    @property
    def folder(self) -> Path:
        """See `Reach`."""
        return Path(data_directory(self._data))

    def __call__(self, *, patience: float = 0.0) -> AbstractContextManager[Client]:
        return reached(self._url, self._data, self._tls_ca, patience)


class Reach(Protocol):
    """The type of `reach` in commands that `asks_server`."""

    @property
    def folder(self) -> Path:
        """The data directory of the server, also where none runs."""
        ...

    def __call__(self, *, patience: float = 0.0) -> AbstractContextManager[Client]:
        """See `reached`."""
        ...
