"""Voter sets against what Kafka's own reader found, and the dialects against the proposals' worked examples."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.capture.decoded_records import ControlRecord, control_records
from kraft_audit.quorum.quorum_tables import voter_set_rows
from kraft_audit.quorum.voter_history import (
    VoterSet,
    added,
    bootstrapped,
    checkpoint_voters,
    in_effect,
    removed,
    voter_history,
    voters_before,
)
from kraft_audit.tables.contract import silver_batch
from kraft_audit.tables.silver import VOTER_SETS
from kraft_codec.schemas import Dialect
from kraft_codec.text.java_text import uuid_bytes

DIRECTORIES = [uuid_bytes(f"{letter * 21}A") for letter in "BCDEFG"]


def history_of(oracle: Any, log_dir: str, to_columns: Any) -> list[VoterSet]:
    before = None
    snapshots = oracle.snapshots(log_dir)
    if snapshots:
        end_offset, epoch, path = snapshots[0]
        before = checkpoint_voters(control_records(to_columns(oracle.records(path))), end_offset, epoch)
    static = json.loads((oracle.folder / "scenario.json").read_text()).get("static_voters")
    ids = [int(voter.split("@")[0]) for voter in re.findall(r"\d+@", str(static))] if static else []
    records = control_records(to_columns(line for line in oracle.log_records(log_dir) if line["isControl"]))
    start = before.from_offset if before else -1
    return voter_history([r for r in records if r.offset > start], static_voters=ids, before=before)


@pytest.mark.slow
def test_last_set_is_the_one_that_kafka_read(oracles: list[Any], to_columns: Any) -> None:
    compared = 0
    for oracle in oracles:
        if oracle.folder.name == "crafted":
            continue  # every record type in every version: no history
        for log_dir in oracle.distinct_logs():
            image = oracle.image(log_dir)
            source = image.get("wholeLog") or image.get("snapshotPlusTail")
            if not source:
                continue
            witnessed = [entry["data"]["voters"] for entry in source["voterHistory"] if entry["type"] == "KRAFT_VOTERS"]
            if not witnessed:
                continue
            history = history_of(oracle, log_dir, to_columns)
            last_set = [
                {
                    "voterId": voter.voter_id,
                    "voterDirectoryId": voter.directory_id,
                    "endpoints": [{"name": e.name, "host": e.host, "port": e.port} for e in voter.endpoints],
                    "kRaftVersionFeature": {
                        "minSupportedVersion": voter.min_supported_version,
                        "maxSupportedVersion": voter.max_supported_version,
                    },
                }
                for voter in history[-1].voters
            ]
            assert last_set == sorted(witnessed[-1], key=lambda voter: int(voter["voterId"])), log_dir
            compared += 1
    assert compared >= 5


@pytest.mark.slow
def test_described_voters_are_in_effect_at_the_leaders_end(oracles: list[Any], to_columns: Any) -> None:
    compared = 0
    for oracle in oracles:
        dirs = [path for path in oracle.index if path.endswith("__cluster_metadata-0")]
        for capture in sorted({path.split("/")[0] for path in dirs}):
            status = oracle.folder / capture / "oracle" / "quorum-status.after.txt"
            text = status.read_text() if status.exists() else ""
            leader = re.search(r"LeaderId:\s+(\d+)", text)
            voters = re.search(r"CurrentVoters:\s+(\[.*\])", text)
            log_dir = f"{capture}/node-{leader[1]}/__cluster_metadata-0" if leader else ""
            if not voters or log_dir not in oracle.index or "static" in oracle.folder.name:
                continue
            history = history_of(oracle, log_dir, to_columns)
            described = {(voter["id"], voter["directoryId"]) for voter in json.loads(voters[1])}
            assert {voter.key for voter in history[-1].voters} == described, log_dir
            compared += 1
    assert compared >= 5


@pytest.mark.slow
def test_the_first_batch_shows_what_real_bootstrap_checkpoints_hold(oracles: list[Any], to_columns: Any) -> None:
    compared = configured = 0
    for oracle in oracles:
        for log_dir in oracle.distinct_logs():
            controls = control_records(to_columns(line for line in oracle.log_records(log_dir) if line["isControl"]))
            first_set = bootstrapped(controls)
            if oracle.folder.name == "static-to-dynamic-upgrade":
                assert first_set is None, log_dir  # its first voters are configured: a later batch names them
                configured += 1
            for end_offset, epoch, path in oracle.snapshots(log_dir):
                if end_offset or not controls or controls[0].offset:
                    continue
                held = checkpoint_voters(control_records(to_columns(oracle.records(path))), 0, epoch)
                assert held is not None
                assert first_set is not None, log_dir
                assert {voter.key for voter in first_set.voters} == {voter.key for voter in held.voters}, log_dir
                assert (first_set.from_offset, first_set.from_epoch) == (held.from_offset, held.from_epoch)
                compared += 1
    assert compared >= 5
    assert configured


def set_record(offset: int, *voters: tuple[int, int], epoch: int = 1) -> ControlRecord:
    rows = [
        {
            "voter_id": voter_id,
            "voter_directory_id": DIRECTORIES[directory],
            "endpoints": [{"name": "CONTROLLER", "host": "h", "port": 9000 + voter_id}],
            "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
        }
        for voter_id, directory in voters
    ]
    return ControlRecord(offset, epoch, 1_000 + offset, "KRAFT_VOTERS", {"voters": rows})


def test_truncated_change_is_one_that_only_the_other_branch_holds() -> None:
    first = set_record(2, (1, 0), (2, 1), (3, 2))
    history = voter_history([first, set_record(23, (1, 0), (2, 1), (3, 2), (4, 3))])
    assert [sorted(s.ids) for s in history] == [[1, 2, 3], [1, 2, 3, 4]]
    assert [v.voter_id for v in added(history[0], history[1])] == [4]
    rows = voter_set_rows(history, canonical_to=19)
    assert [(row["canonical"], row["ended_by"]) for row in rows] == [(True, "in_effect"), (False, "truncated")]
    assert [row["ended_by"] for row in voter_set_rows(history)] == ["superseded", "in_effect"]
    assert in_effect(history, 22) is history[0]
    assert in_effect(history, 23) is history[1]
    assert in_effect(history, 1) is None
    batch = silver_batch(VOTER_SETS, "cluster", 7, rows)
    assert batch.column("added").to_pylist()[1] == [{"voter_id": 4, "directory_id": history[1].voters[3].directory_id}]


def test_same_voter_on_a_new_disk_is_added_and_removed() -> None:
    history = voter_history([set_record(2, (1, 0), (2, 1)), set_record(9, (1, 0), (2, 4))])
    assert [v.key for v in added(*history)] == [history[1].voters[1].key]
    assert [v.key for v in removed(*history)] == [history[0].voters[1].key]


def test_upgrade_from_a_static_set_adds_no_voter() -> None:
    upgrade = [
        ControlRecord(469, 9, 5, "KRAFT_VERSION", {"kraft_version": 1}),
        set_record(470, (1, 0), (2, 1), (3, 2), epoch=9),
    ]
    upgrade[1] = ControlRecord(470, 9, 5, "KRAFT_VOTERS", upgrade[1].fields)
    history = voter_history(upgrade, static_voters=[1, 2, 3])
    assert [(s.source, s.kraft_version, s.from_offset) for s in history] == [("static", 0, -1), ("log", 1, 470)]
    assert added(*history) == removed(*history) == []


def test_the_first_batch_shows_what_a_bootstrap_checkpoint_held() -> None:
    """The first leader wrote the checkpoint's set beside its LeaderChange; a later batch's set was changed already."""
    leads = ControlRecord(0, 1, 5, "LEADER_CHANGE", {"voters": [{"voter_id": 1}, {"voter_id": 2}]}, batch_offset=0)
    version = ControlRecord(1, 1, 5, "KRAFT_VERSION", {"kraft_version": 1}, batch_offset=0)
    first = replace(set_record(2, (1, 0), (2, 1)), timestamp_ms=5, batch_offset=0)
    records = [leads, version, first, replace(set_record(3, (1, 0), (2, 1), (3, 2)), batch_offset=3)]
    found = bootstrapped(records)
    assert found is not None
    assert (found.from_offset, found.from_epoch, found.source, found.kraft_version) == (-1, 0, "bootstrap", 1)
    assert [voter.key for voter in found.voters] == [(1, "BBBBBBBBBBBBBBBBBBBBBA"), (2, "CCCCCCCCCCCCCCCCCCCCCA")]
    assert [voter_set.from_offset for voter_set in voter_history(records, before=found)] == [-1, 3]
    assert bootstrapped([leads, replace(first, batch_offset=1)]) is None
    assert bootstrapped([replace(version, offset=7), replace(first, offset=8)]) is None
    assert bootstrapped([leads]) is bootstrapped([]) is None


@pytest.mark.parametrize(("written_ms", "timestamp_ms"), [(77, 77), (0, None)])
def test_a_snapshots_set_is_as_old_as_its_last_record(written_ms: int, timestamp_ms: int | None) -> None:
    header = ControlRecord(0, 1, 5, "SNAPSHOT_HEADER", {"last_contained_log_timestamp": written_ms})
    found = checkpoint_voters([header, set_record(1, (1, 0))], 40, 3)
    assert found is not None
    assert (found.timestamp_ms, found.from_offset, found.from_epoch) == (timestamp_ms, 39, 3)


def change(name: str, offset: int, voter_id: int, directory: int, time: int) -> ControlRecord:
    return ControlRecord(offset, 1, time, name, {"voter_id": voter_id, "voter_uuid": DIRECTORIES[directory]})


@pytest.mark.parametrize("dialect", [Dialect.KIP856, Dialect.KIP642])
def test_a_set_of_a_draft_that_begins_with_a_snapshot_is_as_dynamic_as_its_record(dialect: Dialect) -> None:
    """Otherwise the same voters would be another set once Kafka has deleted the record."""
    record = ControlRecord(2, 1, 1, "ADD_VOTER", {"voter_id": 1, "voter_uuid": DIRECTORIES[0]})
    if dialect is Dialect.KIP642:
        fields = {"current_voters": [{"voter_id": 1}], "target_voters": None}
        record = replace(record, name="VOTER_ASSIGNMENT", fields=fields)
    logged = voter_history([record], dialect=dialect, static_voters=[1])[-1]
    recorded = checkpoint_voters([record], 40, 3, dialect=dialect)
    assert recorded is not None
    assert (recorded.kraft_version, recorded.voters) == (logged.kraft_version, logged.voters)


def test_kip856_replaces_a_disk_by_add_then_remove() -> None:
    """KIP-856, Reconfiguration: (3, UUID3') joins beside (3, UUID3), then the failed one leaves."""
    bootstrap = [change("ADD_VOTER", 1 + n, 1 + n, n, 50) for n in range(3)]
    later = [change("ADD_VOTER", 10, 3, 3, 60), change("REMOVE_VOTER", 12, 3, 2, 70)]
    history = voter_history([*bootstrap, *later], dialect=Dialect.KIP856, static_voters=[1, 2, 3])
    assert [[v.voter_id for v in s.voters] for s in history] == [[1, 2, 3], [1, 2, 3], [1, 2, 3, 3], [1, 2, 3]]
    assert [s.from_offset for s in history] == [-1, 3, 10, 12]  # the bootstrap's one batch is in effect as a whole
    assert [v.key for v in removed(history[2], history[3])] == [history[1].voters[2].key]


def test_kip642_moves_towards_its_targets() -> None:
    """KIP-642, the worked example (1, 2, 3) → (4, 5, 6)."""
    steps: list[tuple[list[int], list[int] | None]] = [
        ([1, 2, 3], None), ([1, 2, 3], [4, 5, 6]), ([1, 2, 3, 4], [4, 5, 6]), ([1, 2, 4], [4, 5, 6]), ([4, 5, 6], None)
    ]  # fmt: skip
    records = [
        ControlRecord(
            10 * n,
            1,
            n,
            "VOTER_ASSIGNMENT",
            {
                "current_voters": [{"voter_id": i} for i in current],
                "target_voters": None if target is None else [{"voter_id": i} for i in target],
            },
        )
        for n, (current, target) in enumerate(steps)
    ]
    history = voter_history(records, dialect=Dialect.KIP642)
    sets = [(sorted(s.ids), None if s.target_voters is None else list(s.target_voters)) for s in history]
    assert sets == steps


@pytest.mark.parametrize("dialect", [Dialect.KIP856, Dialect.KIP642])
def test_records_of_another_dialect_change_nothing(dialect: Dialect) -> None:
    assert voter_history([set_record(2, (1, 0))], dialect=dialect, static_voters=[1])[0].source == "static"


ONE_CHANGE = st.tuples(st.sampled_from(["ADD_VOTER", "REMOVE_VOTER"]), st.integers(1, 3), st.integers(0, 5))
CHANGES = st.lists(ONE_CHANGE, max_size=12)
CONFIGURED = (1, 2, 3)


def allowed_changes(changes: list[tuple[str, int, int]]) -> list[ControlRecord]:
    """KIP-856, Bootstrapping: no id comes that is not configured, and none goes completely."""
    disks = {voter_id: {voter_id} for voter_id in CONFIGURED}
    records = []
    for n, (name, voter_id, disk) in enumerate(changes, 1):
        after = disks[voter_id] | {disk} if name == "ADD_VOTER" else disks[voter_id] - {disk}
        if after and after != disks[voter_id]:
            disks[voter_id] = after
            records.append(change(name, 10 * n, voter_id, disk, n))
    return records


@given(changes=CHANGES, cut=st.integers(0, 12))
def test_a_history_can_be_read_in_two_parts_and_undone(changes: list[tuple[str, int, int]], cut: int) -> None:
    """KIP-856's single changes: split anywhere, the same sets; and from a set back to the one before the records."""
    records = allowed_changes(changes)
    bootstrap = [change("ADD_VOTER", n, n, n, 1) for n in CONFIGURED]
    start = voter_history(bootstrap, dialect=Dialect.KIP856, static_voters=CONFIGURED)
    whole = voter_history(records, dialect=Dialect.KIP856, before=start[-1])
    first = voter_history(records[:cut], dialect=Dialect.KIP856, before=start[-1])
    second = voter_history(records[cut:], dialect=Dialect.KIP856, before=first[-1])
    assert [*first[:-1], *second] == whole
    undone = voters_before(whole[-1], records, dialect=Dialect.KIP856)
    assert undone is not None
    assert undone.voters == start[-1].voters
    configured = voters_before(whole[-1], [*bootstrap, *records], dialect=Dialect.KIP856)
    assert configured is not None
    assert configured.voters == start[0].voters


def test_a_whole_set_hides_the_one_before() -> None:
    (after,) = voter_history([set_record(9, (1, 0), (2, 1))])
    assert voters_before(after, []) == after
    assert voters_before(after, [set_record(9, (1, 0), (2, 1))]) is None


def test_only_a_configured_set_of_kraft_version_0_cannot_change() -> None:
    assert voter_history([], static_voters=[1, 2])[0].is_static
    assert not voter_history([], static_voters=[1, 2], dialect=Dialect.KIP856)[0].is_static
    assert not voter_history([set_record(2, (1, 0))])[0].is_static


def test_a_set_at_the_fork_is_not_of_the_canonical_log() -> None:
    history = voter_history([set_record(2, (1, 0), (2, 1)), set_record(19, (1, 0))])
    assert [row["canonical"] for row in voter_set_rows(history, canonical_to=19)] == [True, False]
    assert [row["canonical"] for row in voter_set_rows(history, canonical_to=20)] == [True, True]


@pytest.mark.parametrize(
    ("second", "sets"),
    [((11, 1, 50), 1), ((12, 1, 50), 2), ((11, 2, 50), 2), ((11, 1, 51), 2)],
)
def test_what_one_batch_brings_is_one_change(second: tuple[int, int, int], sets: int) -> None:
    """Where the reader does not say which batch it was: neighbours of one epoch and one append time."""
    offset, epoch, time = second
    replaced = ControlRecord(offset, epoch, time, "REMOVE_VOTER", {"voter_id": 1, "voter_uuid": DIRECTORIES[0]})
    start = voter_history([change("ADD_VOTER", 1, 1, 0, 1)], dialect=Dialect.KIP856)
    history = voter_history([change("ADD_VOTER", 10, 1, 1, 50), replaced], dialect=Dialect.KIP856, before=start[-1])
    assert len(history) - 1 == sets


def test_two_batches_of_one_millisecond_are_two_changes() -> None:
    """KIP-856: a disk is added and the failed one removed, each in a batch of its own."""
    start = voter_history([change("ADD_VOTER", 1, 1, 0, 1)], dialect=Dialect.KIP856)
    pair = [change("ADD_VOTER", 10, 1, 1, 50), change("REMOVE_VOTER", 11, 1, 0, 50)]
    apart = [replace(record, batch_offset=record.offset) for record in pair]
    together = [replace(record, batch_offset=10) for record in pair]
    histories = [voter_history(records, dialect=Dialect.KIP856, before=start[-1])[1:] for records in (apart, together)]
    assert [[len(voter_set.voters) for voter_set in sets] for sets in histories] == [[2, 1], [1]]


def test_two_whole_sets_of_one_batch_are_two_changes() -> None:
    records = [
        ControlRecord(
            offset, 1, 5, "VOTER_ASSIGNMENT", {"current_voters": [{"voter_id": i} for i in ids], "target_voters": None}
        )
        for offset, ids in ((10, (1, 2)), (11, (1, 2, 3)))
    ]
    assert [sorted(s.ids) for s in voter_history(records, dialect=Dialect.KIP642)] == [[1, 2], [1, 2, 3]]


def test_a_voter_without_a_disk_matches_by_its_id() -> None:
    unknown = set_record(2, (1, 0))
    unknown.fields["voters"][0]["voter_directory_id"] = bytes(16)
    (found,) = voter_history([unknown])
    assert found.voters[0].directory_id is None
    assert found.holds(1, "any")
