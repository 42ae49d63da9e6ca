"""Where a plan's replay was settled, kept for the next plan's replay to go on from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from kraft_audit.replay.replay_state import load_replay
from kraft_audit.tables.kept_parts import KeptPartsError, pack, unpack


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
