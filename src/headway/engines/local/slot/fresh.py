"""The process of a slot where each task runs as its user's account: a Python of its own, and no fork of the agent.

In a fork there would be what the agent knows of the tasks of other users. Runs as `python -P -m
headway.engines.local.slot.fresh CHANNEL KEEPING AGENT STEM TERMS`, started by the agent's child (`agent.staff`); TERMS
are `shared.terms.Terms` as JSON. It becomes the account before it reads anything else.
"""

from __future__ import annotations

import _socket
import os
import sys
from typing import NoReturn

import msgspec

from headway.engines.local.shared.terms import Terms
from headway.engines.local.slot.slot import serve


def execute(channel: _socket.socket, keeping: _socket.socket, agent: int, stem: str, terms: Terms) -> NoReturn:
    """Be such a process, instead of this one."""
    for one in (channel, keeping):
        os.set_inheritable(one.fileno(), True)
    words = (channel.fileno(), keeping.fileno(), agent, stem, msgspec.json.encode(terms).decode())
    os.execv(sys.executable, [sys.executable, "-P", "-m", __name__, *map(str, words)])


def main(arguments: list[str]) -> NoReturn:
    """Be the process of a slot."""
    from headway.engines.local.slot import calls  # noqa: F401 - before its first call

    channel, keeping, agent = map(int, arguments[:3])
    terms = msgspec.json.decode(arguments[4], type=Terms)
    serve(_socket.socket(fileno=channel), _socket.socket(fileno=keeping), agent, arguments[3], terms)


if __name__ == "__main__":
    main(sys.argv[1:])
