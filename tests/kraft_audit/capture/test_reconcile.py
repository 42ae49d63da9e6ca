"""Who holds what: divergence, branches, foreign replicas, plans."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.capture.plan import Selection, plan_from_json, plan_to_json
from kraft_audit.capture.replica import odd_epoch_start
from kraft_codec.errors import InputError
from kraft_codec.file_names import snapshot_name
from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_codec.text.java_text import uuid_text
from tests.builders.readings import branch_windows, survey_of
from tests.builders.snapshot_files import snapshot_of

OTHER_CLUSTER = uuid_text(b"another-cluster!")
KEY = b"k" * 32


def test_replicas_that_part(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    divergent = usual_log.copy()
    shared = usual_log.next_offset
    usual_log.topic("lost")
    divergent.lead(3, epoch=3)
    divergent.topic("kept")
    node(tmp_path, 1, usual_log.content)
    node(tmp_path, 2, divergent.content)
    node(tmp_path, 3, divergent.content)
    node(tmp_path, 4, b"".join(divergent.batches[:4]))
    seen = survey_of(reading.plan(tmp_path))
    shapes = [(branch.parent, branch.from_offset, branch.to_offset, branch.epochs) for branch in seen.branches]
    assert shapes == [
        (None, 0, shared, [(1, 0), (2, 13)]),
        (0, shared, shared + 1, [(2, shared)]),
        (0, shared, shared + 2, [(3, shared)]),
    ]
    assert [(end.branch, end.end_offset) for end in seen.ends] == [
        (1, shared + 1),
        (2, shared + 2),
        (2, shared + 2),
        (0, 4),
    ]
    assert [(run.epoch, run.from_offset, run.to_offset) for run in seen.epochs_to(1)] == [
        (1, 0, 13),
        (2, 13, shared + 1),
    ]
    assert [record.fields["leader_id"] for record in seen.controls_to(2)] == [1, 2, 3]
    assert [record.fields["leader_id"] for record in seen.controls_to(1)] == [1, 2]


def test_logs_that_agree_are_not_sorted(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nearly all logs do costs no more than a comparison; a log that parted is sorted among the others."""
    for number, (start, end) in enumerate(((0, None), (3, -2), (5, None)), 1):
        node(tmp_path, number, {start: b"".join(usual_log.batches[start:end])}, files={})
    sort = Mock(side_effect=np.lexsort)
    monkeypatch.setattr(np, "lexsort", sort)
    assert len(survey_of(reading.plan(tmp_path)).branches) == 1
    sort.assert_not_called()
    usual_log.topic("other", base_offset=usual_log.next_offset - 1)
    del usual_log.batches[-2]
    node(tmp_path, 4, usual_log.content)
    assert len(survey_of(reading.plan(tmp_path)).branches) == 3
    sort.assert_called()


