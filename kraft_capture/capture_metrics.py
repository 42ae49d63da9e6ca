"""Figures for Prometheus' node exporter: one text file, replaced by rename."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from kraft_capture.errors import UsageError
from kraft_capture.replica_copier import ReplicaCopier

_GAUGES = (
    ("last_pass_timestamp_seconds", "When the log dir was last read, by this host's clock."),
    ("last_acknowledged_timestamp_seconds", "When the store last acknowledged a manifest."),
    ("end_offset", "The log end offset that the last pass read."),
    ("held_end_offset", "Offsets below it were found again 10 s later, or synced."),
    ("unsent_bytes", "Bytes that were read and are not in the store."),
    ("gap_offsets", "Offsets of this generation that Kafka removed before they were sent."),
    ("problems", "Files and places that the last pass could not read."),
    ("lock_held", "1 where some process held .lock, 0 where none was seen, -1 where unknown."),
)
_LOCK = {"held": 1, "none-seen": 0}


def metrics_text(copiers: Iterable[ReplicaCopier]) -> str:
    """The text format, version 0.0.4: gauges, then counters, each with the labels cluster, node and directory."""
    rows: dict[str, list[str]] = {}
    for copier in copiers:
        replica = copier.replica
        labels = {
            "cluster": replica.cluster_id,
            "node": str(replica.node_id),
            "directory": replica.directory_id or "",
        }
        for name, value in _values(copier).items():
            rows.setdefault(name, []).append(f"kraft_capture_{name}{_labels(labels)} {value!r}")
        for result, count in copier.pass_count.items():
            line = f"kraft_capture_passes_total{_labels({**labels, 'result': result})} {count}"
            rows.setdefault("passes_total", []).append(line)
        line = f"kraft_capture_sent_bytes_total{_labels(labels)} {copier.sent_bytes}"
        rows.setdefault("sent_bytes_total", []).append(line)
    heads = [(name, "gauge", text) for name, text in _GAUGES]
    heads += [("passes_total", "counter", "Passes by how they ended."), ("sent_bytes_total", "counter", "Bytes sent.")]
    lines = []
    for name, kind, text in heads:
        if name in rows:
            lines += [f"# HELP kraft_capture_{name} {text}", f"# TYPE kraft_capture_{name} {kind}", *rows[name]]
    return "\n".join(lines) + "\n"


def write_metrics(path: Path, copiers: Iterable[ReplicaCopier]) -> None:
    """Replaces the file; raises UsageError where it cannot be written."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(metrics_text(copiers), encoding="utf-8")
        os.chmod(temporary, 0o644)  # noqa: PTH101  # the exporter runs as another user
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"--metrics {path}: {error.strerror}") from None


def _values(copier: ReplicaCopier) -> dict[str, float]:
    current = copier.current
    metrics: dict[str, float] = {
        "unsent_bytes": copier.unsent_bytes,
        "gap_offsets": sum(high - low for low, high in current.gaps),
        "problems": len(copier.problems),
        "lock_held": _LOCK.get(current.lock, -1),
    }
    if current.passes:
        metrics["last_pass_timestamp_seconds"] = current.passes[-1].at_ms / 1000
    if copier.acknowledged_ms is not None:
        metrics["last_acknowledged_timestamp_seconds"] = copier.acknowledged_ms / 1000
    if current.seen is not None:
        metrics["end_offset"] = current.seen.end_offset
    if current.held_end_offset is not None:
        metrics["held_end_offset"] = current.held_end_offset
    return metrics


def _labels(labels: dict[str, str]) -> str:
    pairs = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
