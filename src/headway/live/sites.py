"""What a server says of its sites: under which engine each is, and whether that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from headway.model.node import NodeSpec


class SiteEngines(Protocol):
    """The sites that engines were made for."""

    @property
    def engines(self) -> Mapping[str, str]:
        """The kind of engine of each declared site; all others are of this machine."""
        ...

    @property
    def gone(self) -> Mapping[str, str]:
        """The sites whose engine can do nothing now, and why."""
        ...

    def keeps(self, node: NodeSpec) -> bool:
        """Whether a node of an earlier run can be in service still."""
        ...

    def as_run(self, node: NodeSpec) -> NodeSpec:
        """A node as it is run now, which a node of an earlier version may not say of itself."""
        ...

    def disk_of(self, node: NodeSpec) -> str:
        """A name of the disk on which tasks of a node have their files; nodes that share one have the same."""
        ...

    def finds(self, site: str) -> bool:
        """Whether the engine of a site finds its nodes by itself."""
        ...

    def kept_out(self, name: str) -> Sequence[str]:
        """The sites where a node of this name was found and then drained or removed, also if it was let in since."""
        ...

    async def let_in(self, site: str, name: str, slots: int | None = None) -> bool:
        """Let the engine of one of these sites find the node again; returns whether it was kept out until now.

        Raises:
            InvalidInput: it has another number of slots.
            EngineError: the engine is gone.
        """
        ...


class _Here:
    """One engine, whatever the sites are called."""

    engines: Mapping[str, str] = {}
    gone: Mapping[str, str] = {}

    def keeps(self, node: NodeSpec) -> bool:
        """Every node."""
        return True

    def as_run(self, node: NodeSpec) -> NodeSpec:
        """As it is."""
        return node

    def disk_of(self, node: NodeSpec) -> str:
        """That of this machine."""
        return ""

    def finds(self, site: str) -> bool:
        """No: nodes are added."""
        return False

    def kept_out(self, name: str) -> Sequence[str]:
        """None: no node is found."""
        return ()

    async def let_in(self, site: str, name: str, slots: int | None = None) -> bool:
        """No: none is kept out."""
        return False


ONE_ENGINE: Final = _Here()
"""The sites of a server with one engine."""

LOCAL_ENGINE: Final = "local"
"""The engine of sites that are not declared."""