def test_the_records_of_one_branch(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    divergent = usual_log.copy()
    usual_log.topic("lost")
    divergent.lead(3, epoch=3)
    divergent.topic("kept")
    node(tmp_path, 1, usual_log.content)
    node(tmp_path, 2, divergent.content)
    plan = reading.plan(tmp_path)
    seen = survey_of(plan)
    for branch, name in ((1, "lost"), (2, "kept")):
        windows = branch_windows(plan, seen.path(branch), open_storage=open_storage, redactor=Redactor(KEY))
        names = [name for window in windows for name in window.records["TopicRecord"].column("name").to_pylist()]
        assert names == [f"first-{n}" for n in range(6)] + [f"second-{n}" for n in range(6)] + [name]
    cut = branch_windows(
        plan, seen.path(2), open_storage=open_storage, redactor=Redactor(KEY), from_offset=3, to_offset=7
    )
    offsets = [
        offset for window in cut for batch in window.records.values() for offset in batch.column("offset").to_pylist()
    ]
    assert sorted(offsets) == [3, 4, 5, 6]


def test_two_leaders_of_one_epoch(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    """Beyond Raft's model, and seen: a voter that lost its log voted again. Both histories stand side by side."""
    divergent = usual_log.copy()
    usual_log.lead(1, epoch=3)
    usual_log.topic("one")
    divergent.lead(2, epoch=3)
    divergent.topic("two")
    node(tmp_path, 1, usual_log.content)
    node(tmp_path, 2, divergent.content)
    tables = reading.of(tmp_path)
    last = [(row["offset"], row["leader_epoch"], row["record"][:14]) for row in tables["records"]][-4:]
    assert len({row["batch_crc"] for row in tables["records"][-4:]}) == 4
    assert [offset for offset, _, _ in last] == [20, 20, 21, 21]
    assert len(survey_of(reading.plan(tmp_path)).branches) == 3


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_who_holds_what_by_brute_force(
    data: Any, tmp_path: Path, reading: Any, node: Any, headers: Any, usual_log: Any
) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    contents = {}
    for number in range(1, data.draw(st.integers(2, 5)) + 1):
        mine = usual_log.copy()
        batch_count = data.draw(st.integers(1, len(mine.batches)))
        mine.batches = mine.batches[:batch_count]
        mine.next_offset = headers(mine.content)[-1].last_offset + 1
        for _ in range(data.draw(st.integers(0, 2))):
            mine.lead(number, epoch=data.draw(st.integers(mine.epoch, mine.epoch + 2)))
            mine.topic(f"topic-{data.draw(st.integers(0, 2))}")
        first = data.draw(st.sampled_from([0, 0, min(3, len(mine.batches) - 1)]))
        contents[number] = b"".join(mine.batches[first:])
        node(folder, number, {headers(contents[number])[0].base_offset: contents[number]})
    tables = reading.of(folder)
    expected: dict[tuple[int, ...], set[int]] = {}
    for number, content in contents.items():
        for header in headers(content):
            batch = (header.base_offset, header.last_offset, header.leader_epoch, header.crc)
            expected.setdefault(batch, set()).add(number)
    seen: dict[tuple[int, ...], set[int]] = {}
    for row in tables["batches"]:
        batch = (row["base_offset"], row["last_offset"], row["leader_epoch"], row["crc"])
        seen.setdefault(batch, set()).add(row["node_id"])
    assert seen == expected
    decoded = [(row["offset"], row["leader_epoch"], row["batch_crc"]) for row in tables["records"]]
    assert len(set(decoded)) == len(decoded)
    found = survey_of(reading.plan(folder))
    for number, content in contents.items():
        (end,) = (end for end in found.ends if found.replicas[end.replica].plan.node_id == number)
        on_path = [found.branches[branch] for branch in found.path(end.branch)]
        mine = headers(content)
        assert end.end_offset == mine[-1].last_offset + 1
        assert on_path[-1].from_offset <= mine[-1].base_offset < on_path[-1].to_offset


def test_a_foreign_replica_is_refused(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    for number in (1, 2):
        node(tmp_path, number, usual_log.content)
    usual_log.topic("foreign")
    node(tmp_path, 3, usual_log.content, cluster_id=OTHER_CLUSTER)
    plan = plan_cluster([str(tmp_path)], open_storage=open_storage, captured_at_ms=5, name="payments")
    assert plan.number == reading.plans(tmp_path)[0].number == 0, "a number is given by a lake alone"
    tables = reading.tables(plan)
    (damage,) = tables["decode_errors"]
    assert (damage["reason"], damage["node_id"]) == ("CLUSTER_MISMATCH", 3)
    assert OTHER_CLUSTER in damage["detail"]
    assert {row["node_id"] for row in tables["batches"]} == {1, 2}
    assert [row["accepted"] for row in sorted(tables["captures"], key=lambda row: row["node_id"])] == [
        True,
        True,
        False,
    ]
    assert "foreign" not in json.dumps(tables["records"])
    expected = plan_cluster(
        [str(tmp_path)], open_storage=open_storage, captured_at_ms=5, name="payments", cluster_id=OTHER_CLUSTER
    )
    assert {row["node_id"] for row in reading.tables(expected)["batches"]} == {3}


def test_a_replica_that_names_another_cluster_twice_is_refused_once(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any
) -> None:
    node(tmp_path, 1, usual_log.content)
    state = QuorumState(0, 1, 1, -1, cluster_id=OTHER_CLUSTER, current_voters=(1,))
    node(tmp_path, 2, usual_log.content, cluster_id=OTHER_CLUSTER, state=state)
    plan = plan_cluster([str(tmp_path)], open_storage=open_storage, captured_at_ms=5, name="payments")
    (damage,) = reading.tables(plan)["decode_errors"]
    refused = {row["node_id"]: row["accepted"] for row in reading.tables(plan)["captures"]}
    assert refused[damage["node_id"]] is False
    assert sorted(refused.values()) == [False, True]
    assert (damage["reason"], damage["file_name"]) == ("CLUSTER_MISMATCH", "meta.properties")


def test_a_path_with_two_clusters_is_two_plans(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    node(tmp_path / "a", 1, usual_log.content)
    usual_log.topic("other")
    node(tmp_path / "b", 1, usual_log.content, cluster_id=OTHER_CLUSTER)
    plans = reading.plans(tmp_path)
    assert sorted(plan.cluster_id for plan in plans) == sorted([plans[0].cluster_id, OTHER_CLUSTER])
    assert [len(plan.replicas) for plan in plans] == [1, 1]


def test_a_replica_without_meta_properties_joins_by_content(
    tmp_path: Path, reading: Any, node: Any, log: Any, usual_log: Any
) -> None:
    node(tmp_path, 1, usual_log.content)
    node(tmp_path, 2, usual_log.content, cluster_id=None)
    plan = reading.plan(tmp_path)
    assert [replica.node_id for replica in plan.replicas] == [None, 1]
    log.topic("of-no-known-replica")
    node(tmp_path, 3, log.content, cluster_id=None)
    assert [len(plan.replicas) for plan in reading.plans(tmp_path)] == [1, 2]


def test_quorum_state_of_another_cluster(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    state = QuorumState(0, 1, 1, -1, cluster_id=OTHER_CLUSTER, current_voters=(1,))
    node(tmp_path, 1, usual_log.content, state=state)
    tables = reading.of(tmp_path)
    assert [row["reason"] for row in tables["decode_errors"]] == ["CLUSTER_MISMATCH"]
    assert tables["batches"] == []


@pytest.mark.parametrize("node_ids", [None, (1,), (3,)])
def test_only_the_tables_and_replicas_that_were_asked_for(
    tmp_path: Path, reading: Any, node: Any, usual_log: Any, node_ids: tuple[int, ...] | None
) -> None:
    """Each node has a snapshot of its own, whose batches belong to it alone."""
    for number in (1, 2):
        files = {snapshot_name(12 + number, 1): snapshot_of(type(usual_log), 1, 4)}
        node(tmp_path, number, usual_log.content, files=files)
    plan = reading.plan(tmp_path)
    records = reading.rows(plan, {"records"}, selection=Selection(node_ids=node_ids))
    assert {name for name, _ in records} == {"records"}
    batches = reading.rows(plan, {"batches"}, selection=Selection(node_ids=node_ids))
    held_by = {(row["node_id"], row["source"]) for _, batch in batches for row in batch.to_pylist()}
    snapshots = {number: snapshot_name(12 + number, 1).removesuffix(".checkpoint") for number in (1, 2)}
    asked = {1, 2} if node_ids is None else {1, 2} & set(node_ids)
    assert held_by == {(number, source) for number in asked for source in ("log", snapshots[number])}


def test_segments_in_the_wrong_names(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    parts = [b"".join(usual_log.batches[start:end]) for start, end in ((0, 5), (5, 10), (10, None))]
    right = reading.of(node(tmp_path / "right", 1, dict(zip((0, 5, 10), parts, strict=True))))
    wrong = reading.of(node(tmp_path / "wrong", 1, dict(zip((10, 0, 5), parts, strict=True))))
    assert wrong["records"] == right["records"]
    assert {row["reason"] for row in wrong["decode_errors"]} == {"BAD_FILE"}
    assert len(wrong["decode_errors"]) == 3
    missing = reading.of(node(tmp_path / "missing", 1, {0: parts[0], 10: parts[2]}))
    assert [(row["reason"], row["base_offset"]) for row in missing["decode_errors"]] == [("GAP", 10)]


@pytest.mark.parametrize(
    ("seen", "checkpoint", "resumed_at", "odd"),
    [
        ([(1, 0), (2, 13)], [(1, 0), (2, 13)], None, None),
        ([(1, 0), (3, 13)], [(1, 0), (2, 13)], None, (2, 13)),
        ([(1, 0)], [(1, 0), (2, 13)], None, (2, 13)),
        ([(0, 0), (1, 1)], [(1, 0)], None, (0, 0)),
        ([(2, 50), (3, 60)], [(1, 0), (2, 13), (3, 60)], None, None),
        ([(2, 50), (3, 60)], [(1, 0), (3, 60)], None, (1, 50)),
        # Cleaned to offset 55, inside the first segment, or to 65.
        ([(2, 50), (3, 60)], [(2, 55), (3, 60)], None, None),
        ([(2, 50), (3, 60)], [(3, 65)], None, None),
        ([(2, 50), (4, 70)], [(2, 55), (5, 70)], None, (4, 70)),
        # Read on from offset 20, in the middle of epoch 2.
        ([(3, 60)], [(1, 0), (2, 13), (3, 60)], 20, None),
        ([(3, 60)], [(1, 0), (2, 13)], 20, (3, 60)),
        ([(3, 20)], [(2, 13), (3, 20)], 20, None),
        ([(3, 60)], [(2, 30), (3, 60)], 20, None),
    ],
)
def test_epochs_of_log_and_checkpoint(seen: Any, checkpoint: Any, resumed_at: Any, odd: Any) -> None:
    assert odd_epoch_start(seen, checkpoint, resumed_at) == odd


def test_a_selection_gives_the_rows_that_match(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    for number in (1, 2):
        node(tmp_path, number, usual_log.content)
    plan = reading.plan(tmp_path)
    everything = reading.tables(plan)
    wanted = Selection(from_offset=5, to_offset=9, record_types=("TOPIC_RECORD",))
    for tables in (["records"], ["records", "batches"]):
        seen = reading.tables(plan, tables=tables, selection=wanted)["records"]
        assert seen == [
            row for row in everything["records"] if 5 <= row["offset"] < 9 and row["record_type"] == "TOPIC_RECORD"
        ]
    of_node = reading.tables(plan, selection=Selection(node_ids=(2,)))
    for name in ("captures", "files", "batches"):
        assert of_node[name] == [row for row in everything[name] if row["node_id"] == 2]
    assert of_node["records"] == everything["records"]


def test_a_plan_survives_json(small_corpus: Path, reading: Any) -> None:
    plan = replace(
        reading.plan(small_corpus / "elr"), defaults=(("min.insync.replicas", "2"),), known_sources=("a", "b")
    )
    assert plan_from_json(plan_to_json(plan)) == plan
    assert reading.tables(plan_from_json(plan_to_json(plan))) == reading.tables(plan)


def test_a_path_without_a_log(tmp_path: Path, reading: Any, node: Any, usual_log: Any) -> None:
    with pytest.raises(InputError, match="no metadata log"):
        reading.plans(tmp_path)
    with pytest.raises(InputError, match="no metadata log"):
        plan_cluster([str(tmp_path)], open_storage=open_storage, captured_at_ms=5, name="payments")
    node(tmp_path / "05", 1, usual_log.content)
    node(tmp_path / "10", 1, usual_log.content)
    with pytest.raises(InputError, match="no capture '7': there are 05, 10"):
        reading.plans(tmp_path, capture="7")
    assert len(reading.plan(tmp_path, capture="10").replicas) == 1
