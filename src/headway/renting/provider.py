"""The Provider protocol: what the server asks of those who rent machines out.

A machine is asked for by a *token*, which is unique to one rental of one cluster. With one token there is at most one
machine, however often it is asked for. So after a crash, or a request whose answer was lost, the same is asked again. A
provider keeps the token with the machine (as a tag), so that what is rented is found again.

A machine joins by itself as the node that it is told to be, or, where nodes are added, the server adds it.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from headway.errors import HeadwayError


class RentedMachine(msgspec.Struct, frozen=True):
    """A machine that was rented.

    Attributes:
        name: its name at the provider.
        token: by which it was asked for.
        type: what it is.
        ended: whether it is gone, so that it is not billed any more.
    """

    name: str
    token: str
    type: str
    ended: bool = False


class NotRented(HeadwayError):
    """There is no machine and will be none: none is left, there is no such type, or the credential is wrong."""


class Unsure(HeadwayError):
    """It is not known whether something was done: the same is to be asked again."""


class Provider(Protocol):
    """Rents machines out at one site."""

    async def start(self, token: str, type: str, node: str) -> RentedMachine:
        """Rent a machine that joins as this node; with a token that is known, the same one as before.

        Raises:
            NotRented, Unsure: see there.
        """
        ...

    async def end(self, token: str) -> bool:
        """Give a machine back. Returns whether it is gone, or never was there; if not, the same is asked again later.

        Raises:
            Unsure: see there.
        """
        ...

    async def machines(self) -> list[RentedMachine]:
        """All machines of this cluster; those that are gone may be missing.

        Raises:
            Unsure: see there.
        """
        ...

    async def reclaimed(self) -> dict[str, float]:
        """The machines that the provider is about to take back, by token, and when: seconds since the Unix epoch.

        Raises:
            Unsure: see there.
        """
        ...

    async def close(self) -> None:
        """Let go of connections; the machines stay."""
        ...
