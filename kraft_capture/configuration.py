"""What is copied of a node's server.properties: settings that say who it is and who votes, never the rest.

Passwords stand in the same file. So a line is copied only where its key is on a list, and its value has the form that
the key demands.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kraft_capture.log_dirs import Entry, Replica, configured_log_dirs, parse_properties

CONFIGURATION_NAMES = ("controller.properties", "broker.properties", "server.properties")
"""The names under which audits look for a configuration in a node dir."""
CONFIGURATION_BYTES_MAX = 1 << 20
VALUE_CHARACTERS_MAX = 16 << 10
LEFT_OUT = "(left out)"
"""No setting has this form: audits take such a value for not known, where an absent one is Kafka's default."""
_FIRST_LINE = "# kraft-capture: the settings that audits read; all others are left out\n"
_NAME = r"[A-Za-z0-9_.-]{1,100}"
_HOST = r"(?:[A-Za-z0-9_.-]{0,255}|\[[0-9A-Fa-f:.%]{2,60}\])"
_CLASS = r"[A-Za-z0-9_.$]{1,300}"
_MILLISECONDS = r"[0-9]{1,12}"
_FOLDER = r"(?:[A-Za-z]:)?[^\x00-\x20\x7f=,:]{1,1024}"


def _list_of(item: str) -> str:
    return rf"(?:\s*{item}\s*(?:,\s*{item}\s*)*)?"


KEPT_SETTINGS = {
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
"""Which settings are copied, and as a regular expression what their values look like. The audit has the same list."""
_FORMS = {key: re.compile(form) for key, form in KEPT_SETTINGS.items()}


def kept_text(text: str) -> str:
    """The properties text with the kept settings alone; of a value that has another form it says just that."""
    settings = parse_properties(text)
    lines = [_FIRST_LINE]
    for key, form in _FORMS.items():
        value = settings.get(key)
        if value is not None:
            is_kept = len(value) <= VALUE_CHARACTERS_MAX and form.fullmatch(value)
            lines.append(f"{key}={_escaped(value) if is_kept else LEFT_OUT}\n")
    return "".join(lines)


def configuration_entry(file: str | None, replica: Replica) -> Entry | None:
    """The kept settings of a node's configuration as a file of its node dir; None where it is not this node's.

    It is where it names the log dir, or has the node id of the log dir. A file that cannot be read is none: the log is
    copied all the same.
    """
    if file is None:
        return None
    try:
        mtime_ms = os.stat(file).st_mtime_ns // 1_000_000  # noqa: PTH116
        with Path(file).open("rb") as opened:
            data = opened.read(CONFIGURATION_BYTES_MAX + 1)
    except OSError:
        return None
    if len(data) > CONFIGURATION_BYTES_MAX:
        return None
    text = data.decode("utf-8", "replace")
    settings = parse_properties(text)
    node_id = settings.get("node.id", settings.get("broker.id", ""))
    names = {os.path.realpath(each) for each in configured_log_dirs(text)}
    if node_id != str(replica.node_id) and os.path.realpath(replica.log_dir) not in names:
        return None
    name = os.path.basename(file)  # noqa: PTH119
    content = kept_text(text).encode()
    path = name if name in CONFIGURATION_NAMES else CONFIGURATION_NAMES[-1]
    return Entry(path, "file", len(content), 0, 0, 0, mtime_ms, state="sent", content=content)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
