"""Cluster files are written, too: for nodes that a model generates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headway.errors import HeadwayError
from headway.model.instant import to_seconds
from headway.model.node import NodeSpec


def write_cluster(nodes: Sequence[NodeSpec], path: str | Path, *, about: str = "") -> None:
    """Write a cluster file that declares these nodes; alike ones that are numbered from 1 stand in one table.

    Args:
        about: a line on top, for people.

    Raises:
        HeadwayError: the file cannot be written.
    """
    tables: list[tuple[NodeSpec, str, int]] = []
    for node in nodes:
        stem, _, number = node.name.rpartition("-")
        if tables and stem:
            first, name, count = tables[-1]
            if name == stem and number == str(count + 1) and replace(first, name=node.name) == node:
                tables[-1] = first, name, count + 1
                continue
        tables.append((node, stem, 1) if number == "1" and stem else (node, node.name, 0))
    try:
        head = f"# {about}\n\n" if about else ""
        Path(path).write_text(head + "\n".join(_table(*table) for table in tables), encoding="utf-8")
    except OSError as error:
        raise HeadwayError(f"cannot write {path}: {error.strerror or error}") from error


def _table(node: NodeSpec, name: str, count: int) -> str:
    """A node, or so many of a name, as a table."""
    fields: list[tuple[str, object]] = [
        ("name", name),
        ("slots", node.slots),
        ("speed", node.speed),
        ("site", node.site),
    ]
    if node.cores is not None:
        fields.append(("cores", node.cores))
    if node.kind:
        fields.append(("kind", node.kind))
    if node.power is not None:
        fields += [("idle_watts", node.power.idle), ("peak_watts", node.power.peak)]
    if node.capabilities.lacking:
        fields.append(("cannot", list(node.capabilities.lacking)))
    if node.lease is not None:
        fields.append(("lease", to_seconds(node.lease)))
    if count:
        fields.append(("count", count))
    # Names and lists of names are written in JSON as in TOML.
    return "[[node]]\n" + "".join(f"{field} = {json.dumps(value, ensure_ascii=False)}\n" for field, value in fields)
