"""A history that is put to disk and read back by parts is the same rows, of which the rules say the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kraft_audit.capture.bronze_rows import damage_batch
from kraft_audit.capture.path_plans import plan_path
from kraft_audit.capture.replica import replica_columns
from kraft_audit.capture.scanner import DamageRow
from kraft_audit.reading import ClusterReading, ReadingSettings
from kraft_audit.rules.carried.carrying import Carrying, carry
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns import partition_parts
from kraft_audit.rules.columns.partition_parts import PartitionParts, TableOnDisk
from kraft_audit.rules.history_collector import HistoryCollector
from kraft_audit.rules.judging import check
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import DeferredEvidence, Evidence, Finding, Status
from kraft_audit.tables.silver import PARTITION_CHANGES
from kraft_codec.errors import Reason
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.histories import HistoryBuilder


def large(build: HistoryBuilder) -> HistoryBuilder:
    """Partitions of many topics in every kind of trouble."""
    build.three_nodes().brokers(11, 12, 13)
    for number in range(40):
        name, topic_id = f"t{number % 20}-{number // 20}", f"id-{number % 20}"
        unclean = {"isr": [13], "leader": 13, "leader_epoch": 1, "leader_recovery_state": "RECOVERING"}
        build.partition(name, 10 + number, "created", topic_id=topic_id)
        build.partition(name, 60 + number, isr=[11], elr=[12] if number % 3 else [], topic_id=topic_id)
        if number % 4 == 0:
            build.partition(name, 110 + number, "unclean_election", **unclean, topic_id=topic_id)
        elif number % 4 == 1:
            build.partition(name, 110 + number, "fenced", isr=[], leader=-1, elr=[11], topic_id=topic_id)
    return build


def by_parts(history: ClusterHistory, rows_a_batch: int) -> ClusterHistory:
    table = history.table(PARTITION_CHANGES.name)
    partition_parts = PartitionParts()
    for batch in table.to_batches(max_chunksize=rows_a_batch):
        partition_parts.add(batch)
    empty = {PARTITION_CHANGES.name: PARTITION_CHANGES.schema.empty_table()}
    return replace(history, tables={**history.tables, **empty}, parts=partition_parts, _shared={})


def in_order(history: ClusterHistory) -> ClusterHistory:
    """With the partitions' rows as the replay gives them, by offset."""
    table = history.table(PARTITION_CHANGES.name).sort_by("from_offset")
    return replace(history, tables={**history.tables, PARTITION_CHANGES.name: table}, _shared={})


def counted_findings(findings: list[Finding]) -> Counter[str]:
    return Counter(
        f"{finding.rule} {finding.status} {finding.subject} {finding.from_offset} {finding.to_offset} "
        f"{finding.summary} {tuple(finding.evidence)}"
        for finding in findings
        if finding.status is not Status.CLEAR
    )


@pytest.mark.parametrize(("rows_a_batch", "share_bytes"), [(1, 1 << 20), (7, 1 << 20), (1000, 1 << 20), (1000, 300)])
def test_parts_say_what_the_whole_says(
    build: HistoryBuilder, rows_a_batch: int, share_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_parts, "PENDING_BYTES_MAX", 2_000)
    monkeypatch.setattr(partition_parts, "SHARE_BYTES_MAX", share_bytes)
    history = in_order(large(build).history())
    expected = counted_findings(list(check(history)))
    assert len({text.split()[0] for text in expected if text.startswith("KP")}) > 3
    assert counted_findings(list(check(by_parts(history, rows_a_batch)))) == expected


def test_every_row_is_in_one_part_and_a_topic_in_one(build: HistoryBuilder) -> None:
    history = in_order(large(build).history())
    whole = history.table(PARTITION_CHANGES.name)
    remaining = by_parts(history, 3).parts
    assert remaining is not None
    found = list(remaining.tables())
    assert [table.num_rows for table in remaining.tables()] == [table.num_rows for table in found], (
        "it can be read twice"
    )
    topics = [set(table.column("topic_id").to_pylist()) for table in found]
    assert sum(map(len, topics)) == len(set().union(*topics)) == 20
    for table in found:
        offsets = table.column("from_offset").to_pylist()
        assert offsets == sorted(offsets)
    key = "from_offset"
    read = whole.select(partition_parts.PARTS_SCHEMA.names)
    assert pa.concat_tables(found).sort_by(key).to_pylist() == read.sort_by(key).to_pylist(), "columns that rules read"


