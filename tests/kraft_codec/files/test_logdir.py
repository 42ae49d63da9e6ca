"""What a log dir's files say, in which order its segments stand, and what Kafka would do with what is wrong."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

from kraft_codec.errors import Reason, kafka_verdict
from kraft_codec.file_names import FileKind, segment_name, snapshot_name
from kraft_codec.files.discovery import ReplicaDir, discover
from kraft_codec.files.logdir import (
    log_start_offset,
    read_meta,
    read_quorum_state,
    segments,
    snapshots,
    structure_damages,
)
from kraft_codec.storage.opener import open_storage
from kraft_codec.storage.random_access import Storage
from tests.builders.node_dirs import Heads, heads, segment_bytes

LOG = "__cluster_metadata-0"
BASES = (0, 30, 60, 90, 120)


def write_segments(log_dir: Path, content_by_name: dict[int, int], batch_count: int = 3) -> None:
    """Segments called by the keys, holding what begins at the values."""
    for path in log_dir.glob("*.log"):
        path.unlink()
    for name, content in content_by_name.items():
        (log_dir / segment_name(name)).write_bytes(segment_bytes(content, batch_count, 30 // batch_count))


def only_replica(storage: Storage) -> ReplicaDir:
    (replica,) = discover(storage).replicas
    return replica


def read_segments(node_dir: Path) -> tuple[list[int | None], dict[int | None, Reason]]:
    """First offsets in order, and the reason by the name of each segment that is complained of."""
    with open_storage(node_dir) as storage:
        replica = only_replica(storage)
        ordered, damages = segments(storage, replica)
    by_path = {file.path: file.base_offset for file in replica.files}
    return [segment.first_offset for segment in ordered], {by_path[damage.path]: damage.reason for damage in damages}


# Segments


@pytest.mark.parametrize("batch_count", [1, 3])
def test_content_decides_the_order_in_each_permutation_of_five_segments(node_dir: Path, batch_count: int) -> None:
    for permutation in itertools.permutations(BASES):
        content_by_name = dict(zip(BASES, permutation, strict=True))
        write_segments(node_dir / LOG, content_by_name, batch_count)
        first_offsets, damages = read_segments(node_dir)
        assert first_offsets == list(BASES), permutation
        assert damages == {name: Reason.BAD_FILE for name, content in content_by_name.items() if name != content}, (
            permutation
        )


def test_the_order_in_which_segments_were_made_is_no_matter(node_dir: Path) -> None:
    for permutation in itertools.permutations(BASES):
        write_segments(node_dir / LOG, {base: base for base in permutation})
        assert read_segments(node_dir) == (list(BASES), {})


def test_any_subset_of_segments_is_in_order(node_dir: Path) -> None:
    chosen = random.Random(853)  # noqa: S311
    bases = [30 * number for number in range(12)]
    for _ in range(200):
        subset = sorted(chosen.sample(bases, chosen.randint(1, len(bases))))
        write_segments(node_dir / LOG, {base: base for base in subset})
        assert read_segments(node_dir) == (subset, {})


def test_a_renamed_segment_stands_where_its_batches_say(node_dir: Path) -> None:
    write_segments(node_dir / LOG, {0: 0, 30: 90, 60: 60})
    assert read_segments(node_dir) == ([0, 60, 90], {30: Reason.BAD_FILE})


def test_a_segment_twice_is_an_overlap(node_dir: Path) -> None:
    write_segments(node_dir / LOG, {0: 0, 30: 30, 60: 30})
    first_offsets, damages = read_segments(node_dir)
    assert first_offsets == [0, 30, 30]
    assert damages[60] in (Reason.OVERLAP, Reason.BAD_FILE)
    with open_storage(node_dir) as storage:
        _, found = segments(storage, only_replica(storage))
    assert {damage.reason for damage in found} == {Reason.OVERLAP, Reason.BAD_FILE}


def test_each_flipped_bit_of_a_base_offset_leaves_the_order(node_dir: Path) -> None:
    write_segments(node_dir / LOG, {base: base for base in BASES})
    path = node_dir / LOG / segment_name(60)
    intact = path.read_bytes()
    for bit in range(64):
        flipped = bytearray(intact)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with open_storage(node_dir) as storage:
            ordered, damages = segments(storage, only_replica(storage))
        assert [segment.file.base_offset for segment in ordered] == list(BASES)
        assert {damage.reason for damage in damages} >= {Reason.BAD_FILE}


@pytest.mark.parametrize("content", [b"", b"\0" * 7, b"\0" * 4096, b"rubbish " * 100, b"\xff" * 61])
def test_a_segment_without_a_batch_stands_where_its_name_says(node_dir: Path, content: bytes) -> None:
    write_segments(node_dir / LOG, {0: 0, 30: 30, 60: 60})
    (node_dir / LOG / segment_name(30)).write_bytes(content)
    with open_storage(node_dir) as storage:
        ordered, damages = segments(storage, only_replica(storage))
    assert [segment.file.base_offset for segment in ordered] == [0, 30, 60]
    assert damages == ()


def test_the_segments_that_kafka_wrote_are_in_order(scenarios: list[Path]) -> None:
    confirmed = 0
    for scenario in scenarios:
        with open_storage(scenario) as storage:
            for replica in discover(storage).replicas:
                ordered, damages = segments(storage, replica)
                assert damages == (), replica.path
                for segment in ordered:
                    assert segment.first_offset in (None, segment.file.base_offset)
                    confirmed += segment.is_confirmed
    assert confirmed > 20


# Small files


def test_heads_are_what_the_notes_say(scenarios: list[Path]) -> None:
    checked = 0
    for scenario in scenarios:
        notes = json.loads((scenario / "scenario.json").read_text())
        captures = {capture["label"]: capture for capture in notes.get("captures", [])}
        with open_storage(scenario) as storage:
            for replica in discover(storage).replicas:
                capture = captures.get(replica.capture) or captures.get(replica.node_dir.partition("/")[0])
                if capture is None:
                    continue
                head = heads(storage, replica)
                assert head.damages == (), replica.path
                assert structure_damages(replica) == (), replica.path
                meta = head.meta
                assert meta is not None
                noted = capture["nodes"][str(meta.node_id)]
                assert replica.node_dir.endswith(f"node-{meta.node_id}")
                assert meta.cluster_id == notes["cluster_id"]
                if noted.get("directory_id") and meta.directory_id:
                    assert meta.directory_id == noted["directory_id"]
                checked += 1
    assert checked > 20


def test_absent_files_are_no_damage(node_dir: Path) -> None:
    (node_dir / "meta.properties").unlink()
    (node_dir / LOG / "quorum-state").unlink()
    (node_dir / LOG / "leader-epoch-checkpoint").unlink()
    with open_storage(node_dir) as storage:
        replica = only_replica(storage)
        head = heads(storage, replica)
        assert read_meta(storage, replica) == (None, ())
        assert read_quorum_state(storage, replica) == (None, ())
    assert head == Heads(None, None, None, ())


@pytest.mark.parametrize("name", ["meta.properties", f"{LOG}/quorum-state", f"{LOG}/partition.metadata"])
def test_one_damaged_file_leaves_the_others(node_dir: Path, name: str) -> None:
    (node_dir / name).write_bytes(b"version=9\nnonsense")
    with open_storage(node_dir) as storage:
        head = heads(storage, only_replica(storage))
    assert [damage.path for damage in head.damages] == [name]
    assert (head.meta is None) == (name == "meta.properties")
    assert (head.quorum_state is None) == (name == f"{LOG}/quorum-state")


def test_a_small_file_of_gigabytes_is_not_read(node_dir: Path) -> None:
    with (node_dir / LOG / "quorum-state").open("r+b") as file:
        file.truncate(1 << 32)
    with open_storage(node_dir) as storage:
        _, damages = read_quorum_state(storage, only_replica(storage))
    assert [damage.reason for damage in damages] == [Reason.LIMIT]


# Snapshots


def test_snapshots_are_in_order_of_offset_and_epoch(node_dir: Path) -> None:
    for offset, epoch in ((200, 1), (50, 3), (50, 2)):
        (node_dir / LOG / snapshot_name(offset, epoch)).write_bytes(b"")
    (node_dir / LOG / f"{snapshot_name(300, 3)}.deleted").write_bytes(b"")
    with open_storage(node_dir) as storage:
        replica = only_replica(storage)
    assert [(file.base_offset, file.epoch) for file in snapshots(replica)] == [(10, 1), (50, 2), (50, 3), (200, 1)]


def test_a_log_that_starts_above_0_needs_a_snapshot(node_dir: Path) -> None:
    log_dir = node_dir / LOG
    write_segments(log_dir, {60: 60})

    def reasons() -> list[Reason]:
        with open_storage(node_dir) as storage:
            replica = only_replica(storage)
            assert log_start_offset(replica) == 60
            return [damage.reason for damage in structure_damages(replica)]

    assert reasons() == [Reason.SNAPSHOT_MISSING]  # the newest ends at 10
    (log_dir / snapshot_name(60, 1)).write_bytes(b"")
    assert reasons() == []
    (log_dir / snapshot_name(60, 1)).rename(log_dir / f"{snapshot_name(60, 1)}.deleted")
    assert reasons() == [Reason.SNAPSHOT_MISSING]
    (log_dir / snapshot_name(75, 1)).write_bytes(b"")
    assert reasons() == []
    (log_dir / snapshot_name(10, 1)).unlink()
    assert reasons() == []
    (log_dir / f"{snapshot_name(99, 1)}.part").write_bytes(b"")
    assert reasons() == [Reason.SNAPSHOT_UNFINISHED]


def test_a_log_dir_without_segments_has_no_start(node_dir: Path) -> None:
    write_segments(node_dir / LOG, {})
    with open_storage(node_dir) as storage:
        replica = only_replica(storage)
    assert log_start_offset(replica) is None
    assert structure_damages(replica) == ()


# What Kafka would do


@pytest.mark.parametrize("reason", Reason)
def test_there_is_a_verdict_on_everything(reason: Reason) -> None:
    for kind in (None, *FileKind):
        verdict = kafka_verdict(reason, kind)
        assert verdict
        assert verdict == verdict.strip()
        assert not verdict.endswith(".")
        assert "\n" not in verdict


@pytest.mark.parametrize(
    ("reason", "kind", "words"),
    [
        (Reason.BAD_CRC, FileKind.SEGMENT, "cuts the log here"),
        (Reason.TORN_TAIL, FileKind.SEGMENT, "cuts the log here"),
        (Reason.TORN_TAIL, FileKind.SNAPSHOT, "as far as it goes"),
        (Reason.BAD_CRC, FileKind.SNAPSHOT, "fails to load"),
        (Reason.SNAPSHOT_INCOMPLETE, FileKind.SNAPSHOT, "as far as it goes"),
        (Reason.SNAPSHOT_UNFINISHED, FileKind.SNAPSHOT_UNFINISHED, "deletes it"),
        (Reason.SNAPSHOT_MISSING, None, "refuses to start"),
        (Reason.BAD_FILE, FileKind.QUORUM_STATE, "refuses to start"),
        (Reason.BAD_FILE, FileKind.META_PROPERTIES, "refuses to start"),
        (Reason.BAD_FILE, FileKind.OFFSET_INDEX, "rebuilds it"),
        (Reason.BAD_FILE, FileKind.CLEAN_SHUTDOWN, "unclean"),
        (Reason.GAP, FileKind.SEGMENT, "does not notice"),
        (Reason.UNKNOWN_RECORD_TYPE, FileKind.SEGMENT, "fatal fault"),
    ],
)
def test_verdicts_that_are_documented(reason: Reason, kind: FileKind | None, words: str) -> None:
    assert words in kafka_verdict(reason, kind)
