"""What a history says beside its tables, as bytes: one task reads a cluster, and another one judges what it left."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar

import pyarrow as pa

from kraft_audit.capture.altered_batches import AlteredBatches
from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.rules.carried.carried_rows import check_fields, check_of, holder_fields, holder_of
from kraft_audit.rules.cluster_history import ClusterHistory, Contradiction, OperatorWord
from kraft_audit.rules.columns.partition_parts import PartitionParts
from kraft_audit.tables.kept_parts import KeptPartsError
from kraft_codec.schemas import Dialect

_PLAIN: Final = ("is_complete", "states_from", "undecoded_from", "is_read", "is_replayed")
_Value = TypeVar("_Value")


def facts_of(history: ClusterHistory) -> bytes:
    """What a history that one plan read says beside its tables, but for what the plan says itself.

    Raises ValueError of one that goes on from an earlier judgement: that is judged where it is read.
    """
    if history.carried is not None:
        raise ValueError("a history that goes on from an earlier judgement cannot be judged elsewhere")
    facts: dict[str, Any] = {name: getattr(history, name) for name in _PLAIN}
    facts |= {
        "gaps": history.gaps,
        "contradictions": _listed(history.contradictions, asdict),
        "snapshot_checks": _listed(history.snapshot_checks, check_fields),
        "altered": _listed(history.altered, _altered_fields),
        "written_ms": [[*place, time_ms] for place, time_ms in history.written_ms.items()],
        "snapshot_times_ms": list(history.snapshot_times_ms.items()),
        "last_offset": None if history.parts is None else history.parts.last_offset,
    }
    return json.dumps(facts).encode()


def history_from(content: bytes, plan: ClusterPlan, tables: Mapping[str, pa.Table]) -> ClusterHistory:
    """The history of a plan that `facts_of` was given, with its tables.

    Where it had partitions in parts, it has parts without a row. Raises KeptPartsError.
    """
    try:
        facts = json.loads(content)
        parts = None
        if facts["last_offset"] is not None:
            parts = PartitionParts()
            parts.last_offset = facts["last_offset"]
        return ClusterHistory(
            plan.cluster_id,
            tables,
            Dialect(plan.dialect),
            dict(plan.defaults),
            _each(facts["contradictions"], lambda each: Contradiction(**each)),
            _each(facts["snapshot_checks"], check_of),
            **{name: facts[name] for name in _PLAIN},
            parts=parts,
            gaps=tuple((start, end) for start, end in facts["gaps"]),
            altered=_each(facts["altered"], _altered_of),
            operator=OperatorWord(plan.is_running, frozenset(plan.gone)),
            written_ms={(root, path): time_ms for root, path, time_ms in facts["written_ms"]},
            history_of=plan.history_of,
            snapshot_times_ms=dict(facts["snapshot_times_ms"]),
            history_id=plan.key,
        )
    except (ValueError, TypeError, LookupError) as error:
        raise KeptPartsError(f"the facts of a history cannot be read: {error}") from None


def _listed(values: Sequence[_Value] | None, make: Callable[[_Value], dict[str, Any]]) -> list[dict[str, Any]] | None:
    return None if values is None else [make(each) for each in values]


def _each(values: list[dict[str, Any]] | None, make: Callable[[Any], _Value]) -> tuple[_Value, ...] | None:
    return None if values is None else tuple(make(each) for each in values)


def _altered_fields(run: AlteredBatches) -> dict[str, Any]:
    names = ("from_offset", "to_offset", "epoch", "is_tied", "rejoins")
    versions = [[holder_fields(holder) for holder in version] for version in run.versions]
    return {**{name: getattr(run, name) for name in names}, "versions": versions}


def _altered_of(fields: Mapping[str, Any]) -> AlteredBatches:
    versions = tuple(tuple(map(holder_of, version)) for version in fields["versions"])
    return AlteredBatches(**{**fields, "versions": versions})
