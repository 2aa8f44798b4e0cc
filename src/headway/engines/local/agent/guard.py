"""The first process of a node of this machine: it outlives the agent and makes sure that nothing of the node remains.

The agent can be killed at any instant, and the slots' processes die with it, but processes that they started would live
on. All these become children of this process. It kills them and only then ends, which releases the lock on the node's
folder. If this process itself is killed, the agent ends everything instead.

Runs as `python -m headway.engines.local.agent.guard TERMS LISTENER LOCK FILES`, started by the engine; TERMS are
`shared.terms.Terms` as JSON. It imports as little as possible; the agent imports the rest after the fork.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable

from headway.engines.local.shared.processes import adopt_orphans, children, die_with_parent, kill_trees

TYPE_CHECKING = False  # as far as a type checker knows, it is true: a job of Slurm does without `typing`
if TYPE_CHECKING:
    from typing import NoReturn


def watched(serve: Callable[[], NoReturn], its: Iterable[int] = (), ignored: Iterable[int] = ()) -> int:
    """Fork the agent and wait for its end, then end everything that remains; returns its status (`os.waitpid`).

    Args:
        serve: the agent.
        its: descriptors that only the agent needs.
        ignored: signals that are for the agent alone, though this process gets them too.
    """
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    guard = os.getpid()
    agent = os.fork()
    if agent == 0:
        die_with_parent(guard, signal.SIGTERM)
        serve()
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    for fd in its:
        os.close(fd)
    pid = status = 0
    while pid != agent:
        pid, status = os.waitpid(-1, 0)
    while left := children(guard):
        kill_trees(left)
        os.waitpid(-1, 0)
    return status


def main(arguments: list[str]) -> NoReturn:
    """Be the guard of a node."""
    listener, lock, files = map(int, arguments[1:])
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    def serve() -> NoReturn:
        from headway.engines.local.agent import agent

        agent.serve(arguments[0], listener, lock)

    watched(serve, (listener,))
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
