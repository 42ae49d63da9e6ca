"""`check` and what belongs to it: exit codes, formats, thresholds, waivers, and the words of the findings."""

from __future__ import annotations

import csv
import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest

ELR = "samples/elr-06-kill-13-last-replica.tgz"
DIVERGENCE = "samples/divergence"


def test_the_last_replica_standing_is_found(kraft_audit) -> None:
    ended = kraft_audit("check", ELR)
    assert (ended.code, ended.err) == (1, "")
    first = ended.out.splitlines()[0]
    assert first.startswith(
        "SPA6Lw-19VaaSAxl6jMkhw   metadata.version 4.3-IV0   1 of 1 voters captured, proven to offset 189"
    )
    assert "CRITICAL  KP001 last-replica-standing" in ended.out
    assert "CRITICAL  KP002 offline" in ended.out


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


@pytest.mark.slow
def test_csv_jsonl_and_sarif(kraft_audit) -> None:
    rows = json.loads(kraft_audit("check", ELR, "-o", "json").out)
    assert len(kraft_audit("check", ELR, "-o", "jsonl").out.splitlines()) == len(rows)
    assert len(list(csv.DictReader(io.StringIO(kraft_audit("check", ELR, "-o", "csv").out)))) == len(rows)
    sarif = json.loads(kraft_audit("check", ELR, "-o", "sarif").out)
    assert sarif["version"] == "2.1.0"


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
        assert kraft_audit("explain", text).out.startswith("KP001 last-replica-standing   critical")
    ended = kraft_audit("explain", "last-replica")
    assert (ended.code, len(ended.error_lines)) == (2, 1)
    assert "KP001" in ended.err


@pytest.mark.slow
def test_whatif_and_recover_plan(kraft_audit) -> None:
    told = json.loads(kraft_audit("whatif", ELR, "--lose", "14", "-o", "json").out)
    offline = [row for row in told["outcomes"] if row["goes_offline"]]
    assert {(row["topic"], row["partition"]) for row in offline} >= {("elr-4", 0), ("elr-c", 1), ("pre-elr", 1)}
    of_rack = json.loads(kraft_audit("whatif", ELR, "--rack", "rack-14", "-o", "json").out)
    assert of_rack["lost_brokers"] == [14]
    assert kraft_audit("whatif", ELR).code == 2
    ways = (["--lose", "11,12"], ["--lose", "12", "--lose", "11"])
    both = [kraft_audit("whatif", ELR, *lose, "-o", "json").out for lose in ways]
    assert both[0] == both[1]
    assert kraft_audit("whatif", ELR, "--lose", "eleven").code == 2
    assert "no broker here is registered in rack nowhere" in kraft_audit("whatif", ELR, "--rack", "nowhere").out
    plans = json.loads(kraft_audit("recover-plan", ELR, "-o", "json").out)
    state = json.loads(kraft_audit("state", ELR, "--only", "partitions", "-o", "json").out)
    leaderless = {(row["topic"], row["partition"]) for row in state["partitions"] if row["leader"] == -1}
    assert {(row["topic"], row["partition"]) for row in plans} == leaderless


@pytest.mark.slow
def test_the_static_default_counts(kraft_audit) -> None:
    options = ["--only", "partitions", "-o", "json"]
    rows = json.loads(kraft_audit("state", "samples/mini-3.9.2", *options).out)["partitions"]
    assert {row["effective_min_isr"] for row in rows} == {1}
    two = json.loads(kraft_audit("state", "samples/mini-3.9.2", *options, "--default", "min.insync.replicas=2").out)
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


@pytest.mark.parametrize("options", [[], ["--out", "x.zip", "--verify", "y.zip"], ["samples/divergence"]])
def test_evidence_needs_one_thing_to_do(kraft_audit, options: list[str]) -> None:
    assert kraft_audit("evidence", *options).code == 2


@pytest.mark.parametrize("command", [["evidence"], ["report"], ["report", "--format", "csv"]])
def test_nothing_is_ever_written_among_the_logs(command: list[str], kraft_audit, samples: Path, tmp_path: Path) -> None:
    logs = tmp_path / "the logs"
    shutil.copytree(samples / "divergence", logs)
    for path in (logs, logs.as_uri()):
        ended = kraft_audit(command[0], path, *command[1:], "--out", logs / "written")
        assert (ended.code, "where nothing is ever written" in ended.err) == (2, True)
    assert not (logs / "written").exists()
