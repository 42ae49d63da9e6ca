"""What earlier captures of a cluster showed that its disks no longer show, kept from plan to plan.

A plan reads the whole log of a cluster again. Beside it the rules need what is not on the disks any more: who held
which batches that were cut off since, what was proven committed, who led epochs and which voter sets there were whose
records Kafka has deleted, and brokers' disks that were captured once. Of captures and watermarks only the rows stay
that rules still ask for (`kept_captures`), so the size follows disks, epochs, voter sets and open findings, not hours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.earlier_survey import EarlierSurvey
from kraft_audit.capture.log_facts import BATCH_COPIES, LOG_RUNS
from kraft_audit.capture.presence import PRESENT
from kraft_audit.capture.survey import Survey
from kraft_audit.losses.replica_disks import ReplicaLog, ReplicaLogs
from kraft_audit.pipeline.history_collector import JUDGED_COLUMNS
from kraft_audit.pipeline.kept_captures import kept_captures, kept_watermarks
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.batch_copies import STILL_HELD, rows_as_held
from kraft_audit.rules.columns.captures import moment_parts
from kraft_audit.rules.columns.log_batches import canonical_log, log_batches
from kraft_audit.rules.rule_model import Finding
from kraft_audit.tables.bronze import BATCHES, CAPTURES, TRUNCATED
from kraft_audit.tables.contract import with_column
from kraft_audit.tables.silver import LEADER_EPOCHS, VOTER_SETS, WATERMARKS

CAPTURES_FORMAT: Final = 4
"""Of the bytes below: another release's may mean something else."""
NAME_BYTES: Final = 16
SURVEY_TABLES: Final = (VOTER_SETS.name, LEADER_EPOCHS.name)
KEPT_SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    CAPTURES.name: CAPTURES.schema,
    WATERMARKS.name: WATERMARKS.schema,
    VOTER_SETS.name: VOTER_SETS.schema,
    LEADER_EPOCHS.name: LEADER_EPOCHS.schema,
    LOG_RUNS.name: LOG_RUNS.schema,
    BATCHES.name: pa.schema([BATCHES.schema.field(name) for name in JUDGED_COLUMNS]),
}
"""The tables that are kept; of `batches` those that were cut off a log, as they were held and as they were missed."""
_FACTS: Final = "facts"


class EarlierCapturesError(ValueError):
    """Kept bytes that are not what was written: missing, cut off, altered, or of another release."""


@dataclass(frozen=True, slots=True)
class EarlierCaptures:
    """`tables` are rows of a history by the name of their table; `replica_logs` what brokers' disks held."""

    survey: EarlierSurvey
    tables: Mapping[str, pa.Table]
    replica_logs: ReplicaLogs = field(default_factory=dict)

    @property
    def capture_count(self) -> int:
        """How many numbers of captures are taken: a later plan numbers its own after them."""
        numbers = self.tables[CAPTURES.name]["capture_number"].to_pylist()
        return max(numbers, default=-1) + 1

    @classmethod
    def of(
        cls,
        history: ClusterHistory,
        survey: Survey,
        open_findings: Sequence[Finding],
        replica_logs: ReplicaLogs,
        earlier: EarlierCaptures | None = None,
    ) -> EarlierCaptures:
        """What to keep of a history that was judged, `earlier` being what it was joined to.

        Args:
            history: the history, with what earlier captures showed.
            survey: that of the plan's own disks.
            open_findings: those whose evidence names captures.
            replica_logs: what brokers' disks hold of partitions with a loss.
            earlier: what stays where the disks show no log at all.
        """
        watermarks = _rows(history, WATERMARKS.name, kept_watermarks(history, open_findings))
        captures = _rows(history, CAPTURES.name, kept_captures(history, open_findings, watermarks.to_pylist()))
        kept_survey = EarlierSurvey.of(survey) if survey.branches or earlier is None else earlier.survey
        tables = {
            CAPTURES.name: captures,
            WATERMARKS.name: watermarks,
            BATCHES.name: _cut_off(history),
            LOG_RUNS.name: _runs_of(history, captures),
            **{name: _rows(history, name) for name in SURVEY_TABLES},
        }
        return cls(kept_survey, tables, replica_logs)

    def to_bytes(self) -> bytes:
        """Parquet of one row: each table as a list of its rows. The same rows give the same bytes."""
        import pyarrow.parquet as pq  # where captures are kept: `check` starts without it

        facts = {
            "format": CAPTURES_FORMAT,
            "survey": self.survey.as_json(),
            "replica_logs": _log_rows(self.replica_logs),
        }
        columns = {_FACTS: pa.array([json.dumps(facts, separators=(",", ":"))])}
        for name, schema in KEPT_SCHEMAS.items():
            columns[name] = _as_list(self.tables[name].select(schema.names).cast(schema))
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink, compression="zstd", write_statistics=False, store_schema=False)
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, content: bytes) -> EarlierCaptures:
        """What `to_bytes` wrote. Raises EarlierCapturesError, which says why it is of no use."""
        import pyarrow.parquet as pq

        try:
            table = pq.ParquetFile(pa.BufferReader(content), arrow_extensions_enabled=False).read(use_threads=False)
            facts = json.loads(table[_FACTS][0].as_py())
            if facts["format"] != CAPTURES_FORMAT:
                raise EarlierCapturesError("another release kept it")
            tables = {name: _as_table(table[name], schema) for name, schema in KEPT_SCHEMAS.items()}
            return cls(EarlierSurvey.from_json(facts["survey"]), tables, _logs_of(facts["replica_logs"]))
        except EarlierCapturesError:
            raise
        except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, OverflowError) as error:
            raise EarlierCapturesError(f"it cannot be read: {type(error).__name__}") from None


