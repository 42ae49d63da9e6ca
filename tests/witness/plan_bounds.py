"""What `rescue --plan` announces for each copy of a quorum that lost its majority, against what was committed.

The engine knows every committed batch, and which disks hold it. Below `keeps_to` a copy has all of them; what it surely
loses is committed and missing; where no bound is unknown nothing else is missing; and no copy below the best one has a
committed batch that the best one lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kraft_audit.recovery.lost_quorum.rescue_plan import CopyOutcome, RescuePlan, RescueVerdict
from tests.witness.lost_majority import EARLY, LostMajority


def plan_disagreements(incident: LostMajority, plan: RescuePlan, counts: Counter[str]) -> Iterator[str]:
    """Whatever of a plan is not so; `counts` gets its verdict, and how exact each copy's bound is."""
    counts[f"plan: {plan.verdict}"] += 1
    if plan.verdict is RescueVerdict.REFUSED:
        yield f"refused: {plan.reason}"
    best: set[int] | None = None
    for outcome in plan.outcomes:
        if outcome.copy.node_id is None:
            yield "a copy without a node"
            continue
        is_early = outcome.copy.archived_ms is not None or outcome.copy.capture == EARLY
        missing = incident.missing(outcome.copy.node_id, is_early=is_early)
        yield from (f"{outcome.copy.name}: {text}" for text in _wrong_bounds(incident, plan, outcome, missing, counts))
        if plan.best is outcome:
            best = set(missing)
            counts["plan: loses something"] += bool(best)
        if best is not None and not best <= set(missing):
            yield f"{outcome.copy.name} has committed batches that the best copy lacks"


def _wrong_bounds(
    incident: LostMajority, plan: RescuePlan, outcome: CopyOutcome, missing: list[int], counts: Counter[str]
) -> Iterator[str]:
    end = incident.committed[-1].end_offset if incident.committed else 0
    first_missing = min(missing, default=end)
    counts["plan: exact" if outcome.keeps_to == first_missing else "plan: wider"] += 1
    if outcome.keeps_to > first_missing:
        yield f"keeps everything below {outcome.keeps_to}, and lacks the committed offset {first_missing}"
    lost = range(outcome.lost_from, outcome.lost_to)
    committed = {offset for batch in incident.committed for offset in range(batch.base_offset, batch.end_offset)}
    if not set(lost) <= committed:
        yield f"loses {lost}, which was not all committed"
    if any(batch.base_offset in lost and batch.base_offset not in missing for batch in incident.committed):
        yield f"loses {lost}, and holds some of it"
    limit = plan.high if outcome.unknown_from is None else None
    if outcome.unknown_from is None and limit is None:
        yield "knows no upper bound, and says that nothing is unknown"
    if limit is not None and any(offset >= limit for offset in missing):
        yield f"says that nothing from {limit} on was committed, and {max(missing)} was"
    if outcome.unknown_from is not None and any(offset < outcome.unknown_from for offset in missing):
        yield f"lacks {min(missing)}, below {outcome.unknown_from}"
