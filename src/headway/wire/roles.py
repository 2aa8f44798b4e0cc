"""Who may ask for what: roles of users, and the right to each route."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class Role(StrEnum):
    """What the owner of a token may do; each role may do what the ones before it may.

    A viewer sees jobs, nodes and figures. A submitter submits jobs, and has all rights to those. An operator has them
    to the jobs of all, and to nodes and policy. An administrator makes tokens and ends the server.
    """

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"

    def covers(self, least: Role) -> bool:
        """Whether it may do what another role may.

        >>> Role.OPERATOR.covers(Role.SUBMITTER), Role.VIEWER.covers(Role.SUBMITTER)
        (True, False)
        """
        return _RANK[self] >= _RANK[least]


_RANK: Final = {role: rank for rank, role in enumerate(Role)}


class Right(msgspec.Struct, frozen=True):
    """Who may ask for something.

    Attributes:
        least: the first role that may; None: everybody, without a token.
        own: whether roles below operators may only about jobs of their own.
    """

    least: Role | None
    own: bool = False

    @property
    def text(self) -> str:
        """Who may, in words.

        >>> OWN.text, LOOK.text
        ('submitters for their own jobs, operators for all', 'viewers and above')
        """
        if self.least is None:
            return "everybody, without a token"
        if self.own:
            return f"{self.least.value}s for their own jobs, operators for all"
        return "administrators" if self.least is Role.ADMINISTRATOR else f"{self.least.value}s and above"


ANYBODY: Final = Right(None)
LOOK: Final = Right(Role.VIEWER)
SUBMITS: Final = Right(Role.SUBMITTER)
OWN: Final = Right(Role.SUBMITTER, own=True)
OPERATES: Final = Right(Role.OPERATOR)
ADMINISTERS: Final = Right(Role.ADMINISTRATOR)
