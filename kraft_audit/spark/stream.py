"""`spark.readStream.format("kraft")`: committed records, each once, in batches that a checkpoint can resume.

The stream returns only rows of `records` that the captures below the path prove committed. A committed record is never
taken back, so that a position per cluster is enough and a restart neither loses nor repeats a row. A record that is not
proven yet comes with the capture that proves it. A reader's position is {cluster id: offset}; a micro-batch ends at the
proven low watermark, or earlier because of a limit.

| option | meaning | default |
| --- | --- | --- |
| maxRecordsPerTrigger | the most offsets of a micro-batch, over all clusters | no limit |
| failOnDataLoss | stop if offsets that were not read yet are gone from the path; false continues after them | true |

path, paths, recordType, dialect, cluster, capture and redactionKeyFile are as for `spark.read`; a pattern is matched
again for each micro-batch, so that new captures are read. Trigger.AvailableNow reads up to what was proven when the
query began.

Spark asks the driver for a micro-batch's end before any worker has work, so the driver surveys: it frames the headers
of the clusters whose files have changed since it last asked, several at once. Workers decode the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kraft_audit.lake.settings import SettingsError
from kraft_audit.lake.staging.staging_tasks import processors
from kraft_audit.spark.path_options import given_paths, location_of
from kraft_audit.spark.worker_errors import without_traceback
from kraft_audit.tables.contract import slices
from kraft_codec.errors import InputError

if TYPE_CHECKING:
    from kraft_audit.capture.plan import ClusterPlan
    from kraft_audit.quorum.quorum_evidence import EpochRun

LIMIT_OPTION = "maxrecordspertrigger"
SURVEYS_A_PROCESSOR: Final = 4
"""Kernels let go of Python's lock, and an object store keeps a survey waiting."""


@dataclass(frozen=True)
class CommittedRange(InputPartition):
    """One task: offsets [from_offset, to_offset) of one cluster; `runs`: (epoch, from, to) of its committed branch."""

    cluster_plan: str
    from_offset: int
    to_offset: int
    runs: tuple[tuple[int, int, int], ...]
    redaction_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Proven:
    """What the captures prove of one cluster: committed offsets [start, end), and the epochs of that branch."""

    cluster_plan: str
    start: int
    end: int
    runs: tuple[tuple[int, int, int], ...]


def check_stream_options(options: Any) -> None:
    """Raises SettingsError, one line."""
    if str(options.get("table", "records")) != "records":
        raise SettingsError('readStream.format("kraft")', "table", options["table"], "records: the others do not grow")
    limit = str(options.get(LIMIT_OPTION, "1"))
    if not limit.isdecimal() or int(limit) < 1:
        raise SettingsError('readStream.format("kraft")', "maxRecordsPerTrigger", limit, "a number from 1 on")
    loss = str(options.get("failondataloss", "true")).lower()
    if loss not in ("true", "false"):
        raise SettingsError('readStream.format("kraft")', "failOnDataLoss", loss, "true or false")


class CommittedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of the given paths. Positions are dicts of plain values, which Spark stores as JSON."""

    def __init__(self, options: dict[str, str]) -> None:
        check_stream_options(options)
        self.options = options
        self._target: dict[str, int] | None = None
        self._proven: dict[str, Proven] = {}
        self._surveyed: dict[str, Proven | None] = {}
        """What the newest survey of each cluster proved, by its plan without the time at which that was made."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's names, here and below
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self.options.get(LIMIT_OPTION)
        return ReadMaxRows(int(limit)) if limit else ReadAllAvailable()

    @without_traceback
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends()

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        return {cluster: proven.end for cluster, proven in self._proven.items()} or None

    @without_traceback
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """The proven end of every cluster, never below `start`, at most as many offsets further as the limit allows."""
        ends = self._ends() if self._target is None else self._target
        remaining = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        reached = dict(start)
        for cluster in sorted(ends):
            begin = start.get(cluster, self._first(cluster))
            step = max(ends[cluster] - begin, 0)
            if remaining is not None:
                step = min(step, remaining)
                remaining -= step
            if step:
                reached[cluster] = begin + step
        return reached

    @without_traceback
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        from kraft_audit.lake.staging.cluster_reading import redaction_key

        if any(cluster not in self._proven or self._proven[cluster].end < end[cluster] for cluster in end):
            self._ends()  # after a restart Spark plans a micro-batch whose end an earlier process had fixed
        key = redaction_key(self.options.get("redactionkeyfile"))
        ranges: list[InputPartition] = []
        for cluster, to_offset in sorted(end.items()):
            from_offset = start.get(cluster, self._first(cluster))
            if from_offset < to_offset:
                proven = self._still_there(cluster, start.get(cluster), to_offset)
                ranges.append(CommittedRange(proven.cluster_plan, from_offset, to_offset, proven.runs, key))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, CommittedRange):
            yield from committed_rows(partition, self.options.get("recordtype"))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the checkpoint holds the position, and nothing is ever written below the path."""

    def _first(self, cluster: str) -> int:
        return self._proven[cluster].start if cluster in self._proven else 0

    def _ends(self) -> dict[str, int]:
        from kraft_audit.spark.planned_paths import plans_below
        from kraft_audit.spark.readers import dialect_of

        wanted = self.options.get("cluster")
        plans = plans_below(given_paths(self.options), dialect_of(self.options), self.options.get("capture"))
        found = {_listing(plan): plan for plan in plans if wanted in (None, plan.cluster_id)}
        changed = [listing for listing in found if listing not in self._surveyed]
        with ThreadPoolExecutor(SURVEYS_A_PROCESSOR * processors()) as pool:
            surveyed = self._surveyed | dict(
                zip(changed, pool.map(prove, [found[listing] for listing in changed]), strict=True)
            )
        self._surveyed = {listing: surveyed[listing] for listing in found}
        for listing, plan in found.items():
            if (proven := surveyed[listing]) is not None:
                self._proven[plan.cluster_id] = proven
        return {cluster: proven.end for cluster, proven in self._proven.items()}

    def _still_there(self, cluster: str, position: int | None, to_offset: int) -> Proven:
        proven = self._proven.get(cluster)
        if proven is None or proven.end < to_offset:
            what = f"cluster {cluster}: offsets to {to_offset} were proven committed before, and are not there now"
            raise InputError(location_of(given_paths(self.options)), what)
        is_strict = self.options.get("failondataloss", "true").lower() == "true"
        if position is not None and position < proven.start and is_strict:
            what = f"cluster {cluster}: offsets {position} to {proven.start} were not read yet and are gone"
            raise InputError(location_of(given_paths(self.options)), f"{what}; failOnDataLoss=false goes on after them")
        return proven


def _listing(plan: ClusterPlan) -> str:
    """What a cluster's files are: the same text means that nothing was written to them."""
    from kraft_audit.capture.plan import plan_to_json

    replicas = tuple(replace(replica, captured_at_ms=0) for replica in plan.replicas)
    return plan_to_json(replace(plan, captured_at_ms=0, replicas=replicas))


def prove(plan: ClusterPlan) -> Proven | None:
    """What a cluster's captures prove committed, on the branch with the highest low; None if they prove nothing."""
    from kraft_audit.capture.plan import plan_to_json
    from kraft_audit.lake.redaction_key import redactor_of
    from kraft_audit.lake.staging.cluster_reading import redaction_key
    from kraft_audit.quorum.rounds import proven_rounds
    from kraft_audit.reading import ReadingSettings, read_survey
    from kraft_codec.storage.opener import StoragePool

    with StoragePool() as pool:
        survey = read_survey(plan, ReadingSettings(pool.open, redactor_of(plan, redaction_key(None))))
    intervals = [
        captured.interval for captured in proven_rounds(survey, plan) if captured.interval.canonical is not None
    ]
    best = max(intervals, key=lambda interval: interval.low, default=None)
    if best is None or best.canonical is None or not best.canonical.runs or best.low <= 0:
        return None
    runs: tuple[EpochRun, ...] = best.canonical.runs
    committed = tuple(
        (run.epoch, run.from_offset, min(run.to_offset, best.low)) for run in runs if run.from_offset < best.low
    )
    return Proven(plan_to_json(plan), committed[0][1], best.low, committed) if committed else None


def committed_rows(part: CommittedRange, record_type: str | None) -> Iterator[pa.RecordBatch]:
    """The rows of the range that lie on the committed branch: another branch may hold other records there."""
    from kraft_audit.capture.plan import Selection
    from kraft_audit.lake.staging.cluster_reading import read_table

    selection = Selection(from_offset=part.from_offset, to_offset=part.to_offset)
    for batch in read_table(part.cluster_plan, "records", record_type, selection, part.redaction_key):
        committed = batch.filter(_is_committed(batch, part))
        if committed.num_rows:
            yield from slices(committed)


def _is_committed(batch: pa.RecordBatch, part: CommittedRange) -> pa.Array:
    offset, epoch = batch.column("offset"), batch.column("leader_epoch")
    is_wanted = pa.array([False] * batch.num_rows, pa.bool_())
    for run_epoch, run_from, run_to in part.runs:
        low, high = max(run_from, part.from_offset), min(run_to, part.to_offset)
        if low < high:
            in_run = pc.and_(pc.greater_equal(offset, low), pc.less(offset, high))
            is_wanted = pc.or_(is_wanted, pc.and_(in_run, pc.equal(epoch, run_epoch)))
    return pc.and_(is_wanted, pc.equal(batch.column("source"), "log"))
