"""The start-up of `headway up`: journal, engine, driver and HTTP interface joined, served until told to end."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from headway.access.accounts import Accounts, AccountsByName
from headway.access.quotas import Quotas
from headway.access.tokens import Tokens
from headway.advice.asking import Asking, address_of
from headway.certificates import Secure, given, self_signed
from headway.collectors import registry as collectors
from headway.config import uniform_cluster
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.local.shared.accounts import account_of, is_account
from headway.engines.registry import LOCAL, SiteSpec
from headway.engines.sites import SiteEngines
from headway.errors import CannotGoOn, HeadwayError, InvalidInput, NoPort, PortTaken, in_short
from headway.live.alerts import Alerts, AlertSettings
from headway.live.checker import Checker, period
from headway.live.clock import SystemClock
from headway.live.collecting import spare_collector
from headway.live.delay import LoopDelay
from headway.live.driver import Driver
from headway.live.forecasts import ForecastProcess
from headway.live.meter import EnergyMeter
from headway.live.outside import OtherProcesses, Surroundings, as_the_engine
from headway.live.services import BrokerDoor
from headway.live.settings import DriverSettings
from headway.live.store.inspection import inspect_files
from headway.live.store.journal import Journal
from headway.live.store.layout import (
    ALERT_SECRET,
    CERTIFICATE,
    ENGINE,
    PAIR,
    PORT,
    SITES_FOLDER,
    TOKEN_FILE,
    TOKENS_FILE,
    URL,
)
from headway.live.store.verification import whole_again
from headway.model.instant import SECOND
from headway.model.network import Network
from headway.model.node import NodeSpec
from headway.model.power import Switching
from headway.model.renting import Renting
from headway.model.site import SiteTerms
from headway.policies.registry import find
from headway.private import account, tighten, token_of, write_private
from headway.renting import registry
from headway.renting.provider import Provider
from headway.renting.registry import ProviderSpec
from headway.web.api import Api
from headway.web.bodies import BODY_MAX
from headway.web.epochs import Epochs
from headway.web.refusals import Refusals
from headway.web.serving import BoundedServer, listen, signals, url_of

log = logging.getLogger(__name__)

NODES_HERE_MAX = 1000
"""Nodes of this machine: each is a process."""

FIRST_PERIOD = 10 * SECOND
"""Plans follow what is learnt of run times at least this often by default."""

SERVICES_SOCKET = "services"
"""The socket on which instances of services connect."""

READ_AHEAD = 4
"""Short tasks that a slot of this machine is given ahead of their turn."""

CHOSEN_PROVIDERS: Final = "providers"
"""The fact of the journal that has the providers of the last run, as JSON."""

CHOSEN_SITES: Final = "sites"
"""The fact of the journal that has the sites of the last run, as JSON."""

NO_SERVICES: Final = "this server has no services: their instances run on its own machine, where it has no nodes"
"""Why there are none where no engine is of this machine."""

_sites = msgspec.json.Decoder(list[tuple[str, str, dict[str, Any]]])


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of `headway up`.

    Attributes:
        data: the data directory; made if it is not there.
        nodes: exactly these nodes, besides those that engines find; None: those of the last run, at first one of this
            machine with a slot for each processor, or none if sites of other engines are named.
        driver: without a period of the policy, a new server gets `FIRST_PERIOD`. Only a decider that is named here gets
            the token in HEADWAY_DECIDER_TOKEN.
        engine: of the engine of this machine.
        host, port: where to listen; port 0 takes any free one, None that of the last run.
        body_max: bytes that a request may bring.
        check_every: seconds between two looks of the status checker, 0: it is off; None: as was chosen last.
        accept_loss: where the journal is damaged, start with what is whole; the damaged files are kept beside it.
        network: the lines between the nodes; None: those of the last run, at first sending costs nothing.
        switching: how nodes are switched off and on; None: as in the last run, at first they stay on.
        renting: what can be rented; None: as in the last run, at first nothing.
        providers: who rents machines out; None: as in the last run, at first nobody.
        sites: those that are not only of this machine, and perhaps others; None: those of the last run, at first none.
        terms: what policies know of sites, the preferred one first; None: as in the last run, at first nothing.
        quotas: what bounds users.
        alerts: whom to tell before a job is late; None: nobody.
        arrivals: whether forecasts count on jobs that will come, as jobs came lately.
        tls: the files with certificate and key for HTTPS; empty: the server makes them itself; None: HTTP.
    """

    data: Path
    nodes: tuple[NodeSpec, ...] | None = None
    driver: DriverSettings = field(default_factory=lambda: DriverSettings(read_ahead=READ_AHEAD))
    engine: LocalSettings = field(default_factory=LocalSettings)
    host: str = "127.0.0.1"
    port: int | None = None
    body_max: int = BODY_MAX
    check_every: float | None = None
    accept_loss: bool = False
    network: Network | None = None
    switching: tuple[Switching, ...] | None = None
    renting: Renting | None = None
    providers: tuple[ProviderSpec, ...] | None = None
    sites: tuple[SiteSpec, ...] | None = None
    terms: tuple[SiteTerms, ...] | None = None
    quotas: Quotas = field(default_factory=Quotas)
    tls: tuple[Path, Path] | tuple[()] | None = None
    alerts: AlertSettings | None = None
    arrivals: bool = False


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers: where, which file has the token it demands, how many nodes and slots it began with.

    Attributes:
        gone: the sites whose engine could not start, and why.
        certificate: which file has its certificate, if it speaks HTTPS.
    """

    url: str
    token_file: Path
    pid: int
    nodes: int
    slots: int
    gone: dict[str, str] = field(default_factory=dict)
    certificate: Path | None = None


Say = Callable[[RunningServer], None]


def run(settings: Settings, say: Say = lambda running: None) -> None:
    """Serve until SIGINT, SIGTERM or a request to shut down; then end in order.

    Args:
        say: called once, when the server answers.

    Raises:
        HeadwayError: it cannot be started: the data directory, the port, the policy or a node cannot be used.
    """
    uvloop.run(serve(settings, say))


async def serve(settings: Settings, say: Say = lambda running: None) -> None:
    """The same within a running event loop, of its main thread."""
    if settings.driver.policy is not None:
        find(settings.driver.policy)
    if settings.driver.decider:
        address_of(settings.driver.decider)
    if len(settings.nodes or ()) > NODES_HERE_MAX:
        allowed = f"at most {NODES_HERE_MAX}, for each is a process of this machine; give nodes more slots"
        raise InvalidInput("count", f"{len(settings.nodes or ())} nodes in all", allowed)
    if settings.check_every:
        period(settings.check_every)
    tighten(settings.data)
    journal = Journal(settings.data, accept_loss=settings.accept_loss)
    for said in journal.given_up:
        log.warning("accepted as lost: %s", said)
    try:
        await _serve(settings, journal, say)
    except sqlite3.DatabaseError as error:
        raise HeadwayError(
            f"the journal in {settings.data} cannot be read: {error}",
            whole_again(settings.data),
        ) from error
    finally:
        journal.close()


async def _serve(settings: Settings, journal: Journal, say: Say) -> None:
    end = asyncio.Event()
    secure = _secure(settings)
    listener, moved = _listener(settings)
    with listener, signals(end):
        token_file = settings.data / TOKEN_FILE
        token = token_of(token_file)
        specs = _sites_of(settings, journal)
        sites = SiteEngines(
            specs,
            lambda: LocalEngine(settings.data / ENGINE, settings.engine),
            settings.data.absolute() / SITES_FOLDER,
            settings.engine,
            patient=settings.sites is None,
        )
        lenders = _lenders(settings, journal)
        by_name = AccountsByName(account(), is_account) if settings.engine.accounts else None
        tokens = Tokens(token, account(), settings.data / TOKENS_FILE, by_name=by_name)
        _warn(tokens, token_file, settings.engine)
        if tokens.finds:
            tokens.keep()()
            tokens.use()
        clock = SystemClock()
        command = (sys.executable, "-m", "headway.forecaster", str(settings.data.absolute()))
        forecaster = ForecastProcess((*command, "--arrivals") if settings.arrivals else command)
        chosen = settings.driver
        if chosen.period is None and journal.is_new:
            chosen = replace(chosen, period=FIRST_PERIOD)
        driver = Driver(
            journal,
            sites.engine,
            clock,
            find,
            chosen,
            processes=OtherProcesses(
                asking=Asking(chosen.decider or ""),
                restate=(sys.executable, "-m", "headway.restate"),
                forecast=forecaster,
                advise=forecaster.advise,
                hurry_forecast=forecaster.hurry,
            ),
            surroundings=Surroundings(
                sites=sites,
                providers=partial(_providers, lenders),
                door=NO_SERVICES if sites.own is None else _door(sites.own, token),
                account_of=partial(_account_on, sites, tokens) if settings.engine.has_accounts else as_the_engine,
            ),
        )
        driver.broken.add_done_callback(lambda _: end.set())
        meter = EnergyMeter((sys.executable, "-m", "headway.energies"), settings.data.absolute(), clock)
        checker, delay = Checker(driver, clock, collectors.installed(), sites.pids), LoopDelay()
        refusals = Refusals(journal.refusals, driver.tally.refused, driver.now)
        url_file, no_more_files = settings.data / URL, _nothing
        alerts: Alerts | None = None
        if settings.alerts is not None:
            alerts = Alerts(driver, settings.alerts, token_of(settings.data / ALERT_SECRET))
        try:
            named = None if settings.nodes is None else [_warm(node, sites) for node in settings.nodes]
            first = [] if sites.others else [_warm(node, sites) for node in uniform_cluster(os.cpu_count() or 1)]
            await driver.start(
                named,
                first=first,
                network=settings.network,
                switching=settings.switching,
                bounds=settings.quotas.slots(tokens.roles()),
                renting=settings.renting,
                sites=settings.terms,
                facts={CHOSEN_SITES: _text_of(specs), CHOSEN_PROVIDERS: _text_of_lenders(lenders)},
            )
            await driver.services.open()
            check = partial(account_of, field="account", allow_root=settings.engine.allow_root)
            accounts = Accounts(tokens.account, check, partial(_prepare_accounts, sites, driver))
            api = Api(
                driver,
                tokens,
                end.set,
                checker=checker,
                delay=delay,
                body_max=settings.body_max,
                meter=meter,
                quotas=settings.quotas,
                refusals=refusals,
                accounts=accounts if settings.engine.has_accounts else None,
            )
            app, front = Epochs(api.app, journal.epoch, refusals.note_unread), api.front(journal.epoch)
            context = None if secure is None else secure.context
            server = BoundedServer(app, end, front, refused=refusals.note_unread, tls=context)
            api.drop = server.drop
            spare_collector()
            url = url_of(listener, secure=secure is not None)
            if secure is not None:
                write_private(settings.data / CERTIFICATE, secure.certificate)
            write_private(url_file, f"{url}\n")
            _keep_port(settings, listener.getsockname()[1])
            if moved:
                driver.incident("port_changed", url, moved)
            serving = asyncio.create_task(server.serve([listener]))
            delay.start()
            if alerts is not None:
                alerts.start()
            meter.rapl.start()
            if settings.check_every is None:
                checker.start()
            else:
                every = period(settings.check_every) if settings.check_every else None
                checker.choose(on=every is not None, every=every)
            nodes = driver.core.state.nodes.values()
            no_more_files = inspect_files(settings.data.absolute(), driver.incident)
            certificate = None if secure is None else settings.data / CERTIFICATE
            slots = sum(node.spec.slots for node in nodes)
            say(RunningServer(url, token_file, os.getpid(), len(nodes), slots, dict(sites.gone), certificate))
            await asyncio.wait((serving, asyncio.create_task(end.wait())), return_when=asyncio.FIRST_COMPLETED)
            log.info("ending in order")
            end.set()
            driver.take_no_more()
            await serving
        finally:
            try:
                url_file.unlink(missing_ok=True)
                no_more_files()
                checker.stop()
                delay.stop()
                if alerts is not None:
                    alerts.stop()
                meter.rapl.stop()
                forecaster.stop()
                refusals.write()
            finally:
                await driver.stop()
        if driver.broken.done():
            error = driver.broken.exception()
            assert isinstance(error, CannotGoOn)
            raise HeadwayError(f"the server broke: {error.args[0]}", error.hint) from error


def _secure(settings: Settings) -> Secure | None:
    """What is needed for HTTPS; None: HTTP is spoken.

    Raises:
        HeadwayError: the certificate or its key cannot be used.
    """
    if settings.tls is None:
        return None
    return given(*settings.tls) if settings.tls else self_signed(settings.data / PAIR, settings.host)


def _listener(settings: Settings) -> tuple[socket.socket, str]:
    """What the server listens on, and why that is not the port that it had before, if it should be.

    A port that another program has taken meanwhile keeps no server from starting, nor does a damaged file that should
    name it. The server takes another port, says so, and comes back to its own at a later start.

    Raises:
        HeadwayError: the given port or host cannot be used.
    """
    is_secure = settings.tls is not None
    if settings.port is not None:
        return listen(settings.host, settings.port, secure=is_secure), ""
    try:
        before = _port_in(settings.data / PORT)
        return listen(settings.host, before, secure=is_secure), ""
    except PortTaken:
        why = f"port {before} of {settings.host}, which this server had before, is in use"
    except NoPort as error:
        why = f"the port that this server had before is not known: {error.args[0]}"
    listener = listen(settings.host, 0, secure=is_secure)
    moved = f"{why}. It takes another this time: {url_of(listener, secure=is_secure)}"
    log.warning("%s. Clients that were given another URL do not find it there. --port names a port for good", moved)
    return listener, moved


def _keep_port(settings: Settings, port: int) -> None:
    """Keep this port for the next start, unless it only replaces the kept one for now."""
    file = settings.data / PORT
    try:
        if settings.port is None and _port_in(file):
            return
    except NoPort:
        pass  # it is replaced
    try:
        write_private(file, f"{port}\n")
    except HeadwayError as error:
        log.warning("the next start may take another port: %s", error.args[0])


def _port_in(file: Path) -> int:
    """The port that a file names; 0 where there is no file.

    Raises:
        NoPort: it cannot be read, or what it says is no port.
    """
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise NoPort(f"{file} cannot be read: {error.strerror or error}") from error
    digits = text.strip()
    if not (digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 1 << 16):
        raise NoPort(f"{file} says {in_short(repr(text[:40]))}; allowed: a port, 1 to 65535")
    return int(digits)


def _nothing() -> None:
    """Where there is nothing to be called off."""


def _warm(node: NodeSpec, sites: SiteEngines) -> NodeSpec:
    """A node as its engine runs it: that of this machine is given work ahead of its turn."""
    is_here = sites.engines.get(node.site, LOCAL) == LOCAL
    return replace(node, read_ahead=READ_AHEAD) if is_here and node.capabilities.read_ahead else sites.as_run(node)


def _sites_of(settings: Settings, journal: Journal) -> tuple[SiteSpec, ...]:
    """The sites of this run. If there are others than this machine's, these name it where it has nodes."""
    if settings.sites is None:
        text = journal.fact(CHOSEN_SITES)
        return () if text is None else tuple(SiteSpec(*site) for site in _sites.decode(text))
    names = {site.name for site in settings.sites}
    if not settings.sites:
        return ()
    own = dict.fromkeys(node.site for node in settings.nodes or () if node.site not in names)
    return (*settings.sites, *map(SiteSpec, own))


