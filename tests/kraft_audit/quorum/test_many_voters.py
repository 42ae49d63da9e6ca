"""Work that grows with the voters, not with their square: a log may claim thousands, and none of them need exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_audit.capture.path_plans import plan_cluster
from kraft_audit.capture.survey import Survey
from kraft_audit.quorum.voter_history import Voter
from kraft_audit.recovery.may_i.durability import durability
from kraft_audit.recovery.may_i.quorum_disks import quorum_disks
from kraft_audit.rules.columns.voter_sets import named
from kraft_audit.rules.judging import check
from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from kraft_codec.text.java_text import uuid_text
from tests.builders.logs import Log, write_node
from tests.builders.readings import history_of, survey_of


def _uuid(voter_id: int) -> bytes:
    return b"voter" + voter_id.to_bytes(11, "big")


def _voter(voter_id: int) -> dict[str, object]:
    return {
        "voterId": voter_id,
        "voterDirectoryId": _uuid(voter_id),
        "endpoints": [{"name": "CONTROLLER", "host": f"host-{voter_id}", "port": 9093}],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }


def _write(folder: Path, voter_count: int, captured_count: int) -> Path:
    """A log of so many voters, of whom one is removed, and as many of their disks as are captured."""
    ids = range(1, voter_count + 1)
    log = Log()
    listed = [{"voterId": voter_id} for voter_id in ids]
    log.control("LEADER_CHANGE", {"version": 0, "leaderId": 1, "voters": listed, "grantingVoters": listed})
    log.control("KRAFT_VERSION", {"version": 0, "kRaftVersion": 1})
    log.control("KRAFT_VOTERS", {"version": 0, "voters": [_voter(voter_id) for voter_id in ids]})
    log.noop()
    log.control("KRAFT_VOTERS", {"version": 0, "voters": [_voter(voter_id) for voter_id in ids[:-1]]})
    log.noop()
    for voter_id in ids[:captured_count]:
        state = QuorumState(1, 1, voter_id, -1, "A" * 22)
        write_node(folder, voter_id, log.content, state=state, directory_id=uuid_text(_uuid(voter_id)))
    return folder


class Reads:
    """How often voters are asked for their id: every loop over them does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        slot = Voter.__dict__["voter_id"]

        def get(voter: Voter) -> int:
            self.count += 1
            return int(slot.__get__(voter))

        monkeypatch.setattr(Voter, "voter_id", property(get, slot.__set__))

    def during(self, work: Callable[[], object]) -> int:
        before = self.count
        work()
        return self.count - before


@pytest.mark.slow
@pytest.mark.parametrize("is_all_captured", [False, True])
def test_four_times_the_voters_are_four_times_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_all_captured: bool
) -> None:
    reads = Reads(monkeypatch)
    judged, surveyed = [], []
    for count in (20, 80):
        folder = _write(tmp_path / str(count), count, count if is_all_captured else 2)
        plan = plan_cluster([str(folder)], open_storage=open_storage, captured_at_ms=0, name="many")
        settings = {"open_storage": open_storage, "redactor": Redactor(bytes(32))}
        history = history_of(plan, **settings)
        assert {len(row["voters"]) for row in history.rows("voter_sets")} == {count, count - 1}
        judged.append(reads.during(lambda: list(check(history_of(plan, **settings)))))  # noqa: B023  # at once
        survey: Survey = survey_of(plan)
        safety, _ = quorum_disks(survey, plan)
        assert safety is not None
        assert len(safety.disks) >= count - 1
        surveyed.append(
            reads.during(lambda: durability(quorum_disks(survey, plan)[0] or safety))  # noqa: B023  # at once
        )
    for few, many in (judged, surveyed):
        assert few >= 20, "the loops over voters are counted"
        assert many < 8 * few, "16 times as much where each voter looks at all of them"


def test_naming_voters_compares_each_a_few_times() -> None:
    class Id(int):
        compared = 0

        def __eq__(self, value: object) -> bool:
            Id.compared += 1
            return int.__eq__(self, value) is True

        __hash__ = int.__hash__

    keys = [(Id(number), "a") for number in range(500)]
    assert named(keys, [(Id(7), "b")]).startswith("{0 1 2 3 4 5 6 7@a 8 ")
    assert Id.compared < 20 * len(keys)
