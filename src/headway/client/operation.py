"""What operators ask a server and change while jobs run: nodes, what decides, the status checker."""

from __future__ import annotations

from typing import Final

from headway.client.connection import Server
from headway.client.job import duration
from headway.model.instant import Duration, Instant, from_seconds
from headway.wire import (
    ADD_NODE,
    CHECKER,
    CHOOSE,
    DRAIN_NODE,
    INCIDENTS,
    METRICS,
    NODES,
    POLICY,
    REMOVE_NODE,
    REQUESTS,
    RESIZE_NODE,
    SET_CHECKER,
    STATISTICS,
    CheckerChange,
    CheckerReport,
    IncidentReport,
    Metric,
    NewNode,
    NodeChange,
    NodeReport,
    NodeSize,
    PolicyChoice,
    PolicyText,
    RequestReport,
    Statistics,
)

NODE_SECONDS: Final = 60.0
"""How long the server may take, on top of the usual, to start the processes of a node or to end them."""


class Operation:
    """The part of a client that is for operators.

    Args:
        server: answers.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    def nodes(self) -> list[NodeReport]:
        """The nodes of the cluster in order of joining."""
        return list(self._server.ask(NODES).nodes)

    def add_node(
        self,
        name: str,
        slots: int = 1,
        *,
        speed: float = 1.0,
        cores: int | None = None,
        kind: str = "",
        site: str = "local",
        lease: float | None = None,
    ) -> NodeChange:
        """Take a node into service; one that is in service with the same terms stays as it is. `lease` in seconds.

        Raises:
            HeadwayError: another node has this name, a term is wrong, or the node does not start.
        """
        held = duration(lease, "lease")
        body = NewNode(name, slots, speed, cores, site, held, kind)
        answer: NodeChange = self._server.ask(ADD_NODE, body=body, wait=NODE_SECONDS)
        return answer

    def drain_node(self, name: str) -> NodeChange:
        """Let a node start nothing more; it leaves when what runs there has ended.

        Raises:
            HeadwayError: there is no such node, or it is the last.
        """
        answer: NodeChange = self._server.ask(DRAIN_NODE, node=name)
        return answer

    def remove_node(self, name: str) -> NodeChange:
        """End a node at once; what runs there is redone elsewhere.

        Raises:
            HeadwayError: there is no such node, or it is the last.
        """
        answer: NodeChange = self._server.ask(REMOVE_NODE, node=name, wait=NODE_SECONDS)
        return answer

    def resize_node(self, name: str, slots: int, *, at_once: bool = False) -> NodeChange:
        """Give a node more or fewer slots; those beyond go when they are idle, or at once with what runs there.

        Raises:
            HeadwayError: there is no such node, it drains, or it would have no slot.
        """
        answer: NodeChange = self._server.ask(RESIZE_NODE, node=name, body=NodeSize(slots, at_once))
        return answer

    def metrics(
        self, *, node: str | None = None, metric: str | None = None, since: Instant | None = None
    ) -> list[Metric]:
        """What collectors measured on nodes: each metric as it was found last, or all since an instant.

        Args:
            node, metric: only of this node, only this one.
            since: microseconds since the Unix epoch.
        """
        found: list[Metric] = []
        while True:
            part = self._server.ask(METRICS, query=(("node", node), ("metric", metric), ("since", since)))
            found += part.metrics
            if not part.more:
                return found
            since = found[-1].at + 1

    def checker(self) -> CheckerReport:
        """The status checker and its collectors."""
        answer: CheckerReport = self._server.ask(CHECKER)
        return answer

    def set_checker(self, *, on: bool | None = None, every: Duration | None = None) -> CheckerReport:
        """Switch the status checker on or off, or give it another period, in microseconds."""
        answer: CheckerReport = self._server.ask(SET_CHECKER, body=CheckerChange(on, every))
        return answer

    def incidents(self, *, last: int = 50) -> list[IncidentReport]:
        """What an operator should know of: so many, the latest, in order."""
        return list(self._server.ask(INCIDENTS, query=(("limit", last),)).incidents)

    def requests(self, *, last: int = 50) -> list[RequestReport]:
        """Who asked for what: so many, the latest, in order."""
        return list(self._server.ask(REQUESTS, query=(("limit", last),)).requests)

    def policy(self) -> str:
        """The policy that decides, as `NAME[:key=value,...]`."""
        answer: PolicyText = self._server.ask(POLICY)
        return answer.policy

    def deciding(self) -> PolicyText:
        """What decides: the policy, the decider it stands in for, the period."""
        answer: PolicyText = self._server.ask(POLICY)
        return answer

    def choose_policy(self, policy: str = "", *, decider: str | None = None, period: float | None = None) -> str:
        """Let something else decide from now on; nothing is stopped. Returns the policy's text as the server has it.

        Args:
            policy: as `NAME[:key=value,...]`; empty: the one that does.
            decider: URL where plans shall come from; empty: from the policy; None: as it is.
            period: seconds after which a round is held if nothing happens; 0: none is; None: as it is.
        """
        choice = PolicyChoice(policy, decider, None if period is None else from_seconds(period))
        answer: PolicyText = self._server.ask(CHOOSE, body=choice)
        return answer.policy

    def statistics(self) -> Statistics:
        """How the server fares."""
        answer: Statistics = self._server.ask(STATISTICS)
        return answer
