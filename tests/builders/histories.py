"""Small histories made by hand: each test says only what matters to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from kraft_audit.capture.altered_batches import AlteredBatches
from kraft_audit.capture.log_facts import LOG_RUNS
from kraft_audit.capture.plan import ONLY_HISTORY, HistoryOf, identity_of
from kraft_audit.rules.cluster_history import (
    CONTRACTS,
    INPUTS,
    ClusterHistory,
    Contradiction,
    OperatorWord,
    SnapshotCheck,
)
from kraft_audit.rules.judging import check_rule
from kraft_audit.rules.registry import rules
from kraft_audit.rules.rule_model import Finding, Status
from kraft_audit.tables.bronze import BATCHES, CAPTURES
from kraft_audit.tables.contract import build_rows
from kraft_codec.schemas import Dialect

CLUSTER_ID = "SPA6Lw-19VaaSAxl6jMkhw"
T0 = 1_795_217_000_000
"""When hand-made logs begin; offset n was appended n seconds later."""


def directory(node_id: int, generation: int = 0) -> str:
    return f"dir{generation}-of-node-{node_id}".ljust(22, "x")


def _default(column: Any) -> Any:
    if column.nullable:
        return None
    if pa.types.is_list(column.type):
        return []
    if pa.types.is_boolean(column.type):
        return False
    if pa.types.is_string(column.type):
        return ""
    return 0


def _moment(row: dict[str, Any]) -> tuple[int, int]:
    return row["captured_at_ms"], row["capture_number"]


class HistoryBuilder:
    """Rows by table; what a test leaves out is zero, empty or null."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.dialect = Dialect.KIP853
        self.contradictions: tuple[Contradiction, ...] = ()
        self.snapshot_checks: tuple[SnapshotCheck, ...] = ()
        self.is_complete = True
        self.states_from = 0
        self.undecoded_from: int | None = None
        self.gaps: tuple[tuple[int, int], ...] = ()
        self.missing: set[str] = set()
        self.gone: frozenset[int] = frozenset()
        self.is_running = False
        self.written_ms: dict[tuple[str, str], int] = {}
        self.copied_ms: dict[tuple[str, str], int] = {}
        self.altered: tuple[AlteredBatches, ...] = ()
        self.history_of: HistoryOf = ONLY_HISTORY
        self._partitions: dict[tuple[str, int], dict[str, Any]] = {}

    def add(self, table: str, **values: Any) -> HistoryBuilder:
        self.rows[table].append({"cluster_id": CLUSTER_ID, **values})
        return self

    def history(self) -> ClusterHistory:
        tables = {name: self._table(name, self.rows[name]) for name in INPUTS if name not in self.missing}
        if not self.rows[LOG_RUNS.name] and not self.missing & {CAPTURES.name, BATCHES.name}:
            tables[LOG_RUNS.name] = self._table(LOG_RUNS.name, list(self._log_runs(tables)))
        return ClusterHistory(
            CLUSTER_ID,
            tables,
            self.dialect,
            {},
            self.contradictions,
            self.snapshot_checks,
            self.is_complete,
            states_from=self.states_from,
            undecoded_from=self.undecoded_from,
            gaps=self.gaps,
            operator=OperatorWord(self.is_running, self.gone),
            written_ms=self.written_ms,
            copied_ms=self.copied_ms,
            altered=self.altered,
            history_of=self.history_of,
        )

    def _log_runs(self, tables: dict[str, pa.Table]) -> Iterator[dict[str, Any]]:
        """What each captured log holds: its batches that no earlier capture lacks."""
        batches = [row for row in tables[BATCHES.name].to_pylist() if row["source"] == "log" and row["valid"]]
        for capture in tables[CAPTURES.name].to_pylist():
            start, end = capture["log_start_offset"] or 0, capture["log_end_offset"] or 0
            held: dict[tuple[int, int], dict[str, Any]] = {}
            for row in sorted(batches, key=_moment):
                if identity_of(row) == identity_of(capture) and _moment(row) <= _moment(capture):
                    held[row["leader_epoch"], row["base_offset"]] = row
            for epoch, base_offset in sorted(held):
                row = held[epoch, base_offset]
                if row["status"] == "present" and row["last_offset"] < end and row["last_offset"] >= start:
                    place = {name: capture[name] for name in LOG_RUNS.column_names if name in capture}
                    span = {"from_offset": base_offset, "to_offset": row["last_offset"] + 1}
                    yield {**place, "leader_epoch": epoch, **span}

    def _table(self, name: str, given: list[dict[str, Any]]) -> pa.Table:
        contract = CONTRACTS[name]
        names = set(contract.column_names)
        rows = []
        for row in given:
            unknown = row.keys() - names
            assert not unknown, f"{name} has no columns {unknown}"
            rows.append({column.name: row.get(column.name, _default(column)) for column in contract.columns})
        return pa.Table.from_batches([build_rows(contract, rows)])

    def findings(self, rule_id: str, **thresholds: Any) -> list[Finding]:
        return list(check_rule(rules()[rule_id], self.history(), thresholds))

    def raised(self, rule_id: str, **thresholds: Any) -> list[Finding]:
        return [finding for finding in self.findings(rule_id, **thresholds) if finding.status is Status.RAISED]

    # -- voters and the log

    def voters(
        self,
        *ids: int,
        at: int = -1,
        epoch: int = 1,
        canonical: bool = True,
        replaced: tuple[int, ...] = (),
        **more: Any,
    ) -> HistoryBuilder:
        """A voter set; ids in `replaced` have the second directory of their node."""
        keys = [{"voter_id": n, "directory_id": directory(n, int(n in replaced))} for n in ids]
        before = [row for row in self.rows["voter_sets"] if row["canonical"] or not canonical]
        old = before[-1]["voters"] if before else None
        old_keys = [{name: v[name] for name in ("voter_id", "directory_id")} for v in old or []]
        voters = [
            {
                **key,
                "endpoints": more.get("endpoints", {}).get(key["voter_id"], []),
                "min_supported_version": 0,
                "max_supported_version": 1,
            }
            for key in keys
        ]
        return self.add(
            "voter_sets",
            from_offset=at,
            from_epoch=epoch,
            timestamp_ms=T0 + 1000 * at,
            source=more.get("source", "bootstrap" if at < 0 else "log"),
            kraft_version=more.get("kraft_version", 1),
            voters=voters,
            added=[] if old is None else [key for key in keys if key not in old_keys],
            removed=[] if old is None else [key for key in old_keys if key not in keys],
            target_voters=more.get("target_voters"),
            canonical=canonical,
            ended_by="in_effect" if canonical else "truncated",
        )

    def leader_epoch(self, epoch: int, leader_id: int, at: int, **more: Any) -> HistoryBuilder:
        return self.add(
            "leader_epochs",
            **{
                "epoch": epoch,
                "from_offset": at,
                "leader_change_offset": at,
                "leader_id": leader_id,
                "voters": [1, 2, 3],
                "granting_voters": [1, 2],
                "timestamp_ms": T0 + 1000 * at,
                "canonical": True,
                "ended_by": "next_epoch",
                **more,
            },
        )

    def batch(self, node_id: int, first: int, last: int, epoch: int = 1, **more: Any) -> HistoryBuilder:
        return self.add(
            "batches",
            **{
                "node_id": node_id,
                "directory_id": directory(node_id),
                "root": "/captures",
                "path": f"node-{node_id}",
                "source": "log",
                "base_offset": first,
                "last_offset": last,
                "leader_epoch": epoch,
                "crc": 1000 * epoch + first,
                "codec": "none",
                "magic": 2,
                "max_timestamp_ms": T0 + 1000 * last,
                "base_timestamp_ms": T0 + 1000 * first,
                "record_count": last - first + 1,
                "size_bytes": 100,
                "file_name": "__cluster_metadata-0/00000000000000000000.log",
                "captured_at": 0,
                "valid": True,
                "status": "present",
                **more,
            },
        )

    def log(self, *node_ids: int, to: int, epoch: int = 1, start: int = 0, **more: Any) -> HistoryBuilder:
        """The same ten-record batches in the logs of several nodes: offsets [start, to), the first one control."""
        for node_id in node_ids:
            for first in range(start, to, 10):
                is_control = first == start and epoch > 0
                self.batch(node_id, first, min(first + 9, to - 1), epoch, is_control=is_control, **more)
        return self

    def capture(self, node_id: int, end: int, *, when: int = 0, epoch: int = 1, **more: Any) -> HistoryBuilder:
        return self.add(
            "captures",
            **{
                "node_id": node_id,
                "directory_id": directory(node_id),
                "captured_at_ms": T0 + when,
                "captured_at": 0,
                "root": "/captures",
                "path": f"node-{node_id}",
                "medium": "directory",
                "accepted": True,
                "meta_cluster_id": CLUSTER_ID,
                "leader_id": -1,
                "leader_epoch": epoch,
                "voted_id": -1,
                "log_start_offset": 0,
                "log_end_offset": end,
                "last_epoch": epoch,
                "last_timestamp_ms": T0 + 1000 * end,
                "read_from_ms": T0 + when + 1,
                "read_to_ms": T0 + when + 2,
                **more,
            },
        )

    def watermark(self, low: int, high: int | None, *, end: int, when: int = 0, **more: Any) -> HistoryBuilder:
        epoch = more.pop("epoch", 1)
        ids = more.pop("ids", (1, 2, 3))
        return self.add(
            "watermarks",
            **{
                "read_from_ms": T0 + when,
                "read_to_ms": T0 + when + 10,
                "low": low,
                "low_epoch": epoch,
                "high": high,
                "high_epoch": epoch,
                "canonical_epoch": epoch,
                "canonical_end_offset": end,
                "voters": [{"voter_id": n, "directory_id": directory(n)} for n in ids],
                "captured_voters": list(ids),
                "low_evidence": ["three voters hold it"],
                "high_evidence": ["no voter holds more"],
                **more,
            },
        )

    def damage(self, node_id: int, reason: str, **more: Any) -> HistoryBuilder:
        return self.add(
            "decode_errors",
            **{
                "node_id": node_id,
                "directory_id": directory(node_id),
                "root": "/captures",
                "path": f"node-{node_id}",
                "file_name": "__cluster_metadata-0/00000000000000000000.log",
                "position": 777,
                "length_bytes": 50,
                "base_offset": 20,
                "reason": reason,
                "detail": "as read",
                "kafka_verdict": "cuts the log there",
                "captured_at": 0,
                **more,
            },
        )

    def three_nodes(self, end: int = 40) -> HistoryBuilder:
        """A healthy quorum: voters 1, 2, 3, all logs alike and committed to the end."""
        self.voters(1, 2, 3).leader_epoch(1, 1, 0).log(1, 2, 3, to=end).watermark(end, end, end=end)
        for node_id in (1, 2, 3):
            self.capture(node_id, end)
        return self

    # -- partitions and brokers

    def partition(self, name: str, at: int, cause: str = "other", **changes: Any) -> HistoryBuilder:
        """A state of partition "topic-0": what is not named stays as it was."""
        topic, number = name.rsplit("-", 1)
        key = (topic, int(number))
        state = self._partitions.get(key)
        if state is None:
            state = {
                "topic_id": topic.ljust(22, "x"),
                "partition": int(number),
                "topic": topic,
                "exists": True,
                "replicas": [11, 12, 13],
                "isr": [11, 12, 13],
                "leader": 11,
                "leader_recovery_state": "RECOVERED",
                "effective_min_isr": 2,
            }
        state = {
            **state,
            "election": None,
            "expected_elr": None,
            "cause_broker_id": None,
            **changes,
            "from_offset": at,
            "from_epoch": 1,
            "timestamp_ms": T0 + 1000 * at,
            "cause": cause,
        }
        self._partitions[key] = state
        return self.add("partition_changes", **state)

    def broker(self, broker_id: int, at: int = 1, **more: Any) -> HistoryBuilder:
        return self._subject("broker_changes", at, {"broker_id": broker_id, "incarnation_id": "x" * 22, **more})

    def brokers(self, *broker_ids: int) -> HistoryBuilder:
        for broker_id in broker_ids:
            self.broker(broker_id)
        return self

    def controller(self, controller_id: int, at: int = 1, **more: Any) -> HistoryBuilder:
        return self._subject(
            "controller_changes", at, {"controller_id": controller_id, "incarnation_id": "x" * 22, **more}
        )

    def config(self, type_: str, resource: str, name: str, value: str | None, at: int) -> HistoryBuilder:
        values = {"resource_type": type_, "resource_name": resource, "name": name, "value": value}
        return self._subject("config_changes", at, {**values, "exists": value is not None})

    def feature(self, name: str, level: int, at: int = 2) -> HistoryBuilder:
        return self._subject("feature_changes", at, {"name": name, "feature_level": level})

    def _subject(self, table: str, at: int, values: dict[str, Any]) -> HistoryBuilder:
        envelope = {"from_offset": at, "from_epoch": 1, "timestamp_ms": T0 + 1000 * at, "cause": "as written"}
        return self.add(table, **{**envelope, "exists": True, **values})


Story = Callable[[HistoryBuilder], object]
"""Builds one small history."""


@pytest.fixture
def build() -> HistoryBuilder:
    return HistoryBuilder()
