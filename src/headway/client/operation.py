"""What operators ask a server, and change while jobs run: nodes, policy and decider, the status checker."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from headway.client.connection import Query, Server
from headway.client.terms import duration
from headway.errors import InvalidInput, did_you_mean
from headway.model.instant import from_seconds, to_seconds
from headway.times import Span, instant_of
from headway.wire import (
    ADD_NODE,
    AUDIT,
    CHECKER,
    CHOOSE,
    CREATE_TOKEN,
    DRAIN_NODE,
    ENERGY,
    INCIDENTS,
    METRICS,
    MYSELF,
    NODES,
    PENALTIES,
    POLICY,
    REMOVE_NODE,
    RENTALS,
    REQUESTS,
    RESIZE_NODE,
    REVOKE_TOKEN,
    SERVICE,
    SERVICES,
    SET_CHECKER,
    SHUTDOWN,
    SITES,
    STATISTICS,
    SWITCH_NODE_OFF,
    SWITCH_NODE_ON,
    TOKENS,
    AuditEntry,
    CheckerChange,
    CheckerReport,
    Costs,
    EnergyReport,
    IncidentReport,
    MadeToken,
    Metric,
    Myself,
    NewNode,
    NewToken,
    NodeChange,
    NodeReport,
    NodeSize,
    PolicyChoice,
    PolicyText,
    RentingReport,
    RequestReport,
    Role,
    ServiceReport,
    SiteDetail,
    Statistics,
    TokenReport,
)
from headway.wire.access import USER_PATTERN

NODE_SECONDS: Final = 60.0
"""How long the server may take, in addition to the usual time, to start the processes of a node or to end them."""

ENERGY_SECONDS: Final = 600.0
"""How long the server may take to find what the nodes took: it looks at all that its journal has."""


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
        slots: int | None = None,
        *,
        speed: float = 1.0,
        cores: int | None = None,
        kind: str = "",
        site: str | None = None,
        lease: Span | None = None,
    ) -> NodeChange:
        """Add a node; one that is in service with the same terms stays as it is.

        A node that an engine found, and that was drained or removed, is found again from now on. It has the slots and
        the other terms that its engine says.

        Args:
            slots: None: one; of a node that is found again, as many as it has.
            site: None: where a node of this name was found, and then drained or removed; else `local`.
            lease: in seconds.

        Raises:
            HeadwayError: another node has this name, a term is wrong, or the node does not start.
        """
        body = NewNode(name, slots, speed, cores, site, duration(lease, "lease"), kind)
        answer: NodeChange = self._server.ask(ADD_NODE, body=body, wait=NODE_SECONDS)
        return answer

    def drain_node(self, name: str) -> NodeChange:
        """Let a node start nothing more; it leaves when its running tasks have ended.

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

    def switch_node_off(self, name: str, *, by_hand: bool = False) -> NodeChange:
        """Let a node go off when nothing runs there; it stays off until it is wanted on.

        Args:
            by_hand: it is off already: what is under way there is given up, and no command is run.

        Raises:
            HeadwayError: there is no such node, it drains, or it is the last; or it is off and something runs there.
        """
        answer: NodeChange = self._server.ask(SWITCH_NODE_OFF, node=name, query=_by(by_hand))
        return answer

    def switch_node_on(self, name: str, *, by_hand: bool = False) -> NodeChange:
        """Let a node come on that is off.

        Args:
            by_hand: it is on already: what is under way there is given up, and only its agent is started.

        Raises:
            HeadwayError: there is no such node, it drains, or it is down though nothing has switched it.
        """
        answer: NodeChange = self._server.ask(SWITCH_NODE_ON, node=name, query=_by(by_hand))
        return answer

    def resize_node(self, name: str, slots: int, *, at_once: bool = False) -> NodeChange:
        """Give a node more or fewer slots; surplus slots go when they are idle, or at once with what runs there.

        Raises:
            HeadwayError: there is no such node, it drains, or it would have no slot.
        """
        answer: NodeChange = self._server.ask(RESIZE_NODE, node=name, body=NodeSize(slots, at_once))
        return answer

    def metrics(
        self, *, node: str | None = None, metric: str | None = None, since: float | datetime | str | None = None
    ) -> list[Metric]:
        """What collectors measured on nodes: the latest value of each metric, or all values since an instant.

        Args:
            node, metric: only of this node, only this one.
            since: seconds since the Unix epoch, a `datetime` (local time without a zone), or text such as `"18:00"`
                or `"10m"`, counted back from now.
        """
        found: list[Metric] = []
        after = _past(since, "since")
        while True:
            part = self._server.ask(METRICS, query=(("node", node), ("metric", metric), ("since", after)))
            found += part.metrics
            if not part.more:
                return found
            after = to_seconds(from_seconds(found[-1].at) + 1)

    def checker(self) -> CheckerReport:
        """The status checker and its collectors."""
        answer: CheckerReport = self._server.ask(CHECKER)
        return answer

    def set_checker(self, *, on: bool | None = None, every: Span | None = None) -> CheckerReport:
        """Switch the status checker on or off, or give it another period, in seconds."""
        answer: CheckerReport = self._server.ask(SET_CHECKER, body=CheckerChange(on, duration(every, "every")))
        return answer

    def incidents(self, *, last: int = 50) -> list[IncidentReport]:
        """What an operator should know: at most this many incidents, the latest, in order."""
        return list(self._server.ask(INCIDENTS, query=(("limit", last),)).incidents)

    def requests(self, *, last: int = 50) -> list[RequestReport]:
        """Who asked for what: at most this many requests, the latest, in order."""
        return list(self._server.ask(REQUESTS, query=(("limit", last),)).requests)

    def audit(
        self, *, user: str | None = None, since: float | datetime | str | None = None, last: int = 50
    ) -> list[AuditEntry]:
        """Who did what, and what was refused to whom: at most this many entries, the latest, in order.

        Args:
            user: only of this one; empty: of callers without a valid token.
            since: as of `metrics`; default: all that is kept.
        """
        query = (("user", user), ("since", _past(since, "since")), ("limit", last))
        return list(self._server.ask(AUDIT, query=query).entries)

    def tokens(self) -> list[TokenReport]:
        """The tokens of users, in the order in which they were made."""
        return list(self._server.ask(TOKENS).tokens)

    def create_token(self, user: str, role: Role | str, *, expires: Span | None = None, account: str = "") -> MadeToken:
        """Make a token for a user. It is told this once: the server keeps only its hash.

        Args:
            role: `viewer`, `submitter`, `operator` or `administrator`.
            expires: after which time it ends; None: never.
            account: the account of the system that is the user's from now on; empty: the one that it is now, at first
                that of the same name. It counts where root started the server.

        Raises:
            InvalidInput: the role, the name or the time is not allowed.
        """
        known = list(Role)
        if role not in known:
            raise InvalidInput("role", role, ", ".join(known), hint=did_you_mean(str(role), known))
        for field, name in (("user", user), *((("account", account),) if account else ())):
            if not re.fullmatch(USER_PATTERN, name):
                raise InvalidInput(field, name, "1 to 64 letters, digits, or _ . @ -; the first a letter, a digit or _")
        answer: MadeToken = self._server.ask(
            CREATE_TOKEN, body=NewToken(user, Role(role), duration(expires, "expires"), account)
        )
        return answer

    def revoke_token(self, token: str) -> None:
        """Revoke a token, by its id: what is under way with it ends at once.

        Raises:
            Refused: there is no such token.
        """
        self._server.ask(REVOKE_TOKEN, token=token)

    def myself(self) -> Myself:
        """Whose token this client has, its role, and what bounds its user."""
        answer: Myself = self._server.ask(MYSELF)
        return answer

    def policy(self) -> str:
        """The current policy, as `NAME[:key=value,...]`."""
        answer: PolicyText = self._server.ask(POLICY)
        return answer.policy

    def deciding(self) -> PolicyText:
        """What makes the plans: policy, decider and period."""
        answer: PolicyText = self._server.ask(POLICY)
        return answer

    def choose_policy(self, policy: str = "", *, decider: str | None = None, period: Span | None = None) -> str:
        """Choose policy, decider or period from now on; nothing is stopped. Returns the policy's text as the server has
        it.

        Args:
            policy: as `NAME[:key=value,...]`; empty: the current one.
            decider: URL of the decider that makes the plans; empty: the policy makes them; None: no change.
            period: seconds after which the policy runs if nothing happens; 0: it does not; None: no change.
        """
        choice = PolicyChoice(policy, decider, duration(period, "period"))
        answer: PolicyText = self._server.ask(CHOOSE, body=choice)
        return answer.policy

    def services(self) -> list[ServiceReport]:
        """The services by name, with their last windows."""
        return list(self._server.ask(SERVICES).services)

    def service(self, name: str) -> ServiceReport:
        """One service, with its last windows.

        Raises:
            Refused: there is no service of this name.
        """
        answer: ServiceReport = self._server.ask(SERVICE, service=name)
        return answer

    def costs(self) -> Costs:
        """What late jobs cost, so far and expected, in all and by user."""
        answer: Costs = self._server.ask(PENALTIES)
        return answer

    def sites(self) -> list[SiteDetail]:
        """The sites, with what runs tasks there and their nodes counted."""
        return list(self._server.ask(SITES).sites)

    def rentals(self) -> RentingReport:
        """What can be rented, which machines are, for whom, and what they cost."""
        answer: RentingReport = self._server.ask(RENTALS)
        return answer

    def energy(
        self,
        *,
        since: float | datetime | str | None = None,
        until: float | datetime | str | None = None,
    ) -> EnergyReport:
        """What the nodes took in a period, in joules.

        Args:
            since: as of `metrics`; default: since the server started.
            until: given likewise; default: now.

        Raises:
            HeadwayError: it cannot be found.
        """
        query = (("since", _past(since, "since")), ("until", _past(until, "until")))
        answer: EnergyReport = self._server.ask(ENERGY, query=query, wait=ENERGY_SECONDS)
        return answer

    def statistics(self) -> Statistics:
        """Figures about the server."""
        answer: Statistics = self._server.ask(STATISTICS)
        return answer

    def shut_down(self) -> None:
        """Stop the server in order: running tasks are ended, and redone at the next start."""
        self._server.ask(SHUTDOWN)


def _past(when: float | datetime | str | None, field: str) -> float | None:
    """An instant of the past in seconds since the Unix epoch."""
    if isinstance(when, str):
        when = instant_of(when, field, towards="past")
    return when.timestamp() if isinstance(when, datetime) else when


def _by(by_hand: bool) -> Query:
    return (("by", "hand"),) if by_hand else ()
