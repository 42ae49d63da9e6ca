"""Node dirs without a batch: which history each belongs to, and what `check` says of a folder of them over time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kraft_audit
from kraft_audit.capture.silent_dirs import with_silent_dirs
from kraft_audit.findings.answer import answer_lines
from kraft_audit.rules.columns.quorum_standing import Standing
from kraft_audit.rules.rule_model import Finding, Status
from kraft_codec.files.state_files import EpochEntry, QuorumState, format_leader_epoch_checkpoint
from tests.builders.logs import DIRECTORIES, led, with_topics, write_node


def without_log(
    folder: Path,
    node_id: int,
    directory_id: str | None,
    reached: tuple[int, int],
    *,
    voters: tuple[int, ...] = (1, 2, 3),
) -> Path:
    """A node dir whose `*.log` was left out; `reached`: the newest epoch of its checkpoint, and where it began."""
    state = QuorumState(0, voters[0], reached[0], -1, current_voters=voters)
    entries = format_leader_epoch_checkpoint((EpochEntry(1, 0), EpochEntry(*reached)))
    files = {"leader-epoch-checkpoint": entries}
    return write_node(folder, node_id, {}, directory_id=directory_id, state=state, files=files)


def histories(path: Path) -> list[list[tuple[str, int]]]:
    """The (capture, node id) of each history's dirs, the newest history first."""
    with kraft_audit.open(str(path)) as clusters:
        return [[(each.capture, each.node_id or 0) for each in plan.replicas] for plan in clusters.plans]


def answers(path: Path) -> list[tuple[Standing, str, list[Finding]]]:
    """Of each history: the standing with its reason, and the findings that are raised."""
    found = []
    with kraft_audit.open(str(path)) as clusters:
        for cluster in clusters:
            standing = cluster.standing()
            raised = [each for each in cluster.check() if each.status is Status.RAISED]
            found.append((standing.standing, standing.reason, raised))
    return found


def test_copies_of_one_directory_over_time_are_one_history(tmp_path: Path) -> None:
    for number, reached in enumerate(((5, 100), (5, 100), (9, 900))):
        without_log(tmp_path / f"day-{number}", 1, DIRECTORIES[0], reached, voters=(1,))
    assert histories(tmp_path) == [[("day-0", 1), ("day-1", 1), ("day-2", 1)]]
    ((standing, reason, raised),) = answers(tmp_path)
    assert standing is Standing.NO_LOG
    assert "It reached at least offset 900, epoch 9" in reason
    assert "quorum-state names leader 1 in epoch 9 and voter 1" in reason
    assert not {each.rule for each in raised} & {"KQ002", "KQ003", "KQ020", "KQ021"}


def test_a_quorum_that_was_formatted_again_is_two_histories(tmp_path: Path) -> None:
    for number in range(2):
        for node_id in (1, 2, 3):
            directory_id = DIRECTORIES[3 * number + node_id - 1]
            without_log(tmp_path / f"day-{number}", node_id, directory_id, (22 + number, 1_000))
    assert sorted(histories(tmp_path)) == [[(f"day-{number}", node_id) for node_id in (1, 2, 3)] for number in range(2)]
    assert all(not {each.rule for each in raised} & {"KQ002", "KQ003"} for *_, raised in answers(tmp_path))


def test_another_directory_of_the_same_node_is_a_strangers(tmp_path: Path) -> None:
    log = with_topics(led(1, [1, 2, 3]))
    for node_id in (1, 2, 3):
        write_node(tmp_path / "a", node_id, log.content)
    without_log(tmp_path / "b", 1, DIRECTORIES[0], (50, 7_000))
    assert histories(tmp_path)[0] == [("a", 1), ("a", 2), ("a", 3)]
    assert histories(tmp_path)[1:] == [[("b", 1)]]
    assert "KQ020" not in {each.rule for _, _, raised in answers(tmp_path) for each in raised}


@pytest.mark.parametrize("directory_id", [DIRECTORIES[0], None])
def test_a_dir_beside_the_logs_belongs_to_them(tmp_path: Path, directory_id: str | None) -> None:
    log = with_topics(led(1, [1, 2, 3]))
    for node_id in (1, 2):
        write_node(tmp_path, node_id, log.content)
    without_log(tmp_path, 3, directory_id, (1, 0))
    assert len(histories(tmp_path)) == 1


def test_a_later_copy_without_its_log_takes_nothing_back(tmp_path: Path) -> None:
    log = with_topics(led(1, [1]), 8)
    write_node(tmp_path / "monday", 1, log.content, directory_id=DIRECTORIES[0])
    without_log(tmp_path / "tuesday", 1, DIRECTORIES[0], (9, 900), voters=(1,))
    ((standing, reason, raised),) = answers(tmp_path)
    assert standing is Standing.NO_LOG
    assert "It reached at least offset 900, epoch 9" in reason
    assert "An earlier copy's log ends at 9: it is the older one" in reason
    assert not {each.rule for each in raised} & {"KQ002", "KQ020", "KQ021"}


def test_a_dir_of_empty_files_is_no_damaged_snapshot(tmp_path: Path) -> None:
    node = tmp_path / "data"
    (node / "__cluster_metadata-0").mkdir(parents=True)
    (node / "meta.properties").write_text("#Sat Nov 28 18:12:22 UTC 2026\n")
    (node / "bootstrap.checkpoint").touch()
    for name in (
        "00000000000000000000.log",
        "00000000000000002450.snapshot",
        "quorum-state",
        "leader-epoch-checkpoint",
    ):
        (node / "__cluster_metadata-0" / name).touch()
    ((standing, reason, raised),) = answers(tmp_path)
    assert (standing, raised) == (Standing.NO_LOG, [])
    assert reason.startswith("every file here is empty")
    with kraft_audit.open(str(tmp_path)) as clusters:
        (cluster,) = clusters
        lines = list(answer_lines(cluster.history, cluster.incidents(), path="data"))
    assert ("UNREADABLE", f"E{reason[1:]}.") in {(line.word, line.text) for line in lines}


@pytest.mark.parametrize(("second", "home"), [(2, None), (3, 0)])
def test_a_dir_that_fits_several_histories_is_of_none(second: int, home: int | None) -> None:
    """Node 3 lies apart with a directory that no voter set names; in one history it stands with another disk."""

    def log(node_id: int, directory_id: str) -> Any:
        plan = SimpleNamespace(node_id=node_id, directory_id=directory_id, folder=directory_id)
        return SimpleNamespace(plan=plan, is_started=True, voters=frozenset(), configured=frozenset())

    groups, silent = [[log(1, "a")], [log(second, "b")]], log(3, "c")
    own = [[silent]] if home is None else []
    joined = [[*group, silent] if number == home else group for number, group in enumerate(groups)]
    assert with_silent_dirs(groups, [silent]) == [*joined, *own]
