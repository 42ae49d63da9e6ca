"""What audits say after a rescue: what it did is declared once, and all that it did not do is raised as ever.

The engine knows what the lost majority held. Each folder is audited twice, with its rescue.json and without: the
findings are the same, and only those that the rescue explains are waived.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.incidents.incident import Incident, IncidentKind
from kraft_audit.rules.columns.quorum_standing import Standing
from kraft_audit.rules.rule_model import DECLARED_BY, Finding, Severity
from kraft_codec.file_names import RESCUE_DECLARATION_NAME
from tests.builders.rescues import (
    LATE_TOPIC,
    LostAndRescued,
    edit_declaration,
    newest_history,
    raised,
    without_declaration,
)


@pytest.fixture(scope="module")
def quorums(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LostAndRescued]:
    kinds = {"dynamic": False, "static": True}
    return {name: LostAndRescued(tmp_path_factory.mktemp(name), static=static) for name, static in kinds.items()}


@pytest.fixture(params=["dynamic", "static"])
def quorum(request: pytest.FixtureRequest, quorums: dict[str, LostAndRescued], tmp_path: Path) -> LostAndRescued:
    return quorums[request.param].copied_to(tmp_path)


@pytest.fixture
def lost(quorums: dict[str, LostAndRescued], tmp_path: Path) -> LostAndRescued:
    return quorums["dynamic"].copied_to(tmp_path)


def rescues(path: Path) -> list[Incident]:
    found = newest_history(path).incidents().incidents
    return [incident for incident in found if incident.kind is IncidentKind.DECLARED_RESCUE]


def identities(findings: list[Finding]) -> set[tuple[str, str, int | None]]:
    """Without KQ026: a node that says it was rescued does not stand alone, and times of copied files decide."""
    return {(finding.rule, finding.finding_id, finding.from_offset) for finding in findings if finding.rule != "KQ026"}


def alarms(path: Path) -> set[str]:
    """The rules of what is raised and not waived, critical or high."""
    return {f.rule for f in raised(newest_history(path)) if f.waiver is None and f.severity.rank >= Severity.HIGH.rank}


def test_what_the_rescue_did_is_declared_and_no_finding_vanishes(quorum: LostAndRescued) -> None:
    folder = quorum.beside("both", quorum.rescued, 1, 2, 3)
    plain = raised(newest_history(without_declaration(folder)))
    assert "KQ002" in {finding.rule for finding in plain if finding.severity is Severity.CRITICAL}
    found = raised(newest_history(folder))
    assert identities(found) == identities(plain)
    declared = [finding for finding in found if finding.waiver is not None]
    assert {"KQ002"} <= {finding.rule for finding in declared} <= {"KQ002", "KQ016", "KV008", "KV013"}
    assert {finding.waiver.who for finding in declared if finding.waiver} == {DECLARED_BY}
    assert not alarms(folder)
    (incident,) = rescues(folder)
    assert {finding.finding_id for finding in incident.findings} == {finding.finding_id for finding in declared}
    assert not incident.is_open


def test_the_line_says_when_from_whom_the_cut_what_was_lost_and_what_is_fenced(
    kraft_audit: Any, quorum: LostAndRescued
) -> None:
    folder = quorum.going_on("on")
    ended = kraft_audit("check", folder)
    (line,) = [line for line in ended.out.splitlines() if line.startswith("RESCUE ")]
    (incident,) = rescues(folder)
    topics = quorum.stage.cluster.processes[quorum.stage.slot(3)].disk.log
    assert topics.end_offset > quorum.cut, "the engine committed something after the cut"
    assert incident.from_ms == quorum.written_ms
    assert incident.headline in line
    for part in ("node 3's disk", f"cut at offset {quorum.cut},", f"lost: topic {LATE_TOPIC}", "epochs up to"):
        assert part in line
    assert "orders" not in line
    assert ended.code == 0


def test_a_node_that_was_not_started_is_said_to_wait(kraft_audit: Any, quorum: LostAndRescued) -> None:
    (step,) = [line for line in kraft_audit("check", quorum.rescued).out.splitlines() if line.startswith("NEXT")]
    assert "Start node 3 " in step
    cluster = newest_history(quorum.rescued)
    assert cluster.standing().standing is Standing.NOT_JUDGED
    assert "not started" in cluster.standing().reason
    assert not [finding for finding in cluster.check() if finding.rule == "KQ002" and finding.subject]
    assert newest_history(quorum.going_on("on")).standing().standing is Standing.HEALTHY


def test_the_logs_that_were_left_behind_say_so(kraft_audit: Any, quorum: LostAndRescued) -> None:
    folder = quorum.beside("both", quorum.going_on("on"), 1, 2, 3)
    ended = kraft_audit("check", folder)
    newer, older = ended.out.split("\n\n")[:2]
    assert "KB009" in next(line for line in newer.splitlines() if line.startswith("RESCUE"))
    assert "left behind" in next(line for line in older.splitlines() if line.startswith("RESCUE"))
    assert ended.code == 0


def set_in(*names: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        *path, last = names
        for name in path:
            document = document[name]
        document[last] = to

    return edit


def other_hash(document: dict[str, Any]) -> None:
    document["files"] = dict.fromkeys(document["files"], "0" * 64)


def snapshot_at(offset: int, epoch: int) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        (digest,) = [digest for name, digest in document["files"].items() if name.endswith(".checkpoint")]
        name = f"__cluster_metadata-0/{offset:020d}-{epoch:010d}.checkpoint"
        document |= {"offset": offset, "epoch": epoch, "files": {name: digest}}

    return edit


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (set_in("cluster_id", to="AAAAAAAAAAAAAAAAAAAAAA"), "of cluster AAAAAAAAAAAAAAAAAAAAAA"),
        (set_in("node", "directory_id", to="AAAAAAAAAAAAAAAAAAAAAA"), "directory AAAAAAAAAAAAAAAAAAAAAA"),
        (set_in("node", "node_id", to=2), "it is of node 2"),
        (other_hash, "has SHA-256"),
        (snapshot_at(77, 1_000_001), "the snapshot that ends at 77"),
        (snapshot_at(5_000_000, 5_000_000), "the log begins at 5000000"),
        (set_in("plan", "newest_epoch", to=2_000_000), "fences nothing"),
    ],
    ids=["cluster", "directory", "voter", "hash", "offset", "epoch", "fence"],
)
def test_a_declaration_that_does_not_fit_replaces_nothing_and_is_said(
    kraft_audit: Any, lost: LostAndRescued, edit: Callable[[dict[str, Any]], None], said: str
) -> None:
    folder = lost.beside("both", lost.rescued, 1, 2, 3)
    plain = raised(newest_history(without_declaration(folder)))
    edit_declaration(folder / "rescued", edit)
    found = raised(newest_history(folder))
    assert identities(found) == identities(plain)
    assert not [finding for finding in found if finding.waiver is not None]
    (incident,) = rescues(folder)
    assert incident.is_open
    assert said in incident.headline
    assert incident.headline in kraft_audit("check", folder).out
    assert kraft_audit("check", folder).code == 1
    ended = kraft_audit("restore-kit", folder / "rescued", "--only-lost")
    assert (ended.code, "rescue.json does not fit" in ended.err) == (2, True)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"declared": "rescue"}', '{"declared": "rescue", "node": 1}'])
def test_what_is_no_declaration_is_named_and_replaces_nothing(
    kraft_audit: Any, lost: LostAndRescued, content: str
) -> None:
    folder = lost.beside("both", lost.rescued, 1, 2)
    (folder / "rescued" / RESCUE_DECLARATION_NAME).write_text(content)
    ended = kraft_audit("check", folder)
    assert ended.code == 1
    assert "BAD_FILE" in ended.out
    assert RESCUE_DECLARATION_NAME in ended.out
    assert "KQ002" in alarms(folder)


def test_another_node_s_declaration_is_not_believed(lost: LostAndRescued) -> None:
    folder = lost.beside("both", lost.rescued, 1, 2, 3)
    shutil.move(folder / "rescued" / RESCUE_DECLARATION_NAME, folder / "old-1" / RESCUE_DECLARATION_NAME)
    (incident,) = rescues(folder)
    assert incident.is_open
    assert "KQ002" in alarms(folder)


def test_a_later_loss_is_raised(lost: LostAndRescued) -> None:
    """The node led on, and then its log lacks what it had committed."""
    rounds = {
        "1-before/node-3": lost.going_on("led", ["one", "two", "three"]),
        "2-after/node-3": lost.going_on("again", ["other"], epochs=2),
    }
    old = {f"0-old/node-{node}": lost.old / f"node-{node}" for node in (1, 2, 3)}
    for name, dirs in (("rounds", rounds), ("with-old", {**old, **rounds})):
        folder = lost.place(name, dirs)
        assert {"KQ002", "KQ020"} <= alarms(folder), name
        assert not [f for f in raised(newest_history(folder)) if f.rule in ("KQ002", "KQ020") and f.waiver is not None]


def test_two_rescues_of_one_quorum_explain_nothing(lost: LostAndRescued) -> None:
    lost.rescue(2, "second")
    folder = lost.place(
        "both", {"rescued-3": lost.rescued, "rescued-2": lost.out / "second", "old": lost.old / "node-1"}
    )
    found = rescues(folder)
    assert len(found) == 2
    assert all(incident.is_open and "another rescue" in incident.headline for incident in found)
    assert not [finding for finding in raised(newest_history(folder)) if finding.waiver is not None]


@pytest.mark.parametrize("kind", ["tgz", "zip"])
def test_a_declaration_inside_an_archive_is_read(kraft_audit: Any, lost: LostAndRescued, kind: str) -> None:
    folder = lost.beside("both", lost.rescued, 1, 2)
    archive = lost.out / f"both.{kind}"
    if kind == "zip":
        shutil.make_archive(str(lost.out / "both"), "zip", folder)
    else:
        subprocess.run(["tar", "czf", archive, "-C", folder, "."], check=True)
    (packed,), (lying,) = rescues(archive), rescues(folder)
    assert packed.headline == lying.headline
    assert {finding.rule for finding in packed.findings} == {finding.rule for finding in lying.findings} != set()
    assert kraft_audit("check", archive).code == 0


def test_the_json_of_check_has_the_declared_findings(kraft_audit: Any, lost: LostAndRescued) -> None:
    folder = lost.beside("both", lost.rescued, 1, 2)
    rows = json.loads(kraft_audit("check", folder, "-o", "json").out)
    waived = {row["rule"]: row["waiver"]["who"] for row in rows if row["waiver"] is not None}
    assert waived["KQ002"] == DECLARED_BY
    assert "1 declared" in kraft_audit("check", folder, "--rule", "KQ002").out