def _lenders(settings: Settings, journal: Journal) -> tuple[ProviderSpec, ...]:
    """Who rents machines out in this run."""
    if settings.providers is not None:
        return settings.providers
    text = journal.fact(CHOSEN_PROVIDERS)
    return () if text is None else tuple(ProviderSpec(*one) for one in _sites.decode(text))


def _providers(specs: Iterable[ProviderSpec], cluster: str) -> dict[str, Provider]:
    """The providers, by site."""
    return {spec.site: registry.make(spec.kind, spec.site, spec.options, cluster) for spec in specs}


def _text_of_lenders(specs: Iterable[ProviderSpec]) -> str:
    """Who rents machines out, as the journal has it."""
    return msgspec.json.encode([(spec.site, spec.kind, spec.options) for spec in specs]).decode()


def _text_of(sites: Iterable[SiteSpec]) -> str:
    """The sites as the journal has them."""
    return msgspec.json.encode([(site.name, site.engine, site.options) for site in sites]).decode()


def _door(engine: LocalEngine, token: str) -> BrokerDoor:
    """Where instances of services, which run on this machine, find the server."""
    return BrokerDoor(
        engine.ground / SERVICES_SOCKET,
        hmac.digest(token.encode(), b"services", "sha256"),
        engine.owner,
        None if engine.accounts is None else engine.accounts / SERVICES_SOCKET,
    )


