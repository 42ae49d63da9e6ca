"""What is asked of a rescue, and why it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kraft_audit.quorum.voter_history import Endpoint
from kraft_audit.recovery.lost_quorum.rescue_plan import RescuePlan


class RescueRefusedError(Exception):
    """Why nothing was written; `plan` where it is the plan that does not stand."""

    def __init__(self, reason: str, plan: RescuePlan | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.plan = plan


@dataclass(frozen=True, slots=True)
class RescueRequest:
    """What is asked for. `endpoints` say where the node will listen; none where it keeps its id and endpoints.

    `is_static`: whether controller.quorum.voters is to name the voter; None where the cluster decides. `configs` are
    files of nodes, lost ones too, by id.
    """

    from_node: int
    out: Path
    node_id: int | None = None
    endpoints: tuple[Endpoint, ...] = ()
    to_offset: int | None = None
    is_static: bool | None = None
    configs: Mapping[int, str] = field(default_factory=dict)
