"""What `check` says of a cluster that stopped in order: which brokers did, and what shows it."""

from __future__ import annotations

from kraft_audit.incidents.folding import OPEN_END, FoldedFindings
from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_returns import feature_levels
from kraft_audit.rules.columns.broker_stops import Stop, broker_stops, last_voter
from kraft_audit.rules.columns.quorum_standing import QuorumStanding
from kraft_audit.rules.columns.rivals import last_voter_text
from kraft_audit.text.readable import capitalized, nouns, when
from kraft_codec.schemas.releases import FIRST_LEVEL_WITH_CONTROLLED_SHUTDOWN, METADATA_VERSION_FEATURE


def at_rest_sentence(history: ClusterHistory, standing: QuorumStanding, folded: FoldedFindings, *, lost: bool) -> str:
    """When the cluster stopped, how each broker did, and what is committed; `lost`: it may have lost records."""
    stop = next((i for i in folded.incidents if i.kind is IncidentKind.CLUSTER_STOP), None)
    at = f" at {when(stop.from_ms)}" if stop is not None and stop.from_ms is not None else ""
    is_committed = standing.committed_to is not None and standing.committed_to == standing.end_offset
    rest = (
        f" All metadata is committed (offset {standing.end_offset - 1})."
        if is_committed and standing.end_offset
        else f" {capitalized(standing.committed_text)}."
        if standing.committed_to
        else ""
    )
    nothing = "" if lost else " Nothing is lost."
    return f"Stopped in order{at}: {_how_stopped(history, standing)}.{nothing}{rest}"


def _how_stopped(history: ClusterHistory, standing: QuorumStanding) -> str:
    """Which brokers stopped, in order, and what shows it."""
    in_order = standing.stopped_brokers
    text = f"broker{'s' * (len(in_order) != 1)} {', '.join(map(str, in_order))}"
    away = {stop.absence.broker_id: stop.stop for stop in broker_stops(history) if stop.absence.to_offset is None}
    at_once = [broker for broker in in_order if away.get(broker) is Stop.IDLE]
    if not at_once:
        text += " by controlled shutdown"
    elif feature_levels(history, METADATA_VERSION_FEATURE).at(OPEN_END) < FIRST_LEVEL_WITH_CONTROLLED_SHUTDOWN:
        text += " (this release does not record controlled shutdowns; their disks hold their own fences)"
    else:
        who = "it" if len(at_once) == len(in_order) == 1 else nouns("broker", sorted(at_once))
        if len(at_once) == len(in_order) > 1:
            who = "they"
        text += f"; {who} led nothing and stopped at once, which the log shows as a fence"
    last = last_voter(history, standing.voters)
    if last is not None:
        text += f"; {last_voter_text(last)}"
    return text