def _warn(tokens: Tokens, token_file: Path, settings: LocalSettings) -> None:
    """Say whose tasks can read the administrator's token, if others have tokens."""
    who = ""
    if settings.accounts:
        users = sorted({report.user for report in tokens.reports() if not report.account and report.user != account()})
        if users:
            who = in_short(f"users without an account of the system ({', '.join(users)})")
    elif tokens.reports() and not settings.keeps_apart:
        who = "all users"
    if who:
        here = "as root" if os.geteuid() == 0 else "as this account"
        said = "tasks of %s run %s and can read %s: with --run-as-owner or --run-as they could not"
        log.warning(said, who, here, token_file)


def _account_on(sites: SiteEngines, tokens: Tokens, user: str, node: NodeSpec) -> str:
    """As which account the tasks of a user run on a node; empty: as that of its engine."""
    return tokens.account(user) if sites.has_accounts(node) else ""


def _prepare_accounts(sites: SiteEngines, driver: Driver) -> None:
    """Before the first task runs as an account of its user: make what it needs on this machine.

    Raises:
        EngineError: it cannot be made.
    """
    if sites.own is None:
        return
    sites.own.prepare_accounts()
    opening = asyncio.ensure_future(driver.services.open_to_accounts())
    opening.add_done_callback(_log_failure)


def _log_failure(opening: asyncio.Future[None]) -> None:
    if not opening.cancelled() and (error := opening.exception()) is not None:
        log.error("instances of services that run as accounts of their users cannot connect: %s", error)
