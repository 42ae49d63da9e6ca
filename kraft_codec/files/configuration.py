"""A node's configuration (`server.properties` and its like), reduced to settings that say who it is and who votes.

Passwords stand in the same files. So a setting is kept only where its key is on a list, and its value has the form that
the key demands: neither other lines, nor what a continued line drags into a value, are ever kept.

Sources: `KRaftConfigs`, `QuorumConfig`, `ServerLogConfigs`, `SocketServerConfigs` (Kafka 4.3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from kraft_codec.errors import CodecError, Reason
from kraft_codec.files.properties import parse_properties

MAX_CONFIGURATION_BYTES: Final = 1 << 20
VALUE_CHARACTERS_MAX: Final = 16 << 10
_NAME: Final = r"[A-Za-z0-9_.-]{1,100}"
_HOST: Final = r"(?:[A-Za-z0-9_.-]{0,255}|\[[0-9A-Fa-f:.%]{2,60}\])"
_CLASS: Final = r"[A-Za-z0-9_.$]{1,300}"
_MILLISECONDS: Final = r"[0-9]{1,12}"
_FOLDER: Final = r"(?:[A-Za-z]:)?[^\x00-\x20\x7f=,:]{1,1024}"


def _list_of(item: str) -> str:
    return rf"(?:\s*{item}\s*(?:,\s*{item}\s*)*)?"


KEPT_SETTINGS: Final[Mapping[str, str]] = {
    "node.id": r"[0-9]{1,10}",
    "broker.id": r"[0-9]{1,10}",
    "process.roles": _list_of("(?:broker|controller)"),
    "controller.quorum.voters": _list_of(rf"[0-9]{{1,10}}@{_HOST}:[0-9]{{1,5}}"),
    "controller.quorum.bootstrap.servers": _list_of(rf"{_HOST}:[0-9]{{1,5}}"),
    "metadata.log.dir": _FOLDER,
    "log.dir": _list_of(_FOLDER),
    "log.dirs": _list_of(_FOLDER),
    "listeners": _list_of(rf"{_NAME}://{_HOST}:[0-9]{{1,5}}"),
    "advertised.listeners": _list_of(rf"{_NAME}://{_HOST}:[0-9]{{1,5}}"),
    "listener.security.protocol.map": _list_of(rf"{_NAME}:(?:SASL_SSL|SASL_PLAINTEXT|SSL|PLAINTEXT)"),
    "controller.listener.names": _list_of(_NAME),
    "inter.broker.listener.name": _NAME,
    "security.inter.broker.protocol": _NAME,
    "sasl.enabled.mechanisms": _list_of(_NAME),
    "sasl.mechanism.controller.protocol": _NAME,
    "sasl.mechanism.inter.broker.protocol": _NAME,
    "authorizer.class.name": f"(?:{_CLASS})?",
    "controller.quorum.election.timeout.ms": _MILLISECONDS,
    "controller.quorum.election.backoff.max.ms": _MILLISECONDS,
    "controller.quorum.fetch.timeout.ms": _MILLISECONDS,
    "controller.quorum.request.timeout.ms": _MILLISECONDS,
    "broker.heartbeat.interval.ms": _MILLISECONDS,
    "broker.session.timeout.ms": _MILLISECONDS,
}
"""Which settings are kept, and as a regular expression what their values look like. kraft-capture has the same list."""
_FORMS: Final = {key: re.compile(form) for key, form in KEPT_SETTINGS.items()}


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """What a configuration says. `file` is where it was read, `settings` the kept ones in the order of the list.

    `left_out` are kept keys whose values have another form, such as a placeholder: what they are is not known.
    `problem` says why nothing of the file could be read.
    """

    file: str
    settings: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    problem: str | None = None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        values = json.loads(text)
        settings, left_out = tuple(values["settings"].items()), tuple(values["left_out"])
        return cls(values["file"], settings, left_out, values["problem"])

    def to_json(self) -> str:
        """One line, as the table `captures` holds it."""
        values = {"file": self.file, "settings": dict(self.settings), "left_out": self.left_out}
        return json.dumps({**values, "problem": self.problem}, separators=(",", ":"))

    def setting(self, key: str) -> str | None:
        """The value of a kept key; None where the file does not set it, or not to something that is kept."""
        return dict(self.settings).get(key)

    @property
    def node_id(self) -> int | None:
        """`node.id`, or `broker.id` where only that is set."""
        text = self.setting("node.id") or self.setting("broker.id")
        return None if text is None else int(text)

    @property
    def roles(self) -> tuple[str, ...]:
        """`process.roles`."""
        return tuple(sorted(self._items("process.roles")))

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """`controller.quorum.bootstrap.servers`."""
        return self._items("controller.quorum.bootstrap.servers")

    @property
    def voters(self) -> tuple[int, ...] | None:
        """The ids in `controller.quorum.voters`; none where only bootstrap servers are set; None where neither is."""
        if "controller.quorum.voters" in self.left_out:
            return None
        if self.setting("controller.quorum.voters") is None and not self.bootstrap_servers:
            return None
        voters = self._items("controller.quorum.voters")
        return tuple(sorted({int(voter.partition("@")[0]) for voter in voters}))

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """`metadata.log.dir`, then `log.dirs`, or `log.dir` where that is not set."""
        names = (*self._items("metadata.log.dir"), *(self._items("log.dirs") or self._items("log.dir")))
        return tuple(dict.fromkeys(names))

    @property
    def security_protocols(self) -> tuple[str, ...]:
        """`LISTENER:PROTOCOL` of each listener; Kafka's default of a listener that is not mapped is its own name."""
        mapped = dict(item.split(":", 1) for item in self._items("listener.security.protocol.map"))
        names = [listener.partition(":")[0] for listener in self._items("listeners")]
        names += [name for name in self._items("controller.listener.names") if name not in names]
        return tuple(f"{name}:{mapped.get(name, name)}" for name in names)

    @property
    def sasl_mechanisms(self) -> tuple[str, ...]:
        """`sasl.enabled.mechanisms`, and those that the node itself uses towards controllers and brokers."""
        keys = ("sasl.enabled.mechanisms", "sasl.mechanism.controller.protocol", "sasl.mechanism.inter.broker.protocol")
        return tuple(sorted({name for key in keys for name in self._items(key)}))

    @property
    def timeouts(self) -> tuple[str, ...]:
        """`KEY=MILLISECONDS` of the timeouts that are set."""
        return tuple(f"{key}={value}" for key, value in self.settings if key.endswith(".ms"))

    def _items(self, key: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in (self.setting(key) or "").split(",") if part.strip())


def parse_configuration(data: bytes, file: str) -> NodeConfiguration:
    """The kept settings of a properties file. Raises CodecError(BAD_FILE, LIMIT) where it is no such file."""
    if len(data) > MAX_CONFIGURATION_BYTES:
        raise CodecError(Reason.LIMIT, 0, f"{len(data)} bytes, expected at most {MAX_CONFIGURATION_BYTES}")
    read = {key: value.strip() for key, value in parse_properties(data) if key in _FORMS}
    kept = tuple(
        (key, read[key])
        for key, form in _FORMS.items()
        if key in read and len(read[key]) <= VALUE_CHARACTERS_MAX and form.fullmatch(read[key])
    )
    return NodeConfiguration(file, kept, tuple(sorted(read.keys() - dict(kept).keys())))
