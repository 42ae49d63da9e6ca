"""Where the rescued controller listens: every endpoint by which brokers and controllers look for it.

A node asks a controller at the endpoint of the listener that stands first in its own controller.listener.names
(KafkaRaftManager, Kafka 4.3). A voter without an endpoint of that name cannot be reached: such a broker ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.replay.cluster_state import ClusterState
from kraft_audit.text.readable import listed
from kraft_codec.files.configuration import NodeConfiguration

DEFAULT_LISTENER: Final = "CONTROLLER"


class EndpointError(Exception):
    """Why nothing says where the controller is to listen."""


def known_endpoints(state: ClusterState, node_id: int) -> dict[str, Endpoint]:
    """The endpoints of a controller by listener, those of the voter set first, then those of its registration only."""
    found: dict[str, Endpoint] = {}
    for point in _points(state, node_id):
        found.setdefault(point["name"], Endpoint(point["name"], point["host"], point["port"]))
    return found


def _points(state: ClusterState, node_id: int | None) -> Iterator[Mapping[str, Any]]:
    """Of one controller, or of all."""
    for voter in (state.voter_set or {"voters": ()})["voters"]:
        if node_id in (None, voter["voter_id"]):
            yield from voter["endpoints"]
    for row in state.existing("controller_changes"):
        if node_id in (None, row["controller_id"]):
            yield from row["end_points"]


def listeners_of(configuration: NodeConfiguration | None) -> tuple[str, ...]:
    """controller.listener.names; none where they are not known."""
    names = None if configuration is None else configuration.setting("controller.listener.names")
    return tuple(dict.fromkeys(name.strip() for name in (names or "").split(",") if name.strip()))


def rescued_endpoints(
    state: ClusterState, node_id: int, configuration: NodeConfiguration | None, asked: Sequence[Endpoint]
) -> tuple[Endpoint, ...]:
    """Where the node listens, the listener that it uses itself first. Raises EndpointError.

    `configuration`: of the controller whose file the node goes on with. `asked`: what --endpoint says.
    """
    known = known_endpoints(state, node_id)
    names = listeners_of(configuration) or tuple(known)
    names = names or tuple(dict.fromkeys(point["name"] for point in _points(state, None))) or (DEFAULT_LISTENER,)
    if asked:
        return _asked(asked, names)
    if not known:
        raise EndpointError(f"Nothing names the endpoint of controller {node_id}: give {_options(names)}.")
    host, ports = next(iter(known.values())).host, _ports(configuration)
    found = [known.get(name) or (Endpoint(name, host, ports[name]) if name in ports else None) for name in names]
    missing = [name for name, endpoint in zip(names, found, strict=True) if endpoint is None]
    if missing:
        raise EndpointError(
            f"Nothing names the port of controller {node_id}'s listener {listed(missing)}: give {_options(names)}."
        )
    return tuple(endpoint for endpoint in found if endpoint is not None)


def _asked(asked: Sequence[Endpoint], names: Sequence[str]) -> tuple[Endpoint, ...]:
    if len(asked) == len(names) == 1 and not asked[0].name:
        return (Endpoint(names[0], asked[0].host, asked[0].port),)
    given = {endpoint.name: endpoint for endpoint in asked}
    if given.keys() != set(names) or len(given) != len(asked):
        raise EndpointError(f"Controllers listen on {listed(names)}: give {_options(names)}.")
    return tuple(given[name] for name in names)


def _options(names: Sequence[str]) -> str:
    """The options that name an endpoint of each listener."""
    if len(names) == 1:
        return "--endpoint HOST:PORT"
    return " ".join(f"--endpoint {name}://HOST:PORT" for name in names)


def _ports(configuration: NodeConfiguration | None) -> dict[str, int]:
    """The ports in `listeners`, by listener."""
    value = None if configuration is None else configuration.setting("listeners")
    return {name: int(address.rpartition(":")[2]) for name, address in addresses_in(value).items()}


def addresses_in(listeners: str | None) -> dict[str, str]:
    """Each listener's whole address in the value of `listeners` or `advertised.listeners`, by its name."""
    parts: Iterable[str] = (part.strip() for part in (listeners or "").split(","))
    return {part.partition("://")[0]: part for part in parts if part}
