"""Going on from a kept survey: the survey, and the rows, of a reading of everything, from new bytes and lag alone.

The disks are those of simulated clusters of every dialect, hour by hour: logs that lag, stand still, part, are cut and
grow again, snapshots, and segments that are deleted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from kraft_audit.capture.branches import Branch
from kraft_audit.capture.decoded_records import ControlRecord
from kraft_audit.capture.plan import ClusterPlan, ReplicaPlan
from kraft_audit.capture.resumed.kept_log import KeptLog, LogMark, NotResumableError
from kraft_audit.capture.resumed.kept_survey import KeptCopy, KeptSnapshot, KeptSurvey
from kraft_audit.capture.survey import BranchEpoch, Survey
from kraft_audit.capture.torn_copies import NEW_WALKED_BYTES
from kraft_audit.reading import BRONZE_TABLES, ClusterReading, ReadingSettings
from kraft_audit.tables.kept_parts import KeptPartsError
from kraft_codec.records.batch import HEADER_BYTES
from kraft_codec.records.redaction import Redactor
from tests.builders.damaged_batches import with_right_crcs
from tests.builders.hourly_disks import LOG_DIR, CountedBytes, HourlyDisks, PlannedLake, dialect_of, log_batches
from tests.builders.logs import Log
from tests.builders.memory_lake import KEY

EPOCH_FIELDS: Final = ("epoch", "from_offset", "to_offset", "timestamp_ms", "first_batch_end", "data_from")
Rows = dict[str, list[dict[str, Any]]]
HEADERS_READ: Final = 4
"""Headers of a segment: where it begins, its last known batch, and those before it that say how the log goes on."""
ELECTIONS_AN_HOUR: Final = 8
WHYS: Final = frozenset(
    {"it is another disk", "its log was empty", "the last batch that was read is not there any more"}
)
"""Why an hour reads everything: a disk was replaced, its log begins, or was cut or cleaned past what was read."""
RUNS: Final = (
    ("random", 3, False),
    ("random", 1, True),
    ("random-raft", 3, False),
    ("random-storm", 3, True),
    ("random-upgrade", 3, False),
    ("random-beyond", 3, True),
    ("random-kip856", 1, True),
    ("random-kip642", 2, False),
)
"""Kind of run, seed, and whether segments are deleted."""


def comparable(survey: Survey) -> dict[str, Any]:
    """A survey without the numbers that its branches happen to have."""
    names = {branch.number: (branch.from_offset, branch.first_crc) for branch in survey.branches}
    places = {replica.number: (replica.plan.root, replica.plan.path) for replica in survey.replicas}

    def control(record: ControlRecord) -> Any:
        fields = json.dumps(record.fields, default=bytes.hex, sort_keys=True)
        return record.batch_offset, record.offset, record.leader_epoch, record.timestamp_ms, record.name, fields

    return {
        "branches": sorted(
            (
                names[branch.number],
                None if branch.parent is None else names[branch.parent],
                (branch.to_offset, branch.last_epoch),
                (branch.epochs, branch.gaps),
            )
            for branch in survey.branches
        ),
        "ends": {
            places[end.replica]: (None if end.branch is None else names[end.branch], end.end_offset, end.last_epoch)
            for end in survey.ends
        },
        "epochs": sorted(
            (names[run.branch], *(getattr(run, name) or -1 for name in EPOCH_FIELDS)) for run in survey.epochs
        ),
        "controls": sorted((names[branch], control(record)) for branch, record in survey.controls),
        "snapshots": [
            (
                snapshot.source,
                snapshot.end_offset,
                snapshot.epoch,
                [places[number] for number in snapshot.replicas],
                [(record.offset, record.name, record.fields.get("voters")) for record in snapshot.controls],
                [[places[number] for number in numbers] for numbers in snapshot.versions],
            )
            for snapshot in survey.snapshots
        ],
        "unsound": sorted(survey.unsound_offsets),
        "altered": sorted(
            (
                (run.from_offset, run.to_offset, run.epoch, run.is_tied, run.rejoins),
                [(names[branch], [places[number] for number in numbers]) for branch, numbers in run.versions],
            )
            for run in survey.altered
        ),
        "logs": {
            places[replica.number]: None
            if replica.log is None
            else (replica.log.end_offset, replica.log.last_epoch, replica.log.last_crc, replica.log.last_timestamp_ms)
            for replica in survey.replicas
        },
        "states": {places[replica.number]: (replica.quorum_state, replica.snapshots) for replica in survey.replicas},
    }


@dataclass(frozen=True)
class Expected:
    """What a plan must give: the rows of what is new, and of a whole reading the survey, records and times of logs."""

    rows: Rows
    survey: dict[str, Any]
    records: list[Any]
    last_times_ms: list[int | None]


Erasure = tuple[type, str]


class Hours:
    """A lake that reads some disks hour by hour, as far as it can from what it kept.

    Each of `erasures` is a field that is left out of what was kept; those that some hour notices are `noticed`.
    """

    def __init__(self, reading: Any, disks: Any, erasures: Iterable[Erasure] = ()) -> None:
        self.erasures = frozenset(erasures)
        self.noticed: set[Erasure] = set()
        self.disks = disks
        self.lake = PlannedLake(reading, dialect_of(disks.kind))
        self.earlier: KeptSurvey | None = None
        self.redactor = Redactor(KEY)
        self.whys: Counter[str] = Counter()
        self.resumed = self.record_count = 0

    def settings(self, **more: Any) -> ReadingSettings:
        redactor = Redactor(KEY, self.redactor.short_values())
        return ReadingSettings(
            **{"open_storage": CountedBytes().open, "redactor": redactor, "clock_ms": lambda: 1} | more
        )

    def read(self) -> None:
        """One plan: its survey is that of a whole reading, its rows are those of a reading of what is new."""
        plan = self.lake.next_plan(self.disks.root)
        if plan is None:
            return
        rows = self.rows_of(ClusterReading(plan, self.settings(known=self.lake), keeps_records=False))
        with ClusterReading(plan.whole(), self.settings()) as whole:
            earlier = whole.kept_survey()
            times_ms = [log.last_timestamp_ms for log in earlier.logs]
            expected = Expected(rows, comparable(whole.survey), records_of(whole, 0), times_ms)
        if self.earlier is not None and (resumed := self.resume(plan, expected)) is not None:
            earlier = resumed
        self.earlier = KeptSurvey.from_bytes(earlier.to_bytes())
        assert self.earlier == earlier
        assert self.earlier.to_bytes() == earlier.to_bytes()
        self.lake.take(rows)

    def resume(self, plan: ClusterPlan, expected: Expected) -> KeptSurvey | None:
        """What is kept after going on from what was kept before; None where that cannot be."""
        assert self.earlier is not None
        try:
            earlier = self.gone_on(plan, self.earlier, expected)
        except NotResumableError as error:
            self.whys[str(error).rpartition(": ")[2]] += 1
            return None
        self.resumed += 1
        for erasure in self.erasures - self.noticed:
            erased = without(self.earlier, *erasure)
            try:
                if erased != self.earlier:
                    self.gone_on(plan, erased, expected)
            except (AssertionError, NotResumableError, LookupError, TypeError, ValueError):
                self.noticed.add(erasure)
        return earlier

    def gone_on(self, plan: ClusterPlan, earlier: KeptSurvey, expected: Expected) -> KeptSurvey:
        counted = CountedBytes()
        with ClusterReading(
            plan, self.settings(open_storage=counted.open, known=self.lake), earlier=earlier
        ) as reading:
            found: Rows = {}
            for name, batch in reading.begin():
                found.setdefault(name, []).extend(batch.to_pylist())
            assert comparable(reading.survey) == expected.survey
            assert in_order(found) == in_order(expected.rows)
            from_offset = reading.records_from(furthest(reading))
            records = records_of(reading, from_offset)
            assert records == [each for each in expected.records if each[1] >= from_offset]
            self.record_count += len(records)
            assert [log.last_timestamp_ms for log in reading.kept_survey().logs] == expected.last_times_ms
            segments = sum(file.kind == "segment" for each in (*plan.replicas, *plan.context) for file in each.files)
            headers = HEADERS_READ * HEADER_BYTES * segments
            # Whether a copy is torn shows near its end, and where an epoch begins in what is new.
            elections = ELECTIONS_AN_HOUR * NEW_WALKED_BYTES * len(plan.replicas)
            torn = min(new_bytes(plan), elections)
            assert counted.total <= new_bytes(plan) + torn + lag_bytes(earlier, plan) + headers
            return reading.kept_survey()

    @staticmethod
    def rows_of(reading: ClusterReading) -> Rows:
        found: Rows = {}
        with reading:
            for name, batch in reading.bronze(BRONZE_TABLES):
                found.setdefault(name, []).extend(batch.to_pylist())
        return found


def furthest(reading: ClusterReading) -> list[int]:
    """The path to the furthest log end."""
    end = max(reading.survey.ends, key=lambda each: (each.last_epoch, each.end_offset))
    return reading.survey.path(end.branch)


def records_of(reading: ClusterReading, from_offset: int) -> list[Any]:
    """(type, offset, epoch) of the records on the way to the furthest log end."""
    found = []
    for window in reading.windows(furthest(reading), from_offset):
        for name, batch in window.records.items():
            columns = (batch.column(column).to_pylist() for column in ("offset", "leader_epoch"))
            found += [(name, *values) for values in zip(*columns, strict=True)]
    return sorted(found)


def in_order(rows: Rows) -> dict[str, list[str]]:
    return {name: sorted(json.dumps(row, default=str) for row in found) for name, found in rows.items() if found}


def has_new_records(replica: ReplicaPlan) -> bool:
    """Whether any segment of a replica has grown, or is new."""
    segments = [file for file in replica.files if file.kind == "segment"]
    return any(file.earlier is None or file.earlier.scanned_to < file.size_bytes for file in segments)


def new_bytes(plan: ClusterPlan) -> int:
    """Bytes of segments that no plan has read."""
    return sum(
        file.size_bytes - (file.earlier.scanned_to if file.earlier else 0)
        for replica in plan.replicas
        for file in replica.files
        if file.kind == "segment"
    )


def lag_bytes(earlier: KeptSurvey, plan: ClusterPlan) -> int:
    """Bytes of batches that were known and begin after the shortest log with changes, in all logs."""
    changed = {(replica.root, replica.path) for replica in plan.replicas if has_new_records(replica)}
    from_offset = min((log.end_offset for log in earlier.logs if log.place in changed), default=0)
    return sum(
        len(content)
        for log in earlier.logs
        for base_offset, content in log_batches(Path(log.root) / log.path / LOG_DIR)
        if from_offset <= base_offset < log.end_offset
    )


def hours(reading: Any, kind: str, seed: int, folder: Path, **more: Any) -> Hours:
    """Eight hours: a part of the records of each capture, then all of them."""
    found = Hours(reading, HourlyDisks(kind, seed, folder / "disks"))
    for number in range(2 * len(found.disks.captures)):
        found.disks.pass_hour(number // 2, share=0.7 if number % 2 == 0 else 1.0, **more)
        found.read()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed", "deletes"), RUNS)
def test_going_on_gives_what_a_whole_reading_gives(
    reading: Any, kind: str, seed: int, deletes: bool, tmp_path: Path
) -> None:
    found = hours(reading, kind, seed, tmp_path, deletes=deletes)
    assert found.resumed > 0
    assert found.record_count > 0
    assert found.whys.keys() <= WHYS


FIELDS: Final = frozenset(
    (kind, field.name)
    for kind in (KeptSurvey, KeptLog, LogMark, Branch, BranchEpoch, ControlRecord, KeptSnapshot, KeptCopy)
    for field in fields(kind)
    if field.name not in ("is_overflowing", "is_lossy", "earlier_logs") and (kind, field.name) != (Branch, "last_epoch")
)
"""Every field of what is kept, but for two that only say that it cannot be gone on from; the last epoch of a branch
follows from its epochs, and `test_earlier_log.py` leaves out those of earlier logs."""


def without(value: Any, kind: type, name: str) -> Any:
    """A value in which a field of all objects of a kind is empty or zero."""
    if isinstance(value, tuple):
        return tuple(without(each, kind, name) for each in value)
    if isinstance(value, list):
        return [without(each, kind, name) for each in value]
    if not is_dataclass(value):
        return value
    held = {field.name: without(getattr(value, field.name), kind, name) for field in fields(value)}
    if isinstance(value, kind) and held[name] is not None:
        held[name] = None if is_dataclass(held[name]) else type(held[name])()
    return type(value)(**held)


def changed(batch: bytes, place: int) -> bytes:
    """The batch with another byte at a place, and a CRC that fits."""
    content = bytearray(batch)
    content[place] ^= 0x41
    return bytes(with_right_crcs(content))


@dataclass
class WrittenDisks:
    """Three disks in a row of hours: one holds altered batches, a batch is missing in all, and a control batch that
    cannot be decoded; then two of them part.
    """

    root: Path
    node: Any
    kind: str = "random"

    def __post_init__(self) -> None:
        self.log = Log()
        self.log.lead(1, epoch=1)
        for number in range(6):
            self.log.topic(f"first-{number}")
        self.log.lead(2, epoch=2)
        self.log.batches[-1] = changed(self.log.batches[-1], HEADER_BYTES)
        for number in range(4):
            self.log.topic(f"second-{number}")
        del self.log.batches[4]
        self.parted = self.log.copy()

    def pass_hour(self) -> None:
        for log, epoch in ((self.log, 3), (self.parted, 4)):
            if log.epoch < epoch:
                log.lead(epoch, epoch=epoch)
            log.topic(f"{epoch}-{len(log.batches)}")
            log.noop()
        self.node(self.root, 1, self.log.content)
        self.node(self.root, 2, self.parted.content)
        altered = [changed(batch, -4) if number == 2 else batch for number, batch in enumerate(self.log.batches[:-1])]
        self.node(self.root, 3, b"".join(altered))


def test_going_on_past_damage(reading: Any, node: Any, tmp_path: Path) -> None:
    found = Hours(reading, WrittenDisks(tmp_path / "disks", node))
    for _ in range(3):
        found.disks.pass_hour()
        found.read()
    assert found.resumed == 2
    assert found.earlier is not None
    assert found.earlier.unsound_offsets
    assert found.earlier.rejoins
    assert any(branch.gaps for branch in found.earlier.branches)


@pytest.mark.slow
def test_no_field_can_be_left_out(reading: Any, node: Any, tmp_path: Path) -> None:
    """Each is erased wherever it stands: some hour of some cluster must notice."""
    first = Hours(reading, WrittenDisks(tmp_path / "written", node), FIELDS)
    for _ in range(4):
        first.disks.pass_hour()
        first.read()
    left = FIELDS - first.noticed
    for kind, seed in (("random-raft", 3), ("random-kip856", 1), ("random-storm", 3)):
        disks = HourlyDisks(kind, seed, tmp_path / f"{kind}-{seed}" / "disks")
        found = Hours(reading, disks, left)
        for number in range(2 * len(disks.captures)):
            disks.pass_hour(number // 2, share=0.7 if number % 2 == 0 else 1.0)
            found.read()
        left = left - found.noticed
    assert {(kind.__name__, name) for kind, name in left} == set()


def test_kept_bytes_that_are_damaged_are_not_taken(reading: Any, tmp_path: Path, node: Any, usual_log: Any) -> None:
    node(tmp_path, 1, usual_log.content)
    settings = ReadingSettings(CountedBytes().open, Redactor(KEY))
    with ClusterReading(reading.plan(tmp_path), settings) as whole:
        content = whole.kept_survey().to_bytes()
    for damaged in (b"", content[:-1], content[:20], b"x" * len(content), (1 << 50).to_bytes(8, "big") + content[8:]):
        with pytest.raises(KeptPartsError):
            KeptSurvey.from_bytes(damaged)
