"""`check` and what belongs to it: exit codes, formats, thresholds, waivers, and the words of the findings."""

from __future__ import annotations

import csv
import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.builders.captures import SMALL_CORPUS

ELR = "samples/elr-06-kill-13-last-replica.tgz"
DIVERGENCE = f"{SMALL_CORPUS}/divergence"


def test_the_answer_comes_first(kraft_audit) -> None:
    """Does the quorum work, what is at risk now, what to do next: within five lines, with ids and a command."""
    ended = kraft_audit("check", ELR)
    assert (ended.code, ended.err) == (1, "")
    header, quorum, partitions, advice = ended.out.splitlines()[:4]
    assert header.startswith("SPA6Lw-19VaaSAxl6jMkhw   metadata.version 4.3-IV0")
    assert "1 of 1 voters captured" in header
    assert quorum.startswith("QUORUM")
    assert "node 1 leads epoch 1" in quorum
    assert "offset 188" in quorum
    assert partitions.startswith("PARTITIONS")
    assert "10 of 13" in partitions
    assert "elr-m1-0 broker 13" in partitions
    assert advice.startswith("NEXT")
    assert "broker 13" in advice
    assert f"kraft-audit recover-plan {ELR}" in advice


def test_one_incident_explains_what_one_cause_did(kraft_audit) -> None:
    out = kraft_audit("check", ELR).out
    (incident,) = [line for line in out.splitlines() if line.startswith("INCIDENT") and "open" in line]
    assert "11, 12 and 13" in incident
    steps = [line for line in out.splitlines() if "fenced" in line]
    for step, broker, effects in zip(
        steps, ("11", "12", "13"), (["elr-m3-0"], ["9 partitions"], ["3 partitions", "10 partitions"]), strict=True
    ):
        assert f"broker {broker} fenced" in step
        assert all(effect in step for effect in effects)
    assert "KP001 elr-m1-0" in out
    assert "KP002 10 partitions" in out
    assert "KP005 13 partitions" in out, "what a fencing did is written before it, in one batch"


def test_findings_are_listed_rule_by_rule_where_they_are_asked_for(kraft_audit) -> None:
    out = kraft_audit("check", ELR, "--findings").out
    assert "CRITICAL  KP001 last-replica-standing" in out
    assert "CRITICAL  KP002 offline" in out


def test_a_healthy_quorum_is_two_lines(kraft_audit) -> None:
    ended = kraft_audit("check", "samples/dynamic-quorum.tgz", "--capture", "09-leader-removed-while-leader")
    assert ended.code == 0
    assert len([line for line in ended.out.splitlines() if line.strip()]) <= 3
    assert ended.out.splitlines()[1].startswith("OK")


def test_what_is_gone_is_the_operators_word(kraft_audit) -> None:
    path = "samples/divergence.tgz"
    ended = kraft_audit("check", path, "--gone", "1,2")
    assert ended.code == 1
    assert "1 of 3 voters are left, 2 are needed" in ended.out
    assert kraft_audit("check", path, "--gone", "one").code == 2


def test_running_nodes_whose_logs_stand_still_are_said_to_have_no_leader(kraft_audit) -> None:
    """Of a folder where nodes write; an archive may be of any time."""
    folder = f"{DIVERGENCE}/12-after-truncation"
    assert kraft_audit("check", folder).code == 0
    ended = kraft_audit("check", folder, "--running")
    assert ended.code == 1
    state, _, advice = ended.out.splitlines()[1:4]
    assert state.startswith("QUORUM")
    assert "node 1 led epoch 3" in state
    assert advice.startswith("NEXT")
    assert "2 of controllers 1, 2 and 3" in advice
    assert kraft_audit("check", "samples/divergence.tgz", "--running").code == 0


@pytest.mark.slow
def test_fail_on_decides_the_exit_code(kraft_audit) -> None:
    assert kraft_audit("check", DIVERGENCE).code == 0
    assert kraft_audit("check", DIVERGENCE, "--fail-on", "medium").code == 1
    assert kraft_audit("check", ELR, "--fail-on", "never").code == 0
    assert kraft_audit("check", ELR, "--fail-on", "critical").code == 1


