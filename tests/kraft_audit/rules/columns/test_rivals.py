"""Every cause of a broker's absence has its rivals, and an open incident says those that remain."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import pytest

from kraft_audit.findings.answer import answer_lines
from kraft_audit.findings.membership import fenced_for_days
from kraft_audit.incidents.folding import fold
from kraft_audit.incidents.incident import IncidentKind
from kraft_audit.rules.columns.altered_runs import VersionCause
from kraft_audit.rules.columns.broker_stops import LastVoter, Stop
from kraft_audit.rules.columns.rivals import (
    CAUSES_OF_ABSENCE,
    CAUSES_OF_LOSS,
    CAUSES_OF_VERSIONS,
    DiskLoss,
    StatedCause,
    last_voter_text,
    rivals_text,
)
from tests.builders.histories import HistoryBuilder

DAY = 86_400


def lines_of(build: HistoryBuilder) -> list[str]:
    history = build.history()
    return [f"{line.word} {line.text}".strip() for line in answer_lines(history, fold(history, []), "PATH")]


@pytest.mark.parametrize(
    ("table", "stated"), [(CAUSES_OF_ABSENCE, Stop), (CAUSES_OF_LOSS, DiskLoss), (CAUSES_OF_VERSIONS, VersionCause)]
)
def test_every_stated_cause_has_rivals_and_a_file_that_decides(
    table: Mapping[StrEnum, StatedCause], stated: type[StrEnum]
) -> None:
    assert set(table) == set(stated)
    assert all(cause.rivals and cause.decides for cause in table.values())
    assert all(len(cause.rivals) > 1 for cause in table.values() if cause.is_open)
    assert all((cause.text != "") is cause.is_open for cause in table.values())


@pytest.mark.parametrize(
    ("ran_on", "said"),
    [
        (False, "node 1 stopped last, or still runs without a majority: ask it"),
        (True, "node 1 ran on without a majority: ask it"),
    ],
)
def test_the_last_voter_stopped_last_or_runs_on(ran_on: bool, said: str) -> None:
    assert last_voter_text(LastVoter(1, (3, 2), 0, ran_on)) == said


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
