"""How many slots a node may have."""

from __future__ import annotations

from headway.errors import InvalidInput
from headway.model.node import NodeSpec


def check_most(node: NodeSpec, most: int, why: str = "", hint: str = "") -> None:
    """Check that a node has no more slots than its engine has room for.

    Args:
        why: what bounds them; empty: the engine does.
        hint: what to do where more are wanted.

    Raises:
        InvalidInput: it has more.
    """
    if node.slots > most:
        allowed = f"1 to {most}: {why}" if why else f"1 to {most}"
        raise InvalidInput(f"slots of node {node.name!r}", node.slots, allowed, hint=hint)