@pytest.mark.slow
def test_json_has_the_keys_that_scripts_rely_on(kraft_audit) -> None:
    rows = json.loads(kraft_audit("check", ELR, "-o", "json").out)
    keys = [
        "rule",
        "name",
        "severity",
        "status",
        "subject",
        "from_offset",
        "to_offset",
        "evidence",
        "why",
        "what_to_do",
    ]
    assert list(rows[0])[: len(keys)] == keys
    assert {row["status"] for row in rows} <= {"raised", "undecided"}
    everything = json.loads(kraft_audit("check", ELR, "--all", "-o", "json").out)
    assert "clear" in {row["status"] for row in everything}
    only = json.loads(kraft_audit("check", ELR, "--rule", "offline", "-o", "json").out)
    assert {row["rule"] for row in only} == {"KP002"}
    assert [row for row in rows if row["rule"] == "KP002"] == only
    assert {row["needs_release"] for row in everything} == {"4.3"}, "metadata.version 30 is 4.3-IV0"


@pytest.mark.slow
def test_csv_jsonl_sarif_and_ocsf(kraft_audit) -> None:
    rows = json.loads(kraft_audit("check", ELR, "-o", "json").out)
    assert len(kraft_audit("check", ELR, "-o", "jsonl").out.splitlines()) == len(rows)
    assert len(list(csv.DictReader(io.StringIO(kraft_audit("check", ELR, "-o", "csv").out)))) == len(rows)
    sarif = json.loads(kraft_audit("check", ELR, "-o", "sarif").out)
    assert sarif["version"] == "2.1.0"
    events = [json.loads(line) for line in kraft_audit("check", ELR, "-o", "ocsf").out.splitlines()]
    assert sorted(event["finding_info"]["uid"] for event in events) == sorted(row["finding_id"] for row in rows)


@pytest.mark.slow
def test_waivers_and_thresholds(kraft_audit, tmp_path: Path) -> None:
    waivers = tmp_path / "waivers.yaml"
    entry = "  - {rule: %s, until: 2999-01-01, who: on call, why: known}\n"
    raised = {
        row["rule"] for row in json.loads(kraft_audit("check", ELR, "-o", "json").out) if row["status"] == "raised"
    }
    waivers.write_text("waivers:\n" + "".join(entry % rule for rule in sorted(raised)))
    assert kraft_audit("check", ELR, "--waivers", waivers).code == 0
    waivers.write_text("waivers:\n  - {rule: KP001, until: soon, who: me, why: x}\n")
    ended = kraft_audit("check", ELR, "--waivers", waivers)
    assert (ended.code, len(ended.error_lines)) == (2, 1)
    assert str(waivers) in ended.err
    settings = tmp_path / "rules.yaml"
    settings.write_text("KP999: {}\n")
    ended = kraft_audit("check", ELR, "--settings", settings)
    assert (ended.code, len(ended.error_lines)) == (2, 1)
    assert kraft_audit("check", ELR, "--settings", tmp_path / "missing").code == 3


def test_rules_and_explain(kraft_audit) -> None:
    rules = json.loads(kraft_audit("rules", "-o", "json").out)
    assert {"KP001", "KQ001", "KV001"} <= {row["rule"] for row in rules}
    for text in ("KP001", "kp001", "last-replica-standing"):
        assert kraft_audit("rules", text).out.startswith("KP001 last-replica-standing   critical")
    ended = kraft_audit("rules", "last-replica")
    assert (ended.code, len(ended.error_lines)) == (2, 1)
    assert "KP001" in ended.err


