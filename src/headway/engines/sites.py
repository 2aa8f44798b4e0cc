"""The engines of a server's sites, made and joined into one.

All sites of this machine are under one engine, which is also that of every site that nothing else says something of.
Each other site has an engine of its own. A server may have no engine of its own machine: then it has none of what needs
one, which are services and nodes that an operator adds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from headway.engines.base import Engine
from headway.engines.local.driver.engine import LocalEngine
from headway.engines.local.driver.settings import LocalSettings
from headway.engines.registry import LOCAL, SiteSpec, check_owners, kind, make
from headway.engines.router import ENGINE_PAUSES, Router
from headway.errors import EngineError, InvalidInput
from headway.model.node import NodeSpec

NOT_HERE: Final = "This server has no engine of its own machine. `headway up --slots N`, or a cluster file, adds one."


NOT_OUT: Final = "`headway node add` only takes back one that was drained or removed there: this one was not."


class SiteEngines:
    """The engines of these sites.

    Args:
        specs: the sites that are declared; none: there is only this machine.
        local: makes the engine of this machine.
        folder: where each other engine gets a folder of its own.
        tasks: how tasks are treated at all sites; None: as by default.
        patient, pauses: see `Router`.

    Attributes:
        engine: all of them as one.
        own: the engine of this machine; None: there is none.
        engines: the kind of engine of each declared site.

    Raises:
        InvalidInput: an engine is not installed, or what it was told is not allowed any more. If `patient`, its site
            is gone then, until it can be made.
        HeadwayError: an engine cannot be made, or cannot run each task as the account of its user.
    """

    engine: Engine

    def __init__(
        self,
        specs: Sequence[SiteSpec],
        local: Callable[[], LocalEngine],
        folder: Path,
        tasks: LocalSettings | None = None,
        *,
        patient: bool = False,
        pauses: tuple[float, float] = ENGINE_PAUSES,
    ) -> None:
        self.engines: Mapping[str, str] = {spec.name: spec.engine for spec in specs}
        self._finding = frozenset(spec.name for spec in specs if kind(spec.engine).finds)
        self._of_one_disk = frozenset(spec.name for spec in specs if kind(spec.engine).one_disk)
        self._of_one_account = frozenset(spec.name for spec in specs if not kind(spec.engine).owners)
        others = [spec for spec in specs if spec.engine != LOCAL]
        self.own = local() if len(others) < len(specs) or not specs else None
        self._router: Router | None = None
        if self.own is not None and not others:
            self.engine = self.own
            return
        engines: dict[str, Engine | Callable[[], Engine]] = {} if self.own is None else {LOCAL: self.own}
        for spec in others:
            check_owners(spec, tasks)
            maker = partial(make, spec, folder_of(folder, spec.name), tasks)
            engines[spec.name] = maker if patient else maker()
        self.engine = self._router = Router(engines, self._which, plain=LOCAL, patient=patient, pauses=pauses)

    @property
    def gone(self) -> dict[str, str]:
        """The sites whose engine can do nothing now, and why."""
        if self._router is None or not (gone := self._router.gone):
            return {}
        parts = {name: LOCAL if engine == LOCAL else name for name, engine in self.engines.items()}
        return {name: gone[part] for name, part in parts.items() if part in gone}

    @property
    def others(self) -> list[str]:
        """The sites of other engines than that of this machine."""
        return [name for name, engine in self.engines.items() if engine != LOCAL]

    def keeps(self, node: NodeSpec) -> bool:
        """Whether a node of an earlier run can be in service still: its site's engine finds nodes, or it was added."""
        return node.found == (node.site in self._finding) and (node.site in self.engines or self.own is not None)

    def as_run(self, node: NodeSpec) -> NodeSpec:
        """A node as it is run: at a site of another engine than that of this machine, it keeps gangs together."""
        if self.engines.get(node.site, LOCAL) == LOCAL:
            return node
        return replace(node, capabilities=replace(node.capabilities, spans=False))

    def has_accounts(self, node: NodeSpec) -> bool:
        """Whether tasks can run there as accounts of their users."""
        return node.site not in self._of_one_account

    def disk_of(self, node: NodeSpec) -> str:
        """A name of the disk on which tasks of a node have their files: of this machine there is one, and of a site
        whose nodes have them in a folder that they share. Of all other nodes it is taken that each has its own.
        """
        if self.engines.get(node.site, LOCAL) == LOCAL:
            return ""
        return f"site {node.site}" if node.site in self._of_one_disk else f"node {node.name}"

    def finds(self, site: str) -> bool:
        """Whether the engine of a site finds its nodes by itself."""
        return site in self._finding

    def kept_out(self, name: str) -> list[str]:
        """The sites where a node of this name was found and then drained or removed."""
        return [] if self._router is None else self._router.kept_out(name)

    async def let_in(self, site: str, name: str, slots: int | None = None) -> bool:
        """Let the engine of one of these sites find the node again; returns whether it was kept out until now.

        Raises:
            InvalidInput: it has another number of slots.
            EngineError: the engine is gone.
        """
        if self._router is None:
            raise EngineError(f"no engine finds node {name!r}")
        return await self._router.let_in(site, name, slots)

    def pids(self) -> dict[str, int]:
        """The process of each node that is on this machine."""
        return {} if self.own is None else self.own.pids()

    def _which(self, node: NodeSpec) -> str:
        """The name of a node's engine.

        Raises:
            InvalidInput: it can be at no such site.
        """
        field = f"site of node {node.name!r}"
        if node.site in self._finding and not node.found:
            hint = f"Engine {self.engines[node.site]} finds the nodes of site {node.site!r} by itself. {NOT_OUT}"
            raise InvalidInput(field, node.site, f"a site whose nodes are added: {self._added()}", hint=hint)
        if self.engines.get(node.site, LOCAL) != LOCAL:
            return node.site
        if self.own is None:
            raise InvalidInput(field, node.site, f"a site whose nodes are added: {self._added()}", hint=NOT_HERE)
        return LOCAL

    def _added(self) -> str:
        added = [name for name in self.engines if name not in self._finding]
        return ", ".join(dict.fromkeys((*added, *([] if self.own is None else [LOCAL])))) or "there is none"


def folder_of(folder: Path, site: str) -> Path:
    """The folder of a site's engine: the site's name, as far as it fits a file name, and a digest of it."""
    readable = re.sub(r"[^\w-]", "_", site, flags=re.ASCII)[:40]
    return folder / f"{readable}-{hashlib.sha256(site.encode()).hexdigest()[:12]}"
