"""The server."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headway.cli.paths import GivenPath
from headway.cli.typed import Probability
from headway.errors import HeadwayError, InvalidInput

if TYPE_CHECKING:
    from headway.engines.registry import SiteSpec
    from headway.live.alerts import AlertSettings
    from headway.server import RunningServer


def renamed(old: str, new: str) -> Callable[[Any], Any]:
    """An option of an earlier version, which is answered with its new name."""

    def refuse(_: click.Context, __: click.Parameter, given: str | None) -> None:
        if given is not None:
            raise HeadwayError(f"{old} is now {new}")

    return click.option(old, hidden=True, expose_value=False, callback=refuse)


NAMED_ENGINES: Final = {"dask": "--dask", "slurm": "--slurm"}
"""The engines that an option names, each for a site of the same name."""

OPTIONS: Final = {
    "dask": {"address": "--dask", "start": "--dask", "tls": "--dask-tls", "shared": "--dask-shared"},
    "slurm": {"partition": "--slurm", "folder": "--slurm-folder"},
}
"""What an engine is told, by the options that say it."""

WRITE: Final = 'which sites there are: write [[site]] with its name and engine = "dask" or "slurm"'


def sites_of(told: Mapping[str, Mapping[str, object]]) -> tuple[SiteSpec, ...]:
    """The sites that options name, each under an engine of its name.

    Raises:
        HeadwayError: one is not allowed, or goes without the one that it belongs to.
    """
    if all(value is None for options in told.values() for value in options.values()):
        return ()
    from headway.engines.registry import site

    found = []
    for engine, options in told.items():
        given = {name: value for name, value in options.items() if value is not None}
        if not given:
            continue
        named = OPTIONS[engine]
        if NAMED_ENGINES[engine] not in [named[name] for name in given]:
            alone, needed = named[next(iter(given))], NAMED_ENGINES[engine]
            raise HeadwayError(f"{alone} was given without {needed}", f"It is for the site that {needed} names.")
        try:
            found.append(site(engine, engine, given))
        except InvalidInput as wrong:
            field, allowed = named.get(wrong.field, wrong.field), wrong.allowed
            if wrong.field == "address" and "://" not in str(wrong.value):
                allowed += "; or local, which starts a cluster here"
            raise InvalidInput(field, wrong.value, allowed, hint=wrong.hint) from None
    return tuple(found)


def with_option(wrong: InvalidInput) -> InvalidInput:
    """What an engine refuses of a site, `FIELD of site 'NAME'`, by the option that says it."""
    field, _, site = wrong.field.partition(" of site ")
    option = OPTIONS.get(site.strip("'"), {}).get(field)
    return InvalidInput(option, wrong.value, wrong.allowed, hint=wrong.hint) if option else wrong


@click.command()
@renamed("--output-max", "--task-output-max")
@renamed("--outputs-max", "--storage-max")
@click.option("--slots", type=int, help="One node with this number of slots. Default: the nodes of the last run.")
@click.option("--cluster", type=GivenPath(dir_okay=False), help="TOML file that declares sites and nodes.")
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Use the workers of a Dask cluster: tcp://HOST:PORT of its scheduler, or tls:. local: start one here.",
)
@click.option(
    "--dask-tls", type=GivenPath(file_okay=False), help="With tls: folder with ca.crt, node.crt and node.key."
)
@click.option("--dask-shared", is_flag=True, help="Paths mean the same on the workers' machines as on this one.")
@click.option("--slurm", metavar="PARTITION", help="Use the nodes of a partition of Slurm.")
@click.option("--slurm-folder", type=GivenPath(file_okay=False), help="Folder that they share with this machine.")
@click.option("--policy", help="NAME[:KEY=VALUE,...]; default: the last run's; at first tempo:strict=false.")
@click.option("--decider", help="URL of a decider that makes the plans, or none; default: as in the last run.")
@click.option(
    "--answer-time",
    default="2s",
    show_default=True,
    help="How long a decider may take to answer before it counts as failed.",
)
@click.option(
    "--period", help="Run the policy at least this often: 30s, 5m, or none; default: as in the last run, at first 10s."
)
@click.option("--data", type=GivenPath(file_okay=False), help="Data directory; default ~/.local/share/headway.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=int, help="Port to listen on; default: as in the last run, at first any free port; 0: any."
)
@click.option(
    "--lease", default="10s", show_default=True, help="How long a node may be silent before it counts as lost."
)
@click.option(
    "--orphaned-after",
    default="60s",
    show_default=True,
    help="How long tasks go on without a server: the next one adopts those that still run.",
)
@click.option(
    "--grace", default="20s", show_default=True, help="How long a task may take to save its work before it moves."
)
@click.option(
    "--pin", is_flag=True, help="Give each slot a processor of its own, which its foreground and background share."
)
@click.option("--check-every", help="The status checker's period, 0: off; default: as in the last run, at first 5s.")
@click.option(
    "--retention",
    default="1d",
    show_default=True,
    help="How long acknowledged results are kept, as 1h30m; 0: not at all.",
)
@click.option(
    "--keep-unacknowledged",
    default="30d",
    show_default=True,
    help="How long results that are not acknowledged are kept after their job's end; none: for ever.",
)
@click.option(
    "--keep-jobs",
    default="30d",
    show_default=True,
    help="How long ended jobs stay listed after their results are gone; none: for ever.",
)
@click.option(
    "--keep-events",
    default="1d",
    show_default=True,
    help="How long past events stay in the journal, so that it is a trace; none: for ever.",
)
@click.option(
    "--keep-keys",
    default="1d",
    show_default=True,
    help="How long a repeated submission is recognised by its key, at least 2m.",
)
@click.option("--keep-incidents", default="90d", show_default=True, help="How long incidents are kept; none: for ever.")
@click.option(
    "--keep-uploads",
    default="1h",
    show_default=True,
    help="How long uploads that no open job needs are kept after their last use, at least 2m; none: for ever.",
)
@click.option(
    "--keep-history",
    default=20_000,
    show_default=True,
    type=click.IntRange(min=0, max=1_000_000),
    help="Of how many jobs that succeeded it is kept how long they ran, and of as many others how they ended.",
)
@click.option(
    "--reserve",
    type=click.IntRange(min=0),
    help="MiB of the disk that are kept for jobs already accepted; "
    "default 256, or a twentieth of the disk if that is less.",
)
@click.option(
    "--storage-max",
    type=click.IntRange(min=0),
    help="MiB that output files and uploads may take together; default a quarter of the disk.",
)
@click.option(
    "--call-lease",
    default="5m",
    show_default=True,
    help="Cancel an executor's calls when their client has been silent for this long; none: never.",
)
@click.option(
    "--estimates",
    type=click.Choice(["user", "last-two", "predicted"]),
    help="What policies know of run times. user: what users say; last-two: the mean of the last two jobs of the same "
    "user; predicted: a quantile of the last jobs that were alike. Default: as in the last run, at first user.",
)
@click.option(
    "--forecast-arrivals",
    is_flag=True,
    help="Forecasts count on new jobs, such as came in the last week.",
)
@click.option("--accept-loss", is_flag=True, help="If the journal is damaged, start with its undamaged part.")
@click.option(
    "--upload-max", default=16384, show_default=True, type=click.IntRange(min=0), help="The largest upload in MiB."
)
@click.option(
    "--task-output-max",
    default=64,
    show_default=True,
    type=click.IntRange(1, 1 << 20),
    help="MiB kept of a task's stdout, and of its stderr; the middle of a longer output is left out.",
)
@click.option(
    "--pass-env",
    multiple=True,
    metavar="NAME",
    help="A variable of this environment that tasks get; * stands for any text; may be given many times. "
    "Default: PATH, HOME, ...",
)
@click.option("--run-as", default="", metavar="USER", help="Run tasks as this user; only root can start such a server.")
@click.option(
    "--run-as-owner/--no-run-as-owner",
    default=None,
    help="Run each task as the account of its job's user, or none. Default, where root starts the server: those of "
    "users who have an account.",
)
@click.option("--allow-root", is_flag=True, help="Where tasks run as their users' accounts: that may be root.")
@click.option(
    "--ground", type=GivenPath(file_okay=False), help="Folder for the files of tasks that run as other users."
)
@click.option("--tls-cert", type=GivenPath(dir_okay=False), help="Speak HTTPS with the certificate in this file.")
@click.option("--tls-key", type=GivenPath(dir_okay=False), help="File with its key; default: the same file.")
@click.option("--tls-self-signed", is_flag=True, help="Speak HTTPS with a certificate that the server makes itself.")
@click.option("--alert-url", metavar="URL", help="Post an alert there before a job is late, once a job.")
@click.option("--alert-command", metavar="COMMAND", help="Run this for each alert, with the alert on its input.")
@click.option(
    "--alert-below",
    type=Probability(0, 1, min_open=True),
    help="Alert when a job is on time with less than this probability; default 0.5.",
)
@click.option("--quotas", type=GivenPath(dir_okay=False), help="TOML file that says how much users may have at once.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON that says where the server is.")
def up(
    slots: int | None,
    cluster: str | None,
    dask: str | None,
    dask_tls: str | None,
    dask_shared: bool,
    slurm: str | None,
    slurm_folder: str | None,
    policy: str | None,
    decider: str | None,
    answer_time: str,
    period: str | None,
    data: str | None,
    host: str,
    port: int | None,
    lease: str,
    orphaned_after: str,
    grace: str,
    pin: bool,
    check_every: str | None,
    retention: str,
    keep_unacknowledged: str,
    keep_jobs: str,
    keep_events: str,
    keep_keys: str,
    keep_incidents: str,
    keep_uploads: str,
    keep_history: int,
    reserve: int | None,
    storage_max: int | None,
    call_lease: str,
    estimates: str | None,
    forecast_arrivals: bool,
    accept_loss: bool,
    upload_max: int,
    task_output_max: int,
    pass_env: tuple[str, ...],
    run_as: str,
    run_as_owner: bool | None,
    allow_root: bool,
    ground: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_self_signed: bool,
    alert_url: str | None,
    alert_command: str | None,
    alert_below: float | None,
    quotas: str | None,
    as_json: bool,
) -> None:
    """Run a server on this machine until you stop it (ctrl-c).

    Other commands find the server, and its token, through its data directory. Everything accepted is kept there. Start
    the server again after any crash, and it goes on, with the nodes it had unless you name others. At first it has one
    node with a slot for each processor.

    With --dask or --slurm its nodes are those that it finds there; --slots adds one of this machine.
    """
    from headway.cli.show import counted, duration_in, period_in, seconds_in, span_in
    from headway.client.address import data_directory
    from headway.config import (
        read_cluster,
        read_network,
        read_providers,
        read_renting,
        read_sites,
        read_switching,
        read_terms,
        uniform_cluster,
        with_line,
    )
    from headway.model.instant import from_seconds
    from headway.model.network import NO_NETWORK
    from headway.model.renting import Renting
    from headway.model.site import SiteTerms

    of_dask = {"start" if dask == "local" else "address": dask, "tls": dask_tls, "shared": dask_shared or None}
    sites = sites_of({"dask": of_dask, "slurm": {"partition": slurm, "folder": slurm_folder}})
    if cluster is not None and (slots is not None or sites):
        other, hint = (
            ("--slots", "how many slots each node has")
            if slots is not None
            else (NAMED_ENGINES[sites[0].engine], WRITE)
        )
        raise HeadwayError(f"{other} and --cluster were both given", f"A cluster file says {hint}.")
    chosen = cluster is not None or slots is not None or bool(sites)
    nodes = read_cluster(cluster) if cluster else () if slots is None else uniform_cluster(slots)
    network = read_network(cluster) if cluster else NO_NETWORK
    switching = read_switching(cluster) if cluster else ()
    sites = read_sites(cluster) if cluster else sites
    terms = read_terms(cluster) if cluster else tuple(SiteTerms(site.name) for site in sites)
    renting = (read_renting(cluster) if cluster else None) or Renting()
    providers = read_providers(cluster) if cluster else ()
    rounds, call = period_in(period), span_in(call_lease, "--call-lease")
    answer = duration_in(answer_time, "--answer-time")
    silence, saving = seconds_in(lease, "--lease"), seconds_in(grace, "--grace")
    every = None if check_every is None else seconds_in(check_every, "--check-every")
    kept = (
        duration_in(retention, "--retention"),
        span_in(keep_unacknowledged, "--keep-unacknowledged"),
        span_in(keep_jobs, "--keep-jobs"),
        span_in(keep_events, "--keep-events"),
        span_in(keep_keys, "--keep-keys"),
        span_in(keep_incidents, "--keep-incidents"),
        span_in(keep_uploads, "--keep-uploads"),
    )

    alerted = alerts_of(alert_url, alert_command, alert_below)
    tls = tls_of(tls_cert, tls_key, self_signed=tls_self_signed)

    # Loaded only now: this takes longest, and wrong options are refused without it.
    from headway.access.quotas import Quotas, read_quotas
    from headway.engines.local.driver.settings import LocalSettings
    from headway.live.room import DiskBounds
    from headway.live.settings import DriverSettings
    from headway.live.sweep import Keep
    from headway.server import READ_AHEAD, Settings, run

    log_to_stderr()

    def say(running: RunningServer) -> None:
        place = {"url": running.url, "token_file": str(running.token_file), "pid": running.pid}
        if running.certificate is not None:
            place["certificate_file"] = str(running.certificate)
        if as_json:
            click.echo(json.dumps(place))
            return
        size = f"{counted(running.slots, 'slot')} on {counted(running.nodes, 'node')}"
        click.echo(f"Headway is up at {running.url} with {size}.")
        for site, why in running.gone.items():
            click.echo(f"The engine of site {site} is gone, and tried again from time to time: {why}", err=True)
        if running.certificate is not None:
            click.echo(f"Its certificate is in {running.certificate}; clients on other machines need a copy.")
        click.echo(f"Its token is in {running.token_file}; ctrl-c ends it cleanly.")

    settings = Settings(
        Path(data_directory(data)),
        nodes if chosen else None,
        DriverSettings(
            policy,
            "" if decider == "none" else decider,
            None if rounds is None else from_seconds(rounds),
            answer_time=answer,
            read_ahead=READ_AHEAD,
            keep=Keep(*kept, upload_max << 20, keep_history),
            call_lease=call,
            bounds=DiskBounds(*(None if mib is None else mib << 20 for mib in (reserve, storage_max))),
            estimates=estimates,
        ),
        LocalSettings(
            lease=silence,
            orphaned_after=seconds_in(orphaned_after, "--orphaned-after"),
            grace=saving,
            pin=pin,
            task_output_max=task_output_max << 20,
            pass_env=pass_env,
            run_as=run_as,
            accounts=run_as_owner is None and not run_as and os.geteuid() == 0,
            run_as_owner=bool(run_as_owner),
            allow_root=allow_root,
            ground=None if ground is None else Path(ground),
        ),
        host,
        port,
        check_every=every,
        accept_loss=accept_loss,
        network=network if chosen else None,
        switching=switching if chosen else None,
        renting=renting if chosen else None,
        providers=providers if chosen else None,
        sites=sites if chosen else None,
        terms=terms if chosen else None,
        quotas=read_quotas(Path(quotas)) if quotas else Quotas(),
        tls=tls,
        alerts=alerted,
        arrivals=forecast_arrivals,
    )
    try:
        run(settings, say)
    except InvalidInput as wrong:
        raise (with_line(wrong, cluster) if cluster else with_option(wrong)) from None
    click.echo("Headway is down; jobs that have not ended go on when it is started again.", err=True)


def tls_of(cert: str | None, key: str | None, *, self_signed: bool) -> tuple[Path, Path] | tuple[()] | None:
    """The files for HTTPS; empty: the server makes them itself; None: HTTP.

    Raises:
        HeadwayError: options were given together that contradict each other.
    """
    if self_signed:
        if cert or key:
            raise HeadwayError(
                f"--tls-self-signed and {'--tls-cert' if cert else '--tls-key'} were both given", "Give one of them."
            )
        return ()
    if key and not cert:
        raise HeadwayError("--tls-key was given without --tls-cert", "Name the certificate that the key belongs to.")
    return (Path(cert), Path(key or cert)) if cert else None


def alerts_of(url: str | None, command: str | None, below: float | None) -> AlertSettings | None:
    """Whom to tell before a job is late; None: nobody, and it is not looked for.

    Raises:
        HeadwayError: an option is not allowed.
    """
    if url is None and command is None and below is None:
        return None
    from headway.live.alerts import BELOW, AlertSettings

    try:
        words = tuple(shlex.split(command or ""))
    except ValueError as error:
        raise InvalidInput("--alert-command", command, f"words as a shell reads them ({error})") from None
    if command is not None and (not words or shutil.which(words[0]) is None):
        raise InvalidInput("--alert-command", command, "a program that can be run, and its arguments")
    try:
        return AlertSettings(url or "", words, BELOW if below is None else below)
    except InvalidInput as wrong:
        option = f"--{wrong.field.replace('_', '-')}"
        raise InvalidInput(option, wrong.value, wrong.allowed, hint=wrong.hint) from None


def log_to_stderr() -> None:
    """What a server has to say of itself."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