@pytest.mark.slow
def test_whatif_and_recover_plan(kraft_audit) -> None:
    document = json.loads(kraft_audit("whatif", ELR, "--lose", "14", "-o", "json").out)
    offline = [row for row in document["outcomes"] if row["goes_offline"]]
    assert {(row["topic"], row["partition"]) for row in offline} >= {("elr-4", 0), ("elr-c", 1), ("pre-elr", 1)}
    of_rack = json.loads(kraft_audit("whatif", ELR, "--rack", "rack-14", "-o", "json").out)
    assert of_rack["lost_brokers"] == [14]
    assert kraft_audit("whatif", ELR).code == 2
    spans = (["--lose", "11,12"], ["--lose", "12", "--lose", "11"])
    both = [kraft_audit("whatif", ELR, *lose, "-o", "json").out for lose in spans]
    assert both[0] == both[1]
    assert kraft_audit("whatif", ELR, "--lose", "eleven").code == 2
    assert "rack nowhere" in kraft_audit("whatif", ELR, "--rack", "nowhere").out
    plans = json.loads(kraft_audit("recover-plan", ELR, "-o", "json").out)
    state = json.loads(kraft_audit("state", ELR, "--only", "partitions", "-o", "json").out)
    leaderless = {(row["topic"], row["partition"]) for row in state["partitions"] if row["leader"] == -1}
    assert {(row["topic"], row["partition"]) for row in plans} == leaderless


@pytest.mark.slow
def test_the_static_default_counts(kraft_audit) -> None:
    options = ["--only", "partitions", "-o", "json"]
    rows = json.loads(kraft_audit("state", f"{SMALL_CORPUS}/mini-3.9.2", *options).out)["partitions"]
    assert {row["effective_min_isr"] for row in rows} == {1}
    two = json.loads(
        kraft_audit("state", f"{SMALL_CORPUS}/mini-3.9.2", *options, "--default", "min.insync.replicas=2").out
    )
    assert [row["effective_min_isr"] for row in two["partitions"]] == [min(2, len(row["replicas"])) for row in rows]


@pytest.mark.parametrize(
    "wrong",
    ["min.insync.replicas", "min.insync.replicas=x", "min.insync.replicas=0", "=2"]
    + [f"controller.quorum.voters={voters}" for voters in ("", "a@b:1", "1@a:1,", "1@a:1;x", "-1")],
)
def test_a_static_default_that_cannot_be_used(kraft_audit, wrong: str) -> None:
    assert kraft_audit("check", ELR, "--default", wrong).code == 2


def test_an_evidence_pack_can_be_checked_later(kraft_audit, tmp_path: Path) -> None:
    pack = tmp_path / "pack.zip"
    ended = kraft_audit("evidence", DIVERGENCE, "--out", pack)
    assert (ended.code, ended.err) == (0, "")
    assert kraft_audit("evidence", "--verify", pack).code == 0
    assert kraft_audit("evidence", DIVERGENCE, "--out", pack).code == 2
    with zipfile.ZipFile(pack, "a") as opened:
        opened.writestr("more.txt", "added later")
    changed = kraft_audit("evidence", "--verify", pack)
    assert changed.code == 1
    assert "more.txt" in changed.err


@pytest.mark.parametrize("options", [[], ["--out", "x.zip", "--verify", "y.zip"], [f"{SMALL_CORPUS}/divergence"]])
def test_evidence_needs_one_thing_to_do(kraft_audit, options: list[str]) -> None:
    assert kraft_audit("evidence", *options).code == 2


@pytest.mark.parametrize("command", [["evidence"], ["report"], ["report", "--output", "csv"]])
def test_nothing_is_ever_written_among_the_logs(
    command: list[str], kraft_audit, small_corpus: Path, tmp_path: Path
) -> None:
    logs = tmp_path / "the logs"
    shutil.copytree(small_corpus / "divergence", logs)
    for path in (logs, logs.as_uri()):
        ended = kraft_audit(command[0], path, *command[1:], "--out", logs / "written")
        assert (ended.code, "which is only read: choose a folder elsewhere" in ended.err) == (2, True)
    assert not (logs / "written").exists()
