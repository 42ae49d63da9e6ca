"""Every cause of a broker's absence has its rivals, and an open incident says those that remain."""

from __future__ import annotations

from kraft_audit.findings.answer import answer_lines
from kraft_audit.findings.membership import fenced_for_days
from kraft_audit.incidents.folding import fold
from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.incidents.rivals import CAUSES_OF_ABSENCE, rivals_text
from kraft_audit.rules.columns.broker_stops import Stop
from tests.builders.histories import HistoryBuilder

DAY = 86_400


def lines_of(build: HistoryBuilder) -> list[str]:
    history = build.history()
    return [f"{line.word} {line.text}".strip() for line in answer_lines(history, fold(history, []), "PATH")]


def test_every_way_to_leave_has_rivals_and_a_file_that_decides() -> None:
    assert set(CAUSES_OF_ABSENCE) == set(Stop)
    assert all(cause.rivals and cause.decides for cause in CAUSES_OF_ABSENCE.values())
    assert all(len(cause.rivals) == 2 for cause in CAUSES_OF_ABSENCE.values() if cause.is_open)


def test_what_the_disks_decided_has_no_rival() -> None:
    assert rivals_text([Stop.CONTROLLED, Stop.LOST, Stop.CRASHED]) == ""


def test_a_fence_alone_leaves_two_causes(build: HistoryBuilder) -> None:
    """Broker 13's own copy was not captured."""
    build.three_nodes().brokers(11, 12, 13).broker(13, 30, fenced=True)
    history = build.history()
    (incident,) = fold(history, []).incidents
    assert (incident.kind, incident.is_open) == (IncidentKind.BROKER_LOSS, True)
    (said,) = [line for line in lines_of(build) if line.startswith("Either ")]
    assert said == (
        "Either it was killed or cut off, or it stopped in order while it led nothing, which the log shows as a fence. "
        "This decides: its own copy of __cluster_metadata-0, or .kafka_cleanshutdown in each of its log dirs, before "
        "the next start removes it."
    )


def test_a_broker_that_stopped_by_controlled_shutdown_leaves_one(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13).broker(13, 30, in_controlled_shutdown=True)
    assert not [line for line in lines_of(build) if line.startswith("Either ")]


def test_a_broker_that_is_fenced_for_longer_than_a_day_is_named(build: HistoryBuilder) -> None:
    build.three_nodes().brokers(11, 12, 13).broker(13, 30, fenced=True).partition("t-0", 5, replicas=[11, 12])
    assert fenced_for_days(build.history()) == {}
    build.batch(1, 40, 40, max_timestamp_ms=build.rows["batches"][0]["max_timestamp_ms"] + 1_000 * (DAY + 60))
    build.rows["captures"][0]["last_timestamp_ms"] = build.rows["batches"][-1]["max_timestamp_ms"]
    assert set(fenced_for_days(build.history())) == {13}
    (said,) = [line for line in lines_of(build) if "has been fenced since" in line]
    assert said.endswith("or if it is gone:   kafka-cluster unregister --bootstrap-server HOST:PORT --id 13")
    build.partition("u-0", 6, replicas=[11, 13])
    (said,) = [line for line in lines_of(build) if "has been fenced since" in line]
    assert said.endswith("start it with its disk, or move its replicas to others.")
