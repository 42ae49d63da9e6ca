"""Nested values of a state as people read them; JSON and CSV have them whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraft_audit.output import Row


def readable(row: Row) -> dict[str, Any]:
    """A row with its listeners as NAME://host:port and its features as name and range; all else as it is."""
    return {name: _readable(value) for name, value in row.items()}


def _readable(value: Any) -> Any:
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        return value
    if all({"name", "host", "port"} <= one.keys() for one in value):
        return ", ".join(map(_end_point, value))
    if all({"name", "min_supported_version", "max_supported_version"} <= one.keys() for one in value):
        return ", ".join(
            f"{one['name']} {one['min_supported_version']}-{one['max_supported_version']}" for one in value
        )
    return value


def _end_point(one: Mapping[str, Any]) -> str:
    """The protocol too, where the listener is not named after it."""
    from kraft_audit.rules.brokers import PROTOCOLS

    told = f"{one['name']}://{one['host']}:{one['port']}"
    number = one.get("security_protocol")
    protocol = PROTOCOLS.get(number, str(number)) if number is not None else one["name"]
    return told if protocol == one["name"] else f"{told} ({protocol})"
