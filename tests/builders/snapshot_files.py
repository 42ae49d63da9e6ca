"""Snapshot files of small logs."""

from __future__ import annotations

from typing import Any

from kraft_codec.file_names import snapshot_name
from kraft_codec.records.batch import write_batch
from kraft_codec.records.record import write_control_value, write_metadata_value
from kraft_codec.schemas import CONTROL_TYPE_BY_NAME, Dialect
from tests.builders.logs import Log


def topic_snapshot(end_offset: int, *, epoch: int = 1, is_whole: bool = True) -> dict[str, bytes]:
    """Topics 1 up to the snapshot's end, as a log of one topic a record had them."""
    content = Log(epoch=epoch)
    content.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    for number in range(1, end_offset):
        content.topic(f"topic-{number}")
    if is_whole:
        content.control("SNAPSHOT_FOOTER", {"version": 0})
    return {snapshot_name(end_offset, epoch): content.content}


SECRETS = (
    ("ConfigRecord", {"resourceType": 4, "resourceName": "1", "name": "ssl.key.password", "value": "canary-password"}),
    ("ConfigRecord", {"resourceType": 4, "resourceName": "1", "name": "ssl.key.password", "value": "canary"}),
    ("UserScramCredentialRecord", {"name": "al", "mechanism": 1, "salt": b"canary-salt", "storedKey": b"canary-key",
                                   "serverKey": b"canary-server", "iterations": 4096}),
    ("DelegationTokenRecord", {"owner": "User:al", "tokenId": "canary-token-\u00e9"}),
    ("RemoveDelegationTokenRecord", {"tokenId": "canary-token-\u00e9"}),
    ("TopicRecord", {"name": "orders", "topicId": b"t" * 16}),
)  # fmt: skip


SECRETS_VALUE = write_metadata_value("ConfigRecord", 0, SECRETS[0][1])


def secret_snapshot(end_offset: int) -> dict[str, bytes]:
    """A snapshot whose records hold secrets."""
    control = CONTROL_TYPE_BY_NAME[Dialect.KIP853]

    def batch(at: int, name: str) -> bytes:
        fields = {"version": 0} | ({"lastContainedLogTimestamp": 5} if name == "SNAPSHOT_HEADER" else {})
        value = write_control_value(control[name], fields)
        key = b"\x00\x00" + control[name].number.to_bytes(2, "big")
        return write_batch(base_offset=at, leader_epoch=1, timestamp_ms=5, records=[(key, value)], is_control=True)

    data = write_batch(base_offset=1, leader_epoch=1, timestamp_ms=5, records=[(None, SECRETS_VALUE)])
    return {snapshot_name(end_offset, 1): batch(0, "SNAPSHOT_HEADER") + data + batch(2, "SNAPSHOT_FOOTER")}


def snapshot_of(log_type: Any, epoch: int, topics: int, *, header: bool = True, footer: bool = True) -> bytes:
    """The bytes of a snapshot with topics, with or without its header and footer."""
    log = log_type(epoch=epoch)
    if header:
        log.control("SNAPSHOT_HEADER", {"version": 0, "lastContainedLogTimestamp": 7})
    for number in range(topics):
        log.topic(f"kept-{number}")
    if footer:
        log.control("SNAPSHOT_FOOTER", {"version": 0})
    return bytes(log.content)
