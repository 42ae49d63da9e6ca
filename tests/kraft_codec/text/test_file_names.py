"""Names of files, against the names that Kafka gave the files of the captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_codec.file_names import (
    FileKind,
    FileName,
    is_hostile,
    is_index_name,
    is_partition_dir,
    offset_index_name,
    parse_file_name,
    printable,
    producer_state_name,
    segment_name,
    snapshot_name,
    time_index_name,
)


@pytest.mark.parametrize(
    ("name", "kind", "base_offset", "epoch"),
    [
        ("00000000000000155334.log", FileKind.SEGMENT, 155334, None),
        ("00000000000000155334.index", FileKind.OFFSET_INDEX, 155334, None),
        ("00000000000000155334.timeindex", FileKind.TIME_INDEX, 155334, None),
        ("00000000000000178426.snapshot", FileKind.PRODUCER_STATE, 178426, None),
        ("00000000000000105362-0000000001.checkpoint", FileKind.SNAPSHOT, 105362, 1),
        ("00000000000000000000-0000000000.checkpoint", FileKind.SNAPSHOT, 0, 0),
        (
            "00000000000000000007-0000000002-8273645182736451827.checkpoint.part",
            FileKind.SNAPSHOT_UNFINISHED,
            7,
            2,
        ),
        ("00000000000000000007-0000000002.checkpoint.part", FileKind.SNAPSHOT_UNFINISHED, 7, 2),
        ("00000000000000000007-0000000002.checkpoint.deleted", FileKind.DELETED, 7, 2),
        ("00000000000000000000.log.deleted", FileKind.DELETED, 0, None),
        ("00000000000000000000.timeindex.deleted", FileKind.DELETED, 0, None),
        ("00000000000000000000.log.swap", FileKind.TEMPORARY, 0, None),
        ("00000000000000000000.txnindex", FileKind.TEMPORARY, 0, None),
        ("9223372036854775807".rjust(20, "0") + ".log", FileKind.SEGMENT, 2**63 - 1, None),
        ("quorum-state", FileKind.QUORUM_STATE, None, None),
        ("quorum-state.tmp", FileKind.TEMPORARY, None, None),
        ("meta.properties", FileKind.META_PROPERTIES, None, None),
        ("bootstrap.checkpoint", FileKind.BOOTSTRAP_SNAPSHOT, None, None),
        (".kafka_cleanshutdown", FileKind.CLEAN_SHUTDOWN, None, None),
        ("cleaner-offset-checkpoint", FileKind.OFFSET_CHECKPOINT, None, None),
    ],
)
def test_names_that_belong(name: str, kind: FileKind, base_offset: int | None, epoch: int | None) -> None:
    assert parse_file_name(name) == FileName(name, kind, base_offset, epoch)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.log",
        "000000000000000000000.log",
        "00000000000000000000.LOG",
        "00000000000000000000.log\n",
        "\n00000000000000000000.log",
        "00000000000000000000.log.bak",
        "9223372036854775808".rjust(20, "0") + ".log",
        "00000000000000000000-4294967295.checkpoint",
        "00000000000000000000-0000000000-123.checkpoint",
        "00000000000000000000-0000000000.checkpoint.tmp",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log",
        "meta.properties.dir2",
        "Meta.properties",
        ".lock",
    ],
)
def test_names_that_do_not(name: str) -> None:
    assert parse_file_name(name) is None


def test_names_written_are_those_read() -> None:
    for offset in (0, 1, 155334, 2**63 - 1):
        for write in (segment_name, offset_index_name, time_index_name, producer_state_name):
            parsed = parse_file_name(write(offset))
            assert parsed is not None
            assert parsed.base_offset == offset
        parsed = parse_file_name(snapshot_name(offset, 2**31 - 1))
        assert parsed is not None
        assert (parsed.base_offset, parsed.epoch) == (offset, 2**31 - 1)
    for offset in (-1, 2**63):
        with pytest.raises(ValueError, match="expected 0 to"):
            segment_name(offset)
    with pytest.raises(ValueError, match="epoch -1"):
        snapshot_name(0, -1)


def test_every_name_that_kafka_gave(scenarios: list[Path]) -> None:
    seen: set[FileKind] = set()
    for scenario in scenarios:
        for path in scenario.glob("*/node-*/__cluster_metadata-0/*"):
            parsed = parse_file_name(path.name)
            assert parsed is not None, path
            seen.add(parsed.kind)
    assert {FileKind.SEGMENT, FileKind.SNAPSHOT, FileKind.QUORUM_STATE, FileKind.PRODUCER_STATE} <= seen


def test_partition_dirs() -> None:
    assert is_partition_dir("orders-0")
    assert is_partition_dir("a-b-17.0123456789abcdef0123456789abcdef-delete")
    assert not is_partition_dir("__cluster_metadata-0")
    assert not is_partition_dir("00-healthy")
    assert not is_partition_dir("-0")


def test_index_names() -> None:
    for name in ("0.index", "0.timeindex", "0.txnindex", "0.index.deleted"):
        assert is_index_name(name), name
    for name in ("0.log", "index", "my.indexes"):
        assert not is_index_name(name), name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain name-ü-日本", "plain name-ü-日本"),
        ("two\nlines", r"two\nlines"),
        ("bell\x07\x7f", r"bell\x07\x7f"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("\u2028next", r"\u2028next"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        (b"latin-\xfc".decode(errors="surrogateescape"), r"latin-\xfc"),
        ("nul\0", r"nul\x00"),
    ],
)
def test_hostile_names_are_shown_on_one_line(name: str, shown: str) -> None:
    assert printable(name) == shown
    assert is_hostile(name) == (name != shown)
    assert not is_hostile(shown)
    shown.encode()
