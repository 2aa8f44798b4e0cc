"""The interface described for machines: OpenAPI 3.1, made from the routes and their types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headway import wire
from headway.model.instant import NEVER
from headway.model.job import BYTES_MAX, COUNT_MAX
from headway.wire.base import NodeName
from headway.wire.services import ServiceName

_NAMES: Final[dict[str, dict[str, Any]]] = {
    "job": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    "node": msgspec.json.schema(NodeName),
    "upload": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "service": msgspec.json.schema(ServiceName),
    "token": {"type": "string", "pattern": "^[0-9a-f]{8}$"},
}
"""What stands in a path."""


_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": COUNT_MAX}
_TERMS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "Line": {
        "latency": {"minimum": 0, "maximum": NEVER - 1},
    },
    "TaskSpec": {
        "estimate": {"minimum": 0, "maximum": NEVER - 1},
        "cores": {"minimum": 1, "maximum": COUNT_MAX},
        "after": {"items": _COUNT},
        "sends": {"items": {"type": "integer", "minimum": 0, "maximum": BYTES_MAX}},
    },
}
"""What the types of the model do not say of their values."""


def describe(
    routes: Iterable[wire.Route],
    version: str,
    *,
    title: str = "Headway",
    about: str = wire.__doc__ or "",
    media: tuple[str, ...] = (wire.MSGPACK, wire.JSON),
    written: Mapping[Any, type] | None = None,
) -> dict[str, Any]:
    """The description of these routes, as it is written in JSON.

    Args:
        version: of the server.
        title, about: what it is.
        media: in which forms bodies are sent and answered.
        written: types that are sent as values of other types.
    """
    routes = tuple(routes)
    types = [kind for route in routes for kind in (route.answer, route.body) if kind not in (None, Any, bytes, str)]
    written = written or {}
    has_roles = all(route.right is not None for route in routes)
    _, components = msgspec.json.schema_components(
        [*types, wire.ErrorBody, *written.values()],
        schema_hook=lambda kind: {"$ref": _component(written[kind])},
        ref_template=_component("{name}"),
    )
    for name, terms in _TERMS.items():
        for term, known in terms.items() if name in components else ():
            components[name]["properties"][term] |= known
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, media, has_roles=has_roles)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": about},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _component(kind: type | str) -> str:
    """Where a type is described."""
    return f"#/components/schemas/{kind if isinstance(kind, str) else kind.__name__}"


def _operation(route: wire.Route, media: tuple[str, ...], *, has_roles: bool) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "description": meaning, "schema": msgspec.json.schema(kind)}
        for name, kind, meaning in route.query
    ]
    for name, schema in _NAMES.items():
        if f"{{{name}}}" in route.path:
            parameters.insert(0, {"name": name, "in": "path", "required": True, "schema": schema})
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            "200": {"description": "As asked.", "content": _content(route.answer, media)},
            "default": {"description": "What is wrong and what to do.", "content": _content(wire.ErrorBody, media)},
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.body, media)}
    right = route.right if has_roles else None
    if right is not None:
        operation["description"] = f"For {right.text}."
        operation["security"] = [] if right.least is None else [{"token": [right.least.value]}]
    elif route is wire.HEALTH:
        operation["security"] = []
    return operation


def _content(kind: Any, media: tuple[str, ...]) -> dict[str, Any]:
    if kind is bytes:
        return {wire.OCTETS: {"schema": {"type": "string", "format": "binary"}}}
    if kind is str:
        return {wire.TEXT: {"schema": {"type": "string"}}}
    schema = {} if kind is Any else {"$ref": _component(kind)}
    return {form: {"schema": schema} for form in media}
