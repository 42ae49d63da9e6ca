"""A disk that was restored from a backup between two captures: its earlier copy permits nothing.

On real Kafka a yes that rested on the earlier copy cost the committed offsets 142 to 147.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kraft_audit
from kraft_audit.recovery.may_i.compared_captures import DiskWentBack
from kraft_audit.recovery.may_i.permission import Action, Permission, Question, Verdict
from kraft_audit.rules.rule_model import Status
from kraft_codec.storage.path_patterns import several_paths
from tests.builders.restored_disk import COMMITTED, RESTORED, write_capture, write_restored

FRIDAY, SATURDAY = "2026-11-27", "2026-11-28"
WENT_BACK = (
    "The disk of node 3 went back between captures {} and {}: it held the log below offset 148 and holds it below 142 "
    "now, and its epoch was 2 and is 1. This answer goes by {} alone."
)
UNSURE = (
    "The disk of node 3 is further in capture {0} than in {1}: either {1} was copied first, or the disk was wiped or "
    "restored in between."
)


def asked(path: Path | str, node_id: int, *stopped: int, action: Action = Action.START) -> Permission:
    with kraft_audit.open(str(path)) as (cluster,):
        found = cluster.may_i(Question(action, node_id, "PATH", stopped=frozenset(stopped)))
    assert isinstance(found, Permission)
    return found


@pytest.mark.parametrize("names", [(FRIDAY, SATURDAY), ("before", "after"), ("after", "before")])
def test_no_yes_rests_on_what_the_disk_held_before(tmp_path: Path, names: tuple[str, str]) -> None:
    """Nodes 2 and 3 would elect each other without what only node 1 holds. Content alone turns the captures round."""
    write_restored(tmp_path, *names)
    path = several_paths([str(tmp_path / name) for name in names])
    found = asked(path, 3, 1)
    assert found.verdict is Verdict.NO
    assert found.reason == (
        "Node 2 could be elected by 2 and 3, and lacks committed records from offset 142 (epoch 2) on. "
        + WENT_BACK.format(*names, names[1])
    )
    assert found.next_steps == ("Start 1 first and keep node 3 stopped: kraft-audit may-i start 1 PATH --stopped 3",)


def test_a_date_in_the_names_is_enough(tmp_path: Path) -> None:
    found = asked(write_restored(tmp_path, FRIDAY, SATURDAY), 3, 1)
    assert (found.verdict, WENT_BACK.format(FRIDAY, SATURDAY, SATURDAY) in found.reason) == (Verdict.NO, True)


def test_check_says_what_went_back(tmp_path: Path) -> None:
    with kraft_audit.open(str(write_restored(tmp_path, FRIDAY, SATURDAY))) as (cluster,):
        raised = {(each.rule, each.summary) for each in cluster.check() if each.status is Status.RAISED}
    assert raised >= {
        ("KQ014", "its persisted epoch went from 2 back to 1"),
        ("KQ020", f"node 3 lacks what was committed from {RESTORED} on, and held it up to {COMMITTED} before"),
    }


def test_where_content_alone_speaks_the_answer_is_open(tmp_path: Path) -> None:
    """No other disk moved, so either capture may be the newer one."""
    found = asked(write_restored(tmp_path, "b", "a"), 3, 1)
    assert (found.verdict, found.reason) == (Verdict.UNDECIDED, UNSURE.format("b", "a"))
    assert found.next_steps == (
        "If b was copied last: kraft-audit may-i start 3 PATH --capture b",
        "If a was copied last: kraft-audit may-i start 3 PATH --capture a",
    )


@pytest.mark.parametrize(
    ("before", "verdict"),
    [
        ({1: COMMITTED, 2: RESTORED, 3: RESTORED}, Verdict.YES),  # node 2 went on as well
        ({1: COMMITTED, 2: COMMITTED, 3: RESTORED}, Verdict.UNDECIDED),
        ({3: RESTORED}, Verdict.YES),  # no other disk is in both captures
    ],
)
def test_other_disks_that_went_on_confirm_the_order(tmp_path: Path, before: dict[int, int], verdict: Verdict) -> None:
    write_capture(tmp_path / "b", before)
    write_capture(tmp_path / "a", dict.fromkeys((1, 2, 3), COMMITTED))
    assert asked(tmp_path, 3).verdict is verdict


def test_a_disk_that_went_on_beside_one_that_lost_an_epoch_confirms_nothing(tmp_path: Path) -> None:
    write_capture(tmp_path / "b", {1: RESTORED, 2: RESTORED, 3: COMMITTED})
    write_capture(tmp_path / "a", {1: COMMITTED, 2: COMMITTED, 3: RESTORED})
    assert asked(tmp_path, 3).verdict is Verdict.UNDECIDED


def test_a_yes_of_the_newest_capture_says_what_went_back(tmp_path: Path) -> None:
    """Nodes 1 and 2 hold everything, so the restored disk can neither win nor help anybody who lacks a record."""
    write_capture(tmp_path / FRIDAY, {1: COMMITTED, 2: RESTORED, 3: COMMITTED})
    write_capture(tmp_path / SATURDAY, {1: COMMITTED, 2: COMMITTED, 3: RESTORED})
    found = asked(tmp_path, 3)
    assert found.verdict is Verdict.YES
    assert found.reason.startswith("No election can lose a committed record through offset 147: 1 or 2 has the longest")
    assert found.reason.endswith(WENT_BACK.format(FRIDAY, SATURDAY, SATURDAY))


def test_earlier_captures_still_forbid(tmp_path: Path) -> None:
    """The newest capture alone shows neither that 142 to 147 were committed, nor where they are."""
    write_capture(tmp_path / FRIDAY, {1: COMMITTED, 2: RESTORED, 3: COMMITTED})
    write_capture(tmp_path / SATURDAY, {2: RESTORED, 3: RESTORED})
    found = asked(tmp_path, 3, 1)
    assert found.verdict is Verdict.UNDECIDED
    fact = WENT_BACK.format(FRIDAY, SATURDAY, SATURDAY).removesuffix(f" This answer goes by {SATURDAY} alone.")
    assert found.reason.startswith("No log is known to be the canonical one: ")
    assert found.reason.endswith(fact)
    alone = asked(tmp_path / SATURDAY, 3, 1)
    assert alone.verdict is Verdict.YES


def test_a_copy_without_its_log_is_no_disk_that_went_back(tmp_path: Path) -> None:
    for day in (FRIDAY, SATURDAY):
        write_capture(tmp_path / day, dict.fromkeys((1, 2, 3), COMMITTED))
    log_dir = tmp_path / SATURDAY / "node-3" / "__cluster_metadata-0"
    for segment in log_dir.glob("*.log"):
        segment.unlink()
    assert "holds nothing of it now" in asked(tmp_path, 3).reason
    (log_dir / "leader-epoch-checkpoint").write_text(f"0\n2\n1 0\n2 {RESTORED}\n")
    assert "went back" not in asked(tmp_path, 3).reason


def test_a_disk_that_only_went_on_is_not_mentioned(tmp_path: Path) -> None:
    write_capture(tmp_path / FRIDAY, {1: COMMITTED, 2: RESTORED, 3: RESTORED})
    write_capture(tmp_path / SATURDAY, {1: COMMITTED, 2: COMMITTED, 3: COMMITTED})
    found = asked(tmp_path, 3)
    assert (found.verdict, "went back" in found.reason) == (Verdict.YES, False)


@pytest.mark.parametrize(
    ("node_2_after_ms", "verdict"),
    [
        (30_000, Verdict.NO),  # nodes 1 and 2 were written since, the backup brought its times along
        (10_000, Verdict.UNDECIDED),  # node 1 alone: no majority of the three disks
        (90_000, Verdict.UNDECIDED),  # nobody kept the times of node 2
    ],
)
def test_file_times_tell_where_names_and_paths_do_not(tmp_path: Path, node_2_after_ms: int, verdict: Verdict) -> None:
    ends = {1: COMMITTED, 2: RESTORED}
    write_capture(tmp_path / "b", {**ends, 3: COMMITTED}, written_after_ms={1: 10_000, 2: 10_000, 3: 10_000})
    write_capture(tmp_path / "a", {**ends, 3: RESTORED}, written_after_ms={1: 30_000, 2: node_2_after_ms, 3: 1_000})
    assert asked(tmp_path, 3, 1).verdict is verdict


@pytest.mark.parametrize(
    ("held", "epochs", "facts"),
    [
        ((148, 142), (2, 2), "it held the log below offset 148 and holds it below 142 now"),
        (
            (148, 0),
            (2, None),
            "it held the log below offset 148 and holds nothing of it now, and its quorum-state is gone",
        ),
        ((148, 150), (2, 1), "its epoch was 2 and is 1"),
        ((148, 148), (2, None), "its quorum-state is gone"),
        ((148, 147), (None, None), "it held the log below offset 148 and holds it below 147 now"),
    ],
)
def test_what_went_back_is_said(held: tuple[int, int], epochs: tuple[int | None, int | None], facts: str) -> None:
    disk = DiskWentBack(3, "backup", "", held, epochs)
    assert disk.fact == f"The disk of node 3 went back between captures backup and PATH itself: {facts}"
    assert disk.text == f"{disk.fact}. This answer goes by PATH itself alone."
