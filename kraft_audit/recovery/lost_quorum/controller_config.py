"""The config that the rescued controller starts with: an old controller's own file, with the lines that must differ.

A config made of the changed lines alone would start without the authorizer, and the controller would do what anybody
asks of it: brokers pass on who asked, and the controller decides (ControllerApis, Kafka 4.3). So where no whole file is
known, what has to be copied by hand stands there as blanks, with which Kafka does not start.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraft_audit.quorum.static_voters import QUORUM_VOTERS
from kraft_audit.recovery.lost_quorum.client_config import (
    BY_HAND,
    PLAINTEXT,
    client_data,
    client_values,
    lacks_login,
    protocol_of,
)
from kraft_audit.recovery.lost_quorum.own_files import OwnFile
from kraft_audit.recovery.lost_quorum.rescued_dir import RescuedNode
from kraft_audit.recovery.lost_quorum.rescued_endpoints import addresses_in
from kraft_codec.errors import CodecError
from kraft_codec.files.configuration import KEPT_SETTINGS
from kraft_codec.files.properties import parse_properties, with_entries

BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
CONTROLLER, COMBINED = "controller", "broker,controller"
FIRST_BLANKS: Final = ("authorizer.class.name", "super.users", "listener.security.protocol.map")
BLANKS: Final = (
    *("early.start.listeners", "principal.builder.class"),
    *("create.topic.policy.class.name", "alter.config.policy.class.name"),
)
"""With each of these, and FIRST_BLANKS, Kafka 4.3.1 was seen not to start while it reads its own name in capitals."""
ALSO_KEPT: Final = (
    *("sasl.enabled.mechanisms", "sasl.mechanism.controller.protocol", "sasl.mechanism.inter.broker.protocol"),
    *("controller.quorum.election.timeout.ms", "controller.quorum.election.backoff.max.ms"),
    *("controller.quorum.fetch.timeout.ms", "controller.quorum.request.timeout.ms", "broker.session.timeout.ms"),
)
"""What else is known of an old controller of whose file only some settings were kept."""
_NAMES: Final = re.compile(r"[A-Za-z0-9_.-]+(?:\s*,\s*[A-Za-z0-9_.-]+)*")


class ConfigError(Exception):
    """Why no config can be made of a file."""


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """The config of the rescued controller.

    `path` is where it was written, and `source` the file of node `source_id` that it is but for `lines`, which replace
    what that file has under their keys, and `removed`. Where no whole file is known `path` is None: `lines` are then
    all that is known, blanks included, and `source` a file of which only some settings were kept.
    `protocols` are LISTENER:PROTOCOL, as far as known. `client` is the config with which Kafka's tools log in at the
    controller, beside `path` or to be written by hand; None where they need none, or nothing says that they do.
    With `client_lacks_login` the login of that stands in a file of the old controller's host.
    """

    path: str | None
    source: str | None
    source_id: int | None
    lines: tuple[str, ...]
    removed: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    client: str | None = None
    client_lacks_login: bool = False


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The config, and what to write: to its `path` and to its `client`; None where no whole file is known."""

    config: ControllerConfig
    data: bytes | None = field(default=None, repr=False)
    client_data: bytes | None = field(default=None, repr=False)


def file_to_go_on_with(files: Mapping[int, OwnFile], named: Collection[int], ids: Sequence[int]) -> OwnFile | None:
    """The file of the first of these nodes that is a controller's, a whole one if there is any.

    Raises ConfigError where a file that is named cannot be one.
    """
    found = [files[node_id] for node_id in dict.fromkeys(ids) if node_id in files]
    for file in found:
        if file.node_id in named and file.data is None:
            raise ConfigError(f"{file.place} is what kraft-capture kept of a config: name the whole file of its node.")
        if file.node_id in named and "controller" not in file.configuration.roles:
            raise ConfigError(f"{file.place} is no controller's: process.roles in it does not say controller.")
    controllers = [file for file in found if "controller" in file.configuration.roles]
    return next((file for file in controllers if file.data is not None), next(iter(controllers), None))


def controller_config(
    node: RescuedNode,
    file: OwnFile | None,
    *,
    path: str,
    client: str,
    log_dir: str,
    is_combined: bool,
    is_moved: bool,
) -> ConfigFiles:
    """The config and, where an old controller's whole file is known, what is to be written to `path` and `client`.

    `log_dir` is where the rescued dir is, `is_moved` whether the node has another id or endpoint than before. Raises
    ConfigError.
    """
    protocols = () if file is None else file.configuration.security_protocols
    names = {endpoint.name for endpoint in node.endpoints}
    protocols = tuple(each for each in protocols if each.partition(":")[0] in names)
    listener = node.endpoints[0].name
    protocol = protocol_of(listener, protocols)
    needs_login = protocol not in (None, PLAINTEXT)
    if file is None or file.data is None:
        lines = tuple(_by_hand(node, file, log_dir, is_combined=is_combined))
        source, source_id = (None, None) if file is None else (file.place, file.node_id)
        named = BY_HAND if needs_login else None
        return ConfigFiles(ControllerConfig(None, source, source_id, lines, protocols=protocols, client=named))
    own = dict(parse_properties(file.data))
    wanted = {
        "process.roles": COMBINED if is_combined else CONTROLLER,
        "node.id": str(node.node_id),
        **_listeners(node, file, is_combined=is_combined, is_moved=is_moved),
        **quorum(node),
        **_log_dirs(log_dir, is_combined=is_combined),
    }
    gone = _removed(node, file, own, wanted, is_combined=is_combined, is_moved=is_moved)
    removed = [key for key in gone if key in own and key not in wanted]
    values = {key: value for key, value in wanted.items() if not _is_same(key, own.get(key), value)}
    try:
        data = with_entries(file.data, values, removed=removed, comment="kraft-audit rescue: what differs from it")
        login = client_values(listener, protocol, file.data) if protocol is not None and needs_login else None
        login_data = None if login is None else client_data(login)
    except CodecError as problem:
        raise ConfigError(f"{file.place}: {problem.detail}") from None
    lines = tuple(f"{key}={value}" for key, value in values.items())
    config = ControllerConfig(
        path,
        file.place,
        file.node_id,
        lines,
        tuple(removed),
        protocols,
        client=None if login is None else client,
        client_lacks_login=login is not None and lacks_login(login),
    )
    return ConfigFiles(config, data, login_data)


