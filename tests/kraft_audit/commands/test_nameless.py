"""A log dir without a cluster id: it does not stop what lies beside it, and is never reported as sound."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.rules.judging import NOTHING_READ, NOTHING_REPLAYED
from kraft_audit.text.readable import NO_CLUSTER_ID
from kraft_codec.storage.opener import open_storage
from tests.builders.report_sources import path_source

WHOLE = "samples/elr-06-kill-13-last-replica.tgz"
CLUSTER_ID = "SPA6Lw-19VaaSAxl6jMkhw"
OTHER_FOLDER = "mini-4.4.0/03b-controller-unregistered"
REASSURING = ("no two captured logs", "every partition has a leader", "no partition holds")


@pytest.fixture
def empty_disk(tmp_path: Path) -> Path:
    """A node dir whose disk was wiped: nothing says whose it was."""
    node = tmp_path / "node-3"
    (node / "__cluster_metadata-0").mkdir(parents=True)
    return node


def cut_archive(project_root: Path, folder: Path, size_bytes: int) -> Path:
    """The archive's first bytes: the controller's whole log, and a log dir of which hardly anything is left."""
    cut = folder / "cut.tgz"
    cut.write_bytes((project_root / WHOLE).read_bytes()[:size_bytes])
    return cut


@pytest.fixture(params=["an empty disk beside", 55_000, 60_000, 75_000])
def partly_unread(request: pytest.FixtureRequest, project_root: Path, small_corpus: Path, tmp_path: Path) -> Path:
    if isinstance(request.param, int):
        return cut_archive(project_root, tmp_path, request.param)
    for node in ("node-1", "node-11"):
        shutil.copytree(small_corpus / "elr/06-kill-13-last-replica" / node, tmp_path / "folder" / node)
    (tmp_path / "folder/node-3/__cluster_metadata-0").mkdir(parents=True)
    return tmp_path / "folder"


@pytest.mark.slow
def test_what_has_no_log_does_not_hide_the_cluster_beside_it(kraft_audit, partly_unread: Path) -> None:
    unreported = f"kraft-audit: {partly_unread}: cluster {NO_CLUSTER_ID} has no canonical log: "
    for command in (["state"], ["partitions"], ["diff", "--from", "100"]):
        for form in ("table", "json"):
            first, whole = (kraft_audit(*command, path, "--output", form) for path in (partly_unread, WHOLE))
            # Node 1 alone holds all that the archive of five disks does: the cluster's output is the same.
            assert (first.out, whole.code) == (whole.out, 0)
            assert first.code == 3
            assert first.error_lines[-1].startswith(unreported)
            assert sum(line.startswith(unreported) for line in first.error_lines) == 1


@pytest.mark.parametrize("command", [["state"], ["partitions"], ["diff", "--from", "0"]])
def test_a_command_that_can_report_none_fails(kraft_audit, empty_disk: Path, command: list[str]) -> None:
    ended = kraft_audit(*command, empty_disk, "--output", "json")
    assert (ended.code, ended.out) == (3, "")
    (line,) = ended.error_lines
    assert line.startswith(f"kraft-audit: {empty_disk}: cluster {NO_CLUSTER_ID} has no canonical log: ")


@pytest.mark.slow
def test_the_cut_of_an_archive_is_reported_for_every_cluster(kraft_audit, project_root: Path, tmp_path: Path) -> None:
    from kraft_audit.report.cluster_page import cluster_view

    cut = cut_archive(project_root, tmp_path, 60_000)
    ended = kraft_audit("check", cut, "--all", "--output", "json")
    # One case a cluster: the one that was read, and the log dir of which nothing says whose it is.
    reported = [row for row in json.loads(ended.out) if row["rule"] == "KQ008"]
    assert [(row["status"], row["subject"]) for row in reported] == [("undecided", "cut.tgz at byte 60000")] * 2
    (line,) = [line for line in ended.error_lines if "cut short" in line]
    assert "more, in decode_errors" not in line
    integrity = {
        given.cluster_id: next(
            control for control in cluster_view(given).controls if control.name == "log integrity"
        ).status
        for given in path_source(cut).clusters()
    }
    assert integrity == {"": "undecided", CLUSTER_ID: "undecided"}
    rows = json.loads(kraft_audit("dump", cut, "--table", "decode_errors", "--output", "json").out)
    assert sorted(row["cluster_id"] for row in rows) == ["", CLUSTER_ID]


@pytest.mark.slow
def test_damage_is_reported_for_every_cluster_that_it_may_hide(small_corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(small_corpus / "elr/06-kill-13-last-replica/node-1", tmp_path / "a/node-1")
    shutil.copytree(small_corpus / OTHER_FOLDER / "node-1", tmp_path / "b/node-1")
    (tmp_path / "c/node-1/__cluster_metadata-0").mkdir(parents=True)
    (tmp_path / "broken.tgz").write_bytes(b"no archive")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a/node-1/__cluster_metadata-0/link").symlink_to("quorum-state")
    (tmp_path / "c/node-1/__cluster_metadata-0/link").symlink_to("quorum-state")
    plans = plan_path(str(tmp_path), open_storage=open_storage, captured_at_ms=0)
    reported = {plan.cluster_id: {damage.path for damage in plan.damages} for plan in plans}
    nameless, second, mine = (reported.pop(""), reported, reported.pop(CLUSTER_ID))
    inner, no_ones = "a/node-1/__cluster_metadata-0/link", "c/node-1/__cluster_metadata-0/link"
    assert mine == {"broken.tgz", inner}
    assert list(second.values()) == [{"broken.tgz"}]
    # Damage that hides nothing is reported once, for whichever cluster.
    assert nameless == {"broken.tgz", "link", no_ones}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["quorum", "--diverge"], ["recover-plan"], ["whatif", "--lose", "13"], ["whatif", "--rack", "r"]]
)
def test_nothing_reassuring_is_said_of_what_was_not_read(
    kraft_audit, project_root: Path, empty_disk: Path, tmp_path: Path, command: list[str]
) -> None:
    shown = kraft_audit(*command, empty_disk).out
    assert shown.splitlines() == [NO_CLUSTER_ID, NOTHING_READ]
    cut = cut_archive(project_root, tmp_path, 60_000)
    for form in ("json", "jsonl", "csv"):
        alone = kraft_audit(*command, empty_disk, "--output", form).out
        beside = kraft_audit(*command, cut, "--output", form).out
        assert alone.count(NOTHING_READ) == beside.count(NOTHING_READ) == 1
    shown = kraft_audit(*command, cut).out
    before, _, after = shown.partition(CLUSTER_ID)
    assert before.split("\n")[:2] == [NO_CLUSTER_ID, NOTHING_READ]
    assert not any(text in before for text in REASSURING)
    assert NOTHING_READ not in after


def test_nothing_reassuring_is_said_of_logs_that_contradict_each_other() -> None:
    from kraft_audit.rules.cluster_history import ClusterHistory
    from kraft_audit.rules.judging import unreplayed_reason

    assert unreplayed_reason(ClusterHistory("c", {}, is_replayed=False)) == NOTHING_REPLAYED
    assert unreplayed_reason(ClusterHistory("c", {}, is_read=False, is_replayed=False)) == NOTHING_READ
    assert unreplayed_reason(ClusterHistory("c", {})) is None


@pytest.mark.slow
def test_a_cluster_without_an_id_has_one_name(kraft_audit, empty_disk: Path, tmp_path: Path) -> None:
    for command in (
        *(["check"], ["quorum"], ["quorum", "--voters"], ["quorum", "--diverge"], ["timeline"], ["recover-plan"]),
        *(["whatif", "--lose", "1"], ["state"], ["partitions"], ["diff", "--from", "0"]),
    ):
        ended = kraft_audit(*command, empty_disk)
        lines = [*ended.out.splitlines()[:1], *ended.error_lines]
        assert lines
        assert all(NO_CLUSTER_ID in line for line in lines), command
    kraft_audit("report", empty_disk, "--out", tmp_path / "site")
    (page,) = (tmp_path / "site/clusters").glob("*.html")
    assert f"<b>{NO_CLUSTER_ID}</b>" in page.read_text()
    assert f">{NO_CLUSTER_ID}</a>" in (tmp_path / "site/index.html").read_text()


@pytest.mark.slow
def test_no_leader_is_no_node_of_number_minus_one(kraft_audit, small_corpus: Path, empty_disk: Path) -> None:
    states = [path for path in small_corpus.glob("*/*/node-*/*/quorum-state") if '"leaderId":-1' in path.read_text()]
    assert states
    for path in states:
        node = path.parent.parent
        document = json.loads(kraft_audit("quorum", node, "--output", "json").out)
        line = kraft_audit("quorum", node).out.splitlines()[1]
        epoch = json.loads(path.read_text())["leaderEpoch"]
        assert (document["leader_id"], document["leader_epoch"]) == (-1, epoch)
        assert line.startswith(f"no leader known in epoch {epoch}   committed ")
    line = kraft_audit("quorum", empty_disk).out.splitlines()[1]
    assert line.startswith("nothing is proven committed")
    assert "-1" not in line