def test_a_large_part_is_read_by_shares(build: HistoryBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_parts, "PART_COUNT", 1)
    history = in_order(large(build).history())
    stored = by_parts(history, 3).parts
    assert stored is not None
    assert len(list(stored.tables())) == 1
    monkeypatch.setattr(partition_parts, "SHARE_BYTES_MAX", 500)
    shares = list(stored.tables())
    assert len(shares) > 1
    topics = [set(share.column("topic_id").to_pylist()) for share in shares]
    assert sum(map(len, topics)) == len(set().union(*topics)) == 20
    assert sum(share.num_rows for share in shares) == history.table(PARTITION_CHANGES.name).num_rows


def test_a_history_of_no_partition_has_no_part(build: HistoryBuilder) -> None:
    parted = by_parts(build.three_nodes().history(), 5)
    assert parted.parts is not None
    assert list(parted.parts.tables()) == []
    assert counted_findings(list(check(parted))) == counted_findings(list(check(build.history())))


def test_evidence_that_is_reported_late_is_evidence() -> None:
    calls: list[int] = []

    def make(number: int) -> tuple[Evidence, ...]:
        calls.append(number)
        return (Evidence("a"), Evidence("b"))

    late = DeferredEvidence(make, 7)
    assert calls == []
    assert (len(late), late[0], late[1:]) == (2, Evidence("a"), (Evidence("b"),))
    assert late == (Evidence("a"), Evidence("b"))
    assert late != (Evidence("a"),)
    assert late != 3
    assert hash(late) == hash(tuple(late))
    assert calls == [7], "once"


@pytest.mark.parametrize("rule", [each.id for each in rules().values() if PARTITION_CHANGES.name in each.needs])
def test_a_rule_alone_says_of_parts_what_it_says_of_the_whole(build: HistoryBuilder, rule: str) -> None:
    """Then nothing has been derived of the other tables before the first part."""
    history = in_order(large(build).history())
    expected = counted_findings(list(check(replace(history, _shared={}), only=[rule])))
    assert counted_findings(list(check(by_parts(history, 7), only=[rule]))) == expected


def test_what_is_said_of_the_whole_cluster_is_said_of_one_part(build: HistoryBuilder) -> None:
    large(build)
    for broker in (11, 12, 13):
        build.broker(broker, at=2, rack="a")
    parted = by_parts(in_order(build.history()), 7)
    assert parted.parts is not None
    assert len(list(parted.parts.tables())) > 1
    assert [(finding.status, finding.subject) for finding in check(parted, only=["KP009"])] == [
        (Status.RAISED, "cluster")
    ]


def test_of_a_broker_that_none_registers_the_first_rows_are_enough(build: HistoryBuilder) -> None:
    """Else a log without its registrations would be held whole: each of its rows names such a broker."""
    build.three_nodes().brokers(11, 12)
    for number in range(60):
        build.partition(f"t{number}-0", 10 + number, "created", topic_id=f"id-{number}", replicas=[11, 12, 13, 14])
    history = in_order(build.history())
    expected = counted_findings(list(check(history, only=["KP013"])))
    assert len(expected) == 2
    parted = by_parts(history, 7)
    assert counted_findings(list(check(parted, only=["KP013"]))) == expected
    needed = rules()["KP013"].across
    assert needed is not None
    counts = [int(needed(part).sum()) for part in parted.histories_by_part()]
    assert len(counts) > 5
    assert set(counts) == {1}


