"""The state of a replay, kept between plans: to go on from it gives the rows that going on without a stop gives.

A state holds what has been applied and the records that wait for the end of their transaction or operation, so it may
be taken after any window. Records come in with their secrets redacted, so it holds none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from kraft_audit.replay.cluster_replay import STATE_MACHINES, ClusterReplay, Settler
from kraft_audit.replay.partitions.kept_partitions import PARTITION_PARTS
from kraft_audit.replay.partitions.partition_replay import ReplayProblem
from kraft_audit.replay.state_machines import CONFIG_TOPICS, ConfigStateMachine
from kraft_audit.replay.waiting_records import WaitingRecords
from kraft_audit.tables.kept_parts import (
    KeptPartsError,
    columns_from_bytes,
    columns_to_bytes,
    pack,
    rows_batch,
    unpack,
)


@dataclass(frozen=True, slots=True)
class ReplayBeginning:
    """Where the first of some replays began: as the columns of `replays` say it."""

    started_at: int
    log_start: int
    snapshot: str | None
    is_complete: bool


@dataclass(frozen=True, slots=True)
class ReplayBase:
    """The state of a replay that was fed the canonical log below `fed_to`, and gave its rows below `settled_offset`.

    `epoch` is that of the last record below `fed_to`. `undecoded` are offsets from `settled_offset` on whose records
    could not be decoded. `content` is the state (`replay_state`).
    """

    fed_to: int
    settled_offset: int
    epoch: int
    beginning: ReplayBeginning
    undecoded: tuple[int, ...]
    content: bytes

    def to_bytes(self) -> bytes:
        """The same base gives the same bytes."""
        fields = asdict(self)
        content = fields.pop("content")
        return pack({"base": json.dumps(fields, sort_keys=True).encode(), "replay": content})

    @classmethod
    def from_bytes(cls, content: bytes) -> ReplayBase:
        """What `to_bytes` wrote. Raises KeptPartsError, also where the state itself cannot be read."""
        parts = unpack(content)
        try:
            fields = json.loads(parts["base"])
            beginning = ReplayBeginning(**fields.pop("beginning"))
            undecoded = tuple(fields.pop("undecoded"))
            base = cls(beginning=beginning, undecoded=undecoded, content=parts["replay"], **fields)
        except (ValueError, TypeError, LookupError) as error:
            raise KeptPartsError(f"its base cannot be read: {type(error).__name__}") from None
        replay = load_replay(base.content, cluster_id="")
        if (replay.settler.fed_to, replay.settled_offset) != (base.fed_to, base.settled_offset):
            raise KeptPartsError("its base is that of another state")
        return base


_NUMBER: Final = pa.int64()
PROGRESS_SCHEMA: Final = pa.schema(
    [
        pa.field("fed_to", _NUMBER, nullable=False),
        pa.field("settled_offset", _NUMBER, nullable=False),
        pa.field("begin_offset", _NUMBER, nullable=True),
        pa.field("run_from_offset", _NUMBER, nullable=True),
        pa.field("run_count", _NUMBER, nullable=True),
        pa.field("run_base_offset", _NUMBER, nullable=True),
    ]
)
PROBLEMS_SCHEMA: Final = pa.schema(
    [
        pa.field("table", pa.string(), nullable=False),
        pa.field("offset", _NUMBER, nullable=False),
        pa.field("problem", pa.string(), nullable=False),
    ]
)
_PARTITIONS: Final = "partition_changes"
STATE_PARTS: Final[Mapping[str, pa.Schema]] = {
    "progress": PROGRESS_SCHEMA,
    "problems": PROBLEMS_SCHEMA,
    "config_topics": CONFIG_TOPICS,
    **{machine.table.name: machine.kept_schema() for machine in STATE_MACHINES},
    **PARTITION_PARTS,
}
"""Every field of the state, by part. Beside them parts `waiting.<block>.<message>` of the records that wait."""
_WAITING: Final = "waiting."


def save_replay(replay: ClusterReplay) -> bytes:
    """The state of a replay of all tables, whose rows have been taken."""
    parts = {
        "progress": rows_batch(PROGRESS_SCHEMA, [replay.settler.progress()]),
        "problems": rows_batch(PROBLEMS_SCHEMA, _problem_rows(replay)),
    }
    for name, machine in replay.state_machines.items():
        parts[name] = machine.saved()
        if isinstance(machine, ConfigStateMachine):
            parts["config_topics"] = machine.saved_topics()
    if replay.partitions is not None:
        parts |= replay.partitions.saved()
    if parts.keys() != STATE_PARTS.keys():
        raise ValueError(f"a replay without {', '.join(sorted(STATE_PARTS.keys() - parts.keys()))} is not kept")
    packed = {name: columns_to_bytes(batch) for name, batch in parts.items()}
    return pack(packed | {_WAITING + name: content for name, content in replay.settler.waiting.parts().items()})


def load_replay(
    content: bytes, *, cluster_id: str, plan: int = 0, defaults: Mapping[str, str] | None = None
) -> ClusterReplay:
    """A replay that goes on from a state; the next window has to begin at `settler.fed_to`.

    `defaults` are those that the state was made with. Raises KeptPartsError where it cannot be read.
    """
    packed = unpack(content)
    if not STATE_PARTS.keys() <= packed.keys():
        raise KeptPartsError(f"parts {sorted(STATE_PARTS.keys() - packed.keys())} are missing")
    parts = {name: columns_from_bytes(packed[name], schema) for name, schema in STATE_PARTS.items()}
    waiting = WaitingRecords(
        {name.removeprefix(_WAITING): part for name, part in packed.items() if name.startswith(_WAITING)}
    )
    replay = ClusterReplay(cluster_id=cluster_id, plan=plan, defaults=defaults)
    try:
        _restore(replay, parts, waiting)
    except (ValueError, TypeError, LookupError) as error:
        raise KeptPartsError(f"it contradicts itself: {error}") from None
    return replay


def _restore(replay: ClusterReplay, parts: Mapping[str, pa.RecordBatch], waiting: WaitingRecords) -> None:
    (progress,) = parts["progress"].to_pylist()
    replay.resume(Settler.restored(progress, waiting))
    for name, machine in replay.state_machines.items():
        machine.restore(parts[name])
        if isinstance(machine, ConfigStateMachine):
            machine.restore_topics(parts["config_topics"])
    if replay.partitions is not None:
        replay.partitions.restore(parts)
    for row in parts["problems"].to_pylist():
        if row["table"] != _PARTITIONS:
            replay.state_machines[row["table"]].problems.append((row["offset"], row["problem"]))
        elif replay.partitions is not None:
            replay.partitions.problems.append(ReplayProblem(row["offset"], row["problem"]))


def _problem_rows(replay: ClusterReplay) -> list[dict[str, Any]]:
    rows = [
        (name, offset, problem)
        for name, machine in replay.state_machines.items()
        for offset, problem in machine.problems
    ]
    if replay.partitions is not None:
        rows += [(_PARTITIONS, problem.offset, problem.problem) for problem in replay.partitions.problems]
    return [dict(zip(PROBLEMS_SCHEMA.names, row, strict=True)) for row in rows]
