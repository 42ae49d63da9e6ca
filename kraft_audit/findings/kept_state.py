"""What one plan keeps of a cluster for the next: its survey, where its replay was settled, and what rules need.

One piece of bytes, never changed, named by its own hash. It is of use only to a plan with the same versions; whoever
cannot use it reads everything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.capture.resumed.kept_survey import KeptSurvey
from kraft_audit.replay.replay_state import ReplayBase
from kraft_audit.tables.kept_parts import KeptPartsError, pack, unpack

KEPT_STATE_FORMAT: Final = 3
"""Of the bytes below: another release's may mean something else."""
_VERSIONS, _SURVEY, _SETTLED, _RULES = "versions", "survey", "settled", "rules"
NAME_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class KeptState:
    """`rules` are bytes of the rules' own; `versions` say what all of it depends on."""

    versions: Mapping[str, str]
    survey: KeptSurvey
    settled: ReplayBase
    rules: bytes = b""

    def to_bytes(self) -> bytes:
        """The same state gives the same bytes."""
        versions = json.dumps(dict(sorted(self.versions.items())), separators=(",", ":")).encode()
        parts = {_SURVEY: self.survey.to_bytes(), _SETTLED: self.settled.to_bytes(), _RULES: self.rules}
        return pack({_VERSIONS: versions, **parts})

    @classmethod
    def from_bytes(cls, content: bytes, versions: Mapping[str, str]) -> KeptState:
        """A state that was kept with these versions. Raises KeptPartsError, which says why it is of no use."""
        parts = unpack(content)
        if parts.keys() != {_VERSIONS, _SURVEY, _SETTLED, _RULES}:
            raise KeptPartsError(f"it has parts {sorted(parts)}")
        try:
            own_versions = json.loads(parts[_VERSIONS])
        except ValueError:
            raise KeptPartsError("its versions cannot be read") from None
        for name, value in versions.items():
            if not isinstance(own_versions, dict) or own_versions.get(name) != value:
                raise KeptPartsError(f"it was kept with another {name}")
        return cls(
            own_versions, KeptSurvey.from_bytes(parts[_SURVEY]), ReplayBase.from_bytes(parts[_SETTLED]), parts[_RULES]
        )


def state_versions(plan: ClusterPlan, rules: str = "") -> dict[str, str]:
    """What a state depends on: its format, the log's dialect, static configs, and `rules`, the key of the rules."""
    configs = json.dumps(sorted(plan.defaults), separators=(",", ":"))
    return {"format": str(KEPT_STATE_FORMAT), "dialect": str(plan.dialect), "configs": configs, "rules": rules}


def state_name(content: bytes) -> str:
    """The name of a state: the hash of its bytes."""
    return hashlib.blake2b(content, digest_size=NAME_BYTES).hexdigest()
