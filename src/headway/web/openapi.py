"""The interface described for machines: OpenAPI 3.1, made from the routes and their types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headway import wire


def describe(routes: Iterable[wire.Route], version: str) -> dict[str, Any]:
    """The description of these routes, as it is written in JSON.

    Args:
        version: of the server.
    """
    routes = tuple(routes)
    types = [kind for route in routes for kind in (route.answer, route.body) if kind not in (None, Any)]
    _, components = msgspec.json.schema_components([*types, wire.ErrorBody], ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headway", "version": version, "description": wire.__doc__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _operation(route: wire.Route) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "query", "description": meaning, "schema": msgspec.json.schema(kind)}
        for name, kind, meaning in route.query
    ]
    if "{job}" in route.path:
        parameters.insert(0, {"name": "job", "in": "path", "required": True, "schema": {"type": "integer"}})
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            "200": {"description": "As asked.", "content": _content(route.answer)},
            "default": {"description": "What is wrong and what to do.", "content": _content(wire.ErrorBody)},
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.body)}
    if route is wire.HEALTH:
        operation["security"] = []
    return operation


def _content(kind: Any) -> dict[str, Any]:
    schema = {} if kind is Any else {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {media: {"schema": schema} for media in (wire.MSGPACK, wire.JSON)}