def test_topics_of_one_name_are_known_by_their_ids_in_each_part(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13)
    for number in range(30):
        name, offset = f"t{number % 10}", 10 + 10 * number
        build.add("topic_changes", topic=name, topic_id=f"id-{number}", from_offset=offset, exists=True)
        created = {"exists": True, "isr": [11, 12, 13], "leader": 11}
        build.partition(f"{name}-0", offset + 1, "created", topic_id=f"id-{number}", **created)
        build.partition(f"{name}-0", offset + 2, isr=[], leader=-1, topic_id=f"id-{number}")
        if number < 20:
            build.partition(f"{name}-0", offset + 3, exists=False, topic_id=f"id-{number}")
    history = in_order(build.history())
    expected = {each.finding_id for each in check(history, only=["KP002"])}
    assert len(expected) == 30
    assert {each.finding_id for each in check(by_parts(history, 7), only=["KP002"])} == expected


def test_a_rule_that_lacks_a_table_says_so_once(build: HistoryBuilder) -> None:
    large(build).missing = {"broker_changes"}
    (found,) = check(by_parts(in_order(build.history()), 7), only=["KP001"])
    assert (found.status, found.reason) == (Status.UNDECIDED, "not captured: broker_changes")


def test_what_was_held_before_there_was_too_much_goes_to_disk_too(build: HistoryBuilder, small_corpus: Path) -> None:
    table = in_order(large(build).history()).table(PARTITION_CHANGES.name)
    first, *others = table.to_batches(max_chunksize=20)
    (plan,) = plan_path(str(small_corpus / "mini-4.4.0"), open_storage=open_storage, captured_at_ms=1)
    reading = ClusterReading(plan, ReadingSettings(open_storage, Redactor(bytes(32))))
    collector = HistoryCollector(reading, partition_bytes_max=first.nbytes)
    collector.take_rows(PARTITION_CHANGES.name, first)
    assert collector.history().tables[PARTITION_CHANGES.name].num_rows == 20
    for batch in others:
        collector.take_rows(PARTITION_CHANGES.name, batch)
    history = collector.history()
    assert PARTITION_CHANGES.name not in history.tables
    assert history.parts is not None
    read = pa.concat_tables(history.parts.tables()).sort_by("from_offset")
    assert read.to_pylist() == table.select(partition_parts.PARTS_SCHEMA.names).to_pylist()


def test_damage_that_was_let_go_is_undecided(small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(TableOnDisk, "add", full)
    (plan,) = plan_path(str(small_corpus / "mini-4.4.0"), open_storage=open_storage, captured_at_ms=1)
    reading = ClusterReading(plan, ReadingSettings(open_storage, Redactor(bytes(32))))
    row = DamageRow("a.log", 7, 1, None, Reason.BAD_CRC, "seen", "cuts the log there")
    damage = damage_batch([row], replica_columns(plan.cluster_id, plan.replicas[0], plan.number))
    collector = HistoryCollector(reading, history_bytes_max=1)
    collector.take_rows("decode_errors", damage)
    collector.surveyed(reading.survey, {"voter_sets": [], "watermarks": [], "leader_epochs": []})
    (found,) = check(collector.history(), only=["KQ018"])
    assert (found.status, found.reason) == (Status.UNDECIDED, "not captured: decode_errors")


@pytest.mark.parametrize("brokers_return", [False, True])
def test_parts_leave_the_rows_that_the_whole_leaves(build: HistoryBuilder, *, brokers_return: bool) -> None:
    """Also of a broker that fell out of partitions of several topics: its case began with the first of them."""
    large(build)
    for number in range(20):
        falls = {"isr": [11, 12], "cause_broker_id": 13, "topic_id": f"id-{number}"}
        build.partition(f"t{number}-0", 210 + number, "unclean_shutdown", **falls)
    build.broker(13, at=230)
    if brokers_return:
        build.partition("t3-0", 240, isr=[11, 12, 13], topic_id="id-3")
    history = in_order(build.history())
    whole = carry(history, list(check(history)), 250)
    assert any(finding.rule == "KP008" for finding in check(history))
    parted, carrying = by_parts(history, 7), Carrying()
    carried = carrying.rows(parted, check(parted, observer=carrying), 250)
    assert carried.episodes == whole.episodes
    for name, table in whole.tables.items():
        rows = Counter(map(repr, carried.tables[name].select(table.column_names).to_pylist()))
        assert rows == Counter(map(repr, table.to_pylist())), name