def quorum(node: RescuedNode) -> dict[str, str]:
    """Where the node itself finds the quorum that it is."""
    first = node.endpoints[0]
    return {QUORUM_VOTERS: f"{node.node_id}@{first.place}"} if node.is_static else {BOOTSTRAP_SERVERS: first.place}


def _log_dirs(log_dir: str, *, is_combined: bool) -> dict[str, str]:
    return {"metadata.log.dir" if is_combined else "log.dirs": log_dir}


def _is_same(key: str, own: str | None, value: str) -> bool:
    """Whether a file says that already: of roles the order does not matter."""
    parts = [sorted(part.strip() for part in text.split(",")) for text in (own or "", value)]
    return own is not None and (own.strip() == value or (key == "process.roles" and parts[0] == parts[1]))


def _listeners(node: RescuedNode, file: OwnFile, *, is_combined: bool, is_moved: bool) -> dict[str, str]:
    """The lines about listeners, none where those of the file stay as they are."""
    settings = file.configuration
    names = [endpoint.name for endpoint in node.endpoints]
    was_combined = len(settings.roles) > 1
    if not is_moved and was_combined == is_combined:
        return {}
    if "listeners" in settings.left_out and is_combined:
        raise ConfigError(f"{file.place}: nothing can be read from `listeners` there, which has to change.")
    found = addresses_in(settings.setting("listeners"))
    own = {endpoint.name: endpoint.address for endpoint in node.endpoints}
    if not is_moved:
        own |= {name: address for name, address in found.items() if name in own}
    others = {name: address for name, address in found.items() if name not in own} if is_combined else {}
    values = {"listeners": ",".join([*own.values(), *others.values()]), "controller.listener.names": ",".join(names)}
    advertised = addresses_in(settings.setting("advertised.listeners"))
    stays = [
        address
        for name, address in advertised.items()
        if (name in own and not is_moved) or (name not in own and is_combined)
    ]
    return values | ({"advertised.listeners": ",".join(stays)} if stays else {})


def _removed(
    node: RescuedNode,
    file: OwnFile,
    own: Mapping[str, str],
    wanted: Mapping[str, str],
    *,
    is_combined: bool,
    is_moved: bool,
) -> Iterator[str]:
    """The keys that would contradict what is set."""
    yield from ("broker.id", BOOTSTRAP_SERVERS if node.is_static else QUORUM_VOTERS)
    if not is_combined:
        yield from ("log.dir", "metadata.log.dir")
    if is_moved or (len(file.configuration.roles) > 1) != is_combined:
        if not is_combined or "advertised.listeners" not in file.configuration.left_out:
            yield "advertised.listeners"
        early = own.get("early.start.listeners", "")
        there = addresses_in(wanted.get("listeners", file.configuration.setting("listeners")))
        if _NAMES.fullmatch(early.strip()) and not {name.strip() for name in early.split(",")} <= there.keys():
            yield "early.start.listeners"


def _by_hand(node: RescuedNode, file: OwnFile | None, log_dir: str, *, is_combined: bool) -> Iterator[str]:
    """All lines that are known, and blanks for what Kafka must not start without; authorizer and protocols first.

    A combined node has its data, so its config is there too: only what differs from that.
    """
    values: dict[str, str] = {}
    if not is_combined:
        values = {"process.roles": CONTROLLER, "node.id": str(node.node_id)}
        yield from _known_or_blank(FIRST_BLANKS, file)
        yield f"listeners={','.join(endpoint.address for endpoint in node.endpoints)}"
        yield f"controller.listener.names={','.join(endpoint.name for endpoint in node.endpoints)}"
        yield from _known_or_blank(BLANKS, file)
        kept = {} if file is None else dict(file.configuration.settings)
        yield from (f"{key}={kept[key]}" for key in ALSO_KEPT if kept.get(key))
    for key, value in {**values, **quorum(node), **_log_dirs(log_dir, is_combined=is_combined)}.items():
        yield f"{key}={value}"


def _known_or_blank(keys: Sequence[str], file: OwnFile | None) -> Iterator[str]:
    """Each key with what an old file has, none where it surely has no such line, and else a blank."""
    for key in keys:
        value = None if file is None else file.configuration.setting(key)
        if value:
            yield f"{key}={value}"
        elif file is None or key not in KEPT_SETTINGS or key in file.configuration.left_out:
            yield f"{key}={blank(key)}"


def blank(key: str) -> str:
    """What stands for a value that has to be filled in."""
    return key.upper().replace(".", "_")