def name_of(content: bytes) -> str:
    """The name under which bytes are kept: their hash."""
    return hashlib.blake2b(content, digest_size=NAME_BYTES).hexdigest()


def _rows(history: ClusterHistory, name: str, rows: Iterable[int] | None = None) -> pa.Table:
    """A table of a history in the columns of its contract, or some of its rows."""
    table = history.chunked_table(name)
    table = table if rows is None else table.take(pa.array(sorted(rows), pa.int64()))
    return table.select(KEPT_SCHEMAS[name].names).cast(KEPT_SCHEMAS[name])


def _runs_of(history: ClusterHistory, captures: pa.Table) -> pa.Table:
    """What was held in some captures."""
    runs = _rows(history, LOG_RUNS.name)
    return runs.filter(pc.is_in(runs["capture_number"], captures["capture_number"]))


def _cut_off(history: ClusterHistory) -> pa.Table:
    """The batches that a replica held and lost, as it held them and as a later capture missed them.

    Those before the beginning of the canonical log are not asked for any more.
    """
    batches, log, schema = log_batches(history), canonical_log(history), KEPT_SCHEMAS[BATCHES.name]
    is_asked = batches.last_offset >= log.start_offset
    held = batches.as_held(batches.holders.mask(batches.holders.until != STILL_HELD, len(batches.row)) & is_asked)
    places = np.flatnonzero(held.until != STILL_HELD)
    table, copies = history.chunked_table(BATCHES.name), history.chunked_table(BATCH_COPIES.name)
    rows = rows_as_held(table, copies, held.row[places], held.copy[places]).select(schema.names).cast(schema)
    parts = []
    for status, moments in ((PRESENT, held.since[places]), (TRUNCATED, held.until[places])):
        times_ms, numbers = moment_parts(moments)
        columns = {"status": pa.repeat(status, len(places)), "captured_at_ms": times_ms, "capture_number": numbers}
        part = rows
        for name, values in columns.items():
            part = with_column(part, name, pa.array(values).cast(schema.field(name).type))
        parts.append(part)
    return pa.concat_tables(parts)


def _as_list(table: pa.Table) -> pa.Array:
    """A table as one value: the list of its rows."""
    batch = table.combine_chunks()
    columns = [column.combine_chunks() for column in batch.itercolumns()]
    rows = pa.StructArray.from_arrays(columns, fields=list(table.schema))
    return pa.ListArray.from_arrays(pa.array([0, table.num_rows], pa.int32()), rows)


def _as_table(column: pa.ChunkedArray, schema: pa.Schema) -> pa.Table:
    rows = column.combine_chunks().flatten()
    columns = dict(zip((each.name for each in rows.type), rows.flatten(), strict=True))
    table = pa.table({name: columns[name] for name in schema.names}).cast(schema)
    table.validate(full=True)
    return table


def _log_rows(logs: ReplicaLogs) -> list[list[Any]]:
    """What was read of brokers' disks as JSON has it: topic, partition and each log, in order."""
    return [[*place, [asdict(log) for log in logs[place]]] for place in sorted(logs)]


def _logs_of(rows: Sequence[Sequence[Any]]) -> ReplicaLogs:
    return {(topic, partition): tuple(map(_log_of, logs)) for topic, partition, logs in rows}


def _log_of(fields: Mapping[str, Any]) -> ReplicaLog:
    return ReplicaLog(**{**fields, "epochs": tuple((epoch, start) for epoch, start in fields["epochs"])})
