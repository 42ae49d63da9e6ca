"""Lines of Kafka's authorizer log: as a cluster of 4.3.1 writes them, in other layouts, and what is no such line."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kraft_audit.findings.authorizer_log import (
    LINE_BYTES_MAX,
    AllowedRequest,
    AuthorizerLog,
    read_authorizer_logs,
    time_zone,
)
from kraft_codec.errors import InputError

MESSAGE = (
    "Principal = User:bob is Allowed operation = CREATE from host = 10.0.0.7 on resource = Topic:LITERAL:b-1 for "
    "request = CreateTopics with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl[resourceType=TOPIC, "
    "resourceName=b-, patternType=PREFIXED, principal=User:bob, host=*, operation=ALL, permissionType=ALLOW])"
)
BY_DEFAULT = f"[2026-11-27 00:16:24,669] DEBUG {MESSAGE} (kafka.authorizer.logger)\n"
AT = datetime(2026, 11, 27, 0, 16, 24, 669_000, UTC)


def read(tmp_path: Path, text: str, zone: str = "UTC") -> AuthorizerLog:
    (tmp_path / "kafka-authorizer.log").write_text(text)
    return read_authorizer_logs([tmp_path], time_zone(zone))


def test_a_line_as_kafka_writes_it(tmp_path: Path) -> None:
    (found,) = read(tmp_path, f"Started.\n{BY_DEFAULT}\n").requests
    assert found == AllowedRequest(
        int(AT.timestamp() * 1000), 1, "User:bob", "10.0.0.7", "CreateTopics", "CREATE", "Topic", "b-1"
    )


@pytest.mark.parametrize(
    ("line", "zone", "spread_ms"),
    [
        (f"2026-11-27T00:16:24.669Z {MESSAGE}", "-08:00", 1),
        (f"[2026-11-27 02:16:24,669+0200] DEBUG {MESSAGE}", "UTC", 1),
        (f"[2026-11-27 01:16:24,669] DEBUG {MESSAGE}", "Europe/Berlin", 1),
        (f"[2026-11-26 18:31:24,669] DEBUG {MESSAGE}", "-05:45", 1),
        (f'{{"@timestamp":"2026-11-27T00:16:24.669123Z","level":"DEBUG","message":"{MESSAGE}"}}', "UTC", 1),
        (f'{{"message":"{MESSAGE}","@timestamp":"2026-11-27T00:16:24.669Z"}}', "UTC", 1),
        (f"2026-11-27 00:16:24 DEBUG {MESSAGE}", "UTC", 1000),
        (f"2026-11-27 00:16:24.6 DEBUG {MESSAGE}", "UTC", 100),
    ],
)
def test_layouts_and_zones(tmp_path: Path, line: str, zone: str, spread_ms: int) -> None:
    (found,) = read(tmp_path, line, zone).requests
    at_ms = int(AT.timestamp() * 1000)
    assert found.time_ms == at_ms - at_ms % spread_ms
    assert found.spread_ms == spread_ms
    assert found.principal == "User:bob"


@pytest.mark.parametrize(
    "line",
    [
        f"DEBUG {MESSAGE}",
        f"[2026-13-27 00:16:24,669] DEBUG {MESSAGE}",
        BY_DEFAULT.replace(
            "User:bob is", "User:bob is Allowed operation = ALTER from host = h on resource = Topic:L:t is"
        ),
        BY_DEFAULT.replace("User:bob is", "User:bob Principal = User:alice is"),
    ],
)
def test_a_line_without_a_time_or_with_two_meanings_is_counted_and_left_out(tmp_path: Path, line: str) -> None:
    log = read(tmp_path, BY_DEFAULT + line)
    assert len(log.requests) == 1
    assert log.unread_count == 1


def test_an_hour_that_a_clock_showed_twice_is_no_time(tmp_path: Path) -> None:
    lines = "".join(f"[2026-10-25 0{hour}:30:00,000] DEBUG {MESSAGE}\n" for hour in (1, 2, 3))
    log = read(tmp_path, lines, "Europe/Berlin")
    assert [datetime.fromtimestamp(each.time_ms / 1000, UTC).hour for each in log.requests] == [23, 2]
    assert log.unread_count == 1


def test_denied_requests_and_those_of_clients_are_counted_alone(tmp_path: Path) -> None:
    denied = BY_DEFAULT.replace("DEBUG", "INFO").replace("Allowed", "Denied")
    fetch = BY_DEFAULT.replace("CreateTopics", "Fetch").replace("CREATE", "READ")
    log = read(tmp_path, denied + fetch + fetch)
    assert log.requests == ()
    assert (log.line_count, log.allowed_count, log.unread_count) == (3, 2, 0)


def test_files_of_a_folder_in_the_order_of_time_with_their_hashes(tmp_path: Path) -> None:
    older = BY_DEFAULT.replace("00:16", "00:01").replace("bob", "eve").encode()
    (tmp_path / "node-2").mkdir()
    (tmp_path / "node-2" / "kafka-authorizer.log.2026-11-26.gz").write_bytes(gzip.compress(older))
    (tmp_path / "server.log").write_text("no such log")
    log = read(tmp_path, BY_DEFAULT)
    assert [each.principal for each in log.requests] == ["User:eve", "User:bob"]
    hashed = {Path(source["root"]): (source["size_bytes"], source["sha256"]) for source in log.sources}
    assert hashed == {
        path: (len(path.read_bytes()), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in tmp_path.rglob("*authorizer*")
    }


def test_what_is_no_such_log_is_refused_with_its_path(tmp_path: Path) -> None:
    whole = gzip.compress(BY_DEFAULT.encode() * 100)
    cases = {
        "authorizer.log": b"[2026-11-27 00:16:24,669] INFO Started (kafka.server.KafkaServer)\n",
        "authorizer.gz": whole[:-60],
        "no-deflate.gz": whole[:10] + b"\xff" * 20 + whole[30:],
        "other-checksum.gz": whole[:-8] + bytes(8),
        "empty.log": b"",
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name):
            read_authorizer_logs([tmp_path / name])
    with pytest.raises(InputError, match="no such file"):
        read_authorizer_logs([tmp_path / "gone"])
    (tmp_path / "logs").mkdir()
    with pytest.raises(InputError, match="authorizer"):
        read_authorizer_logs([tmp_path / "logs"])
    with pytest.raises(ValueError, match="Berlin"):
        time_zone("Atlantis")


def test_a_pipe_is_read_from_its_first_byte(tmp_path: Path) -> None:
    content = gzip.compress(BY_DEFAULT.encode())
    os.mkfifo(pipe := tmp_path / "authorizer")
    writer = threading.Thread(target=pipe.write_bytes, args=(content,), daemon=True)
    writer.start()
    log = read_authorizer_logs([pipe])
    writer.join()
    assert [each.principal for each in log.requests] == ["User:bob"]
    assert log.sources[0]["sha256"] == hashlib.sha256(content).hexdigest()


def test_a_line_longer_than_any_is_left_out_and_costs_no_more(tmp_path: Path) -> None:
    long = BY_DEFAULT.replace("b-1", "b" * 3 * LINE_BYTES_MAX).replace("\n", "")
    log = read(tmp_path, f"{long}{'x' * (4 << 20)}\n{BY_DEFAULT}")
    assert [each.resource_name for each in log.requests] == ["b-1"]
