"""Rents machines and gives them back, as the core wants it.

For each rental, one thing is done after the other; rentals go side by side, and nothing else waits for them. What the
provider cannot say for sure is asked again with the same token, so a rental is one machine whatever is lost on the way.
After a start, what was under way is done again. What the provider has and the core does not know is given back.

Where engines find their nodes, a machine joins when its engine finds it. Elsewhere its node is started here when there
is a machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from headway.core.scheduler import Scheduler
from headway.engines import base
from headway.errors import HeadwayError, in_short
from headway.live.happened import record
from headway.live.troubles import said
from headway.model.actions import RentMachine, ReturnMachine
from headway.model.events import Event, Incident, NodeJoined, Reclaimed, Rented, RentFailed, Returned
from headway.model.instant import HOUR, Instant, from_seconds
from headway.model.node import NodeSpec
from headway.model.renting import Rental, RentalStage
from headway.renting.provider import NotRented, Provider, Unsure

if TYPE_CHECKING:
    from headway.renting.provider import RentedMachine

log = logging.getLogger(__name__)

T = TypeVar("T")

ASK_AGAIN_SECONDS: Final = (1.0, 60.0)
"""Seconds after which it is asked again what could not be said for sure: at first, and at most; doubled each time."""

PROVIDERS_LOOK_SECONDS: Final = 30.0
"""Seconds between two looks at what the providers have."""

TELL_AGAIN: Final = HOUR
"""A trouble that goes on is told again after this."""

NO_PROVIDER: Final = "no provider is declared for this site"
BILLED_HINT: Final = (
    "it is billed until a [[provider]] is declared again; limit = 0 in its [[offer]] or [[prices]] rents nothing more"
)


class NeededByRenter(Protocol):
    """What is needed of the driver."""

    @property
    def core(self) -> Scheduler:
        """The scheduler, for reading."""

    async def request(self, events: Callable[[Instant], Sequence[Event]], *, by: str = "") -> int:
        """Record events."""

    def incident(self, kind: str, subject: str, detail: str, by: str = "") -> None:
        """Record something that an operator should know."""


class Renter:
    """Performs what the core wants of rented machines.

    Args:
        recorder: records what came of it.
        engine: runs the nodes.
        providers: by site.
        cluster: what tokens begin with: no other cluster has the same.
        finds: whether the engine of a site finds its nodes by itself.
        served: told of each node that was started here.
        read_ahead: of such nodes, see `NodeSpec`.
    """

    def __init__(
        self,
        recorder: NeededByRenter,
        engine: base.Engine,
        providers: Mapping[str, Provider],
        cluster: str,
        *,
        finds: Callable[[str], bool],
        served: Callable[[Sequence[NodeSpec]], None],
        read_ahead: int = 0,
    ) -> None:
        self._recorder = recorder
        self._engine = engine
        self._providers = providers
        self._cluster = cluster
        self._finds = finds
        self._served = served
        self._read_ahead = read_ahead
        self._under_way: dict[int, asyncio.Task[None]] = {}  # by rental the last one; it waits for the one before
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: dict[tuple[str, str], tuple[str, Instant]] = {}  # by site and type the last trouble, and when
        self._returned: set[str] = set()  # tokens, since the last look began

    def token(self, rental: int) -> str:
        """By which the machine of a rental is asked for."""
        return f"{self._cluster}-{rental}"

    def perform(self, action: RentMachine | ReturnMachine) -> None:
        """Begin to rent a machine, or to give it back; what is under way with it is over first, or given up."""
        before = self._under_way.get(action.rental)
        if before is not None and isinstance(action, ReturnMachine):
            before.cancel()
        task = asyncio.get_running_loop().create_task(self._one_by_one(before, action))
        self._under_way[action.rental] = task
        self._keep(task)
        task.add_done_callback(lambda _: self._is_over(action.rental, task))

    def go_on(self, but: Collection[int]) -> None:
        """After a start: do again what was under way, but for these rentals, of which something has been asked since.

        From now on, look at what the providers have, too.
        """
        market = self._recorder.core.state.market
        for rental in [one for one in market.rentals.values() if one.number not in but]:
            if rental.stage is RentalStage.RETURNS:
                self.perform(ReturnMachine(rental.number, rental.offer.site, rental.node))
            elif rental.comes:
                self.perform(RentMachine(rental.number, rental.offer.site, rental.offer.type, rental.node))
        left = Counter(one.offer.site for one in market.rentals.values() if one.offer.site not in self._providers)
        for site, machines in sorted(left.items()):
            detail = (
                f"{machines} machine{'s are' if machines > 1 else ' is'} rented here, and {NO_PROVIDER}: {BILLED_HINT}"
            )
            self._recorder.incident("rental_failed", site, detail)
        for site, provider in self._providers.items():
            self._keep(asyncio.get_running_loop().create_task(self._look(site, provider)))

    async def close(self) -> None:
        """Stop: what is under way is done again after the next start; the machines stay."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for provider in self._providers.values():
            await provider.close()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_over(self, number: int, task: asyncio.Task[None]) -> None:
        if self._under_way.get(number) is task:
            del self._under_way[number]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("rental %d: what became of it is not known", number, exc_info=error)
            self._recorder.incident("rental_failed", f"rental {number}", f"{said(error)}, which was not foreseen")

    async def _one_by_one(self, before: asyncio.Task[None] | None, action: RentMachine | ReturnMachine) -> None:
        if before is not None:
            await asyncio.wait((before,))
        provider = self._providers.get(action.site)
        if isinstance(action, ReturnMachine):
            await self._return(provider, action)
        elif provider is None:
            await self._failed(action, NO_PROVIDER)
        else:
            await self._rent(provider, action)

    # Rent

    async def _rent(self, provider: Provider, action: RentMachine) -> None:
        number = action.rental
        try:
            machine = await self._surely(
                action.site, lambda: provider.start(self.token(number), action.type, action.node)
            )
        except NotRented as refused:
            await self._failed(action, str(refused.args[0]))
            return
        await self._begun(number, machine)
        rental = self._rental(number)
        if rental is None or not rental.comes or self._finds(action.site):
            return
        node = replace(rental.offer.node(action.node), read_ahead=self._read_ahead)
        try:
            await self._engine.join(node)
        except HeadwayError as error:
            detail = f"its node does not start: {error.args[0]}"
            self._recorder.incident("rental_failed", action.node, detail)
            await self._end(provider, action.site, self.token(number))
            await record(self._recorder, lambda now: [RentFailed(now, number, in_short(detail))])
            return
        if self._rental(number) is None or not rental.comes:
            await self._engine.leave(node.name)
            return
        await record(self._recorder, lambda now: [NodeJoined(now, node)])
        self._served((node,))  # not before: what is served and not in the core is ended

    async def _begun(self, number: int, machine: RentedMachine) -> None:
        """Record that there is a machine, if that is not known."""
        rental = self._rental(number)
        if rental is not None and not rental.machine:
            log.info("rental %d: machine %s", number, machine.name)
            await record(self._recorder, lambda now: [Rented(now, number, machine.name)])

    async def _failed(self, action: RentMachine, detail: str) -> None:
        """Record that there will be no machine, and tell an operator."""
        told = in_short(f"a machine of type {action.type} cannot be rented: {detail}")
        log.warning("rental %d: %s", action.rental, told)
        events: list[Callable[[Instant], Event]] = [lambda now: RentFailed(now, action.rental, in_short(detail))]
        if self._is_to_be_told(action.site, action.type, detail):
            events.append(lambda now: Incident(now, "rental_failed", action.site, told))
        await record(self._recorder, lambda now: [event(now) for event in events])

    # Give back

    async def _return(self, provider: Provider | None, action: ReturnMachine) -> None:
        number, token = action.rental, self.token(action.rental)
        if provider is None:
            detail = f"machine {action.node} is not given back, because {NO_PROVIDER}: {BILLED_HINT}"
            self._recorder.incident("rental_failed", action.site, detail)
            return
        if not self._finds(action.site):
            await self._engine.leave(action.node)  # nothing, if it has not joined
        rental = self._rental(number)
        if rental is not None and not rental.machine:  # it was asked for, and there was no answer
            for machine in await self._surely(action.site, provider.machines):
                if machine.token == token:
                    await self._begun(number, machine)
        await self._end(provider, action.site, token)
        log.info("rental %d: its machine is given back", number)
        await record(self._recorder, lambda now: [Returned(now, number)])

    # What the providers have

    async def _look(self, site: str, provider: Provider) -> None:
        """Again and again: give back what nobody knows, note what is gone, and what is about to be taken back."""
        while True:
            self._returned.clear()
            rentals = self._recorder.core.state.market.rentals.values()
            known = {one.number for one in rentals if one.machine}
            try:
                machines = await self._surely(site, provider.machines)
                reclaimed = await self._surely(site, provider.reclaimed)
                await self._compare(site, provider, machines, reclaimed, known)
            except Exception as error:
                log.exception("site %s: what is rented there is not known", site)
                self._recorder.incident("rental_failed", site, f"{said(error)}, which was not foreseen")
            await asyncio.sleep(PROVIDERS_LOOK_SECONDS)

    async def _compare(
        self,
        site: str,
        provider: Provider,
        machines: Sequence[RentedMachine],
        reclaimed: Mapping[str, float],
        known: Collection[int],
    ) -> None:
        """Hold what the provider has against what is known.

        Args:
            known: the rentals that had a machine before it was asked what there is: those of others may be missing.
        """
        market = self._recorder.core.state.market
        rentals = {self.token(number): rental for number, rental in market.rentals.items()}
        alive = {machine.token: machine for machine in machines if not machine.ended}
        for token, machine in alive.items():
            if token in rentals or token in self._returned or not token.startswith(f"{self._cluster}-"):
                continue  # the second: it was still there when it was asked what there is
            detail = f"machine {machine.name} of type {machine.type} was not given back; it is now"
            self._recorder.incident("rental_orphaned", site, detail)
            await self._surely(site, partial(provider.end, token))
        for token, rental in rentals.items():
            there = rental.offer.site == site and rental.number not in self._under_way
            if there and rental.number in known and token not in alive and rental.stage is not RentalStage.RETURNS:
                await self._is_gone(provider, rental)
            elif there and token in reclaimed and rental.reclaimed > from_seconds(reclaimed[token]):
                await record(self._recorder, partial(_reclaimed, rental.number, from_seconds(reclaimed[token])))

    async def _is_gone(self, provider: Provider, rental: Rental) -> None:
        """A machine is gone that was not given back, or its provider does not know it any more: so it is ended, too."""
        number, comes = rental.number, rental.comes
        detail = f"machine {rental.machine} has ended{' before it was a node' if comes else ''}"
        self._recorder.incident("rental_failed", rental.node, detail)
        if not self._finds(rental.offer.site):
            await self._engine.leave(rental.node)
        await self._end(provider, rental.offer.site, self.token(number))
        await record(
            self._recorder, lambda now: [RentFailed(now, number, in_short(detail)) if comes else Returned(now, number)]
        )

    # How

    async def _end(self, provider: Provider, site: str, token: str) -> None:
        """Give a machine back, and wait until it is gone."""
        wait = ASK_AGAIN_SECONDS[0]
        while not await self._surely(site, partial(provider.end, token)):
            await asyncio.sleep(wait)
            wait = min(2 * wait, ASK_AGAIN_SECONDS[1])
        self._returned.add(token)

    def _rental(self, number: int) -> Rental | None:
        return self._recorder.core.state.market.rentals.get(number)

    def _is_to_be_told(self, site: str, type: str, trouble: str) -> bool:
        """Whether a trouble is another one than the last, or goes on for long; from now on it is the last."""
        now = self._recorder.core.state.now
        before, at = self._told.get((site, type), ("", now))
        if trouble == before and now < at + TELL_AGAIN:
            return False
        self._told[site, type] = trouble, now
        return True

    async def _surely(self, site: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask a provider until it is sure of its answer."""
        wait = ASK_AGAIN_SECONDS[0]
        while True:
            try:
                return await ask()
            except Unsure as unsure:
                if self._is_to_be_told(site, "", str(unsure.args[0])):
                    self._recorder.incident("provider_unsure", site, in_short(f"{unsure.args[0]}; it is asked again"))
                log.warning("site %s: %s; it is asked again in %g s", site, unsure.args[0], wait)
            await asyncio.sleep(wait)
            wait = min(2 * wait, ASK_AGAIN_SECONDS[1])


def _reclaimed(rental: int, until: Instant, now: Instant) -> list[Event]:
    return [Reclaimed(now, rental, max(now, until))]
