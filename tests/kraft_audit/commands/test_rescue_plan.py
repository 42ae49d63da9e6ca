"""`rescue --plan`: its verdicts on real disks, its exit codes, and that what it prints can be pasted."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders.captures import SAMPLES, SMALL_CORPUS

DIVERGENCE = f"{SMALL_CORPUS}/divergence"


def captured(out: Path, capture: str, *nodes: str) -> Path:
    for node in nodes:
        shutil.copytree(f"{DIVERGENCE}/{capture}/{node}", out / node)
    return out


def planned(kraft_audit: Any, *arguments: object) -> tuple[int, dict[str, Any]]:
    ended = kraft_audit("rescue", "--plan", *arguments, "-o", "json")
    return ended.code, json.loads(ended.out)


def pasted(out: str) -> list[list[str]]:
    return [shlex.split(line.partition("kraft-audit ")[2]) for line in out.splitlines() if "kraft-audit " in line]


def test_a_quorum_that_may_live_is_refused(kraft_audit, tmp_path: Path) -> None:
    folder = captured(tmp_path / "two", "12-after-truncation", "node-1", "node-2")
    for gone in ([], ["--gone", "3"], ["--gone", "2"]):
        code, plan = planned(kraft_audit, folder, *gone)
        assert (code, plan["verdict"], plan["chosen"]) == (1, "refused", None)
    _, plan = planned(kraft_audit, folder)
    assert plan["next_steps"] == [f"Start what you have: kraft-audit may-i start 1 {folder}"]
    assert kraft_audit(*pasted(plan["next_steps"][0])[0]).code in (0, 4)


def test_nodes_that_were_not_read_are_asked_about(kraft_audit, tmp_path: Path) -> None:
    """Nobody spoke of nodes 1 and 2: a command with --gone 1,2 would be pasted without a thought."""
    folder = captured(tmp_path / "one", "12-after-truncation", "node-3")
    start = f"Start what you have: kraft-audit may-i start 3 {folder}"
    _, plan = planned(kraft_audit, folder)
    assert plan["next_steps"] == [start, "Are nodes 1 and 2 lost with their disks? Then add --gone 1,2."]
    _, plan = planned(kraft_audit, folder, "--gone", "1")
    assert plan["next_steps"] == [start, "Is node 2 lost with its disk? Then add --gone 1,2."]


def test_a_log_without_meta_properties_is_to_be_named(kraft_audit, tmp_path: Path) -> None:
    """It is a voter's, and says nothing of it: no disk is missing, a name is."""
    folder = captured(tmp_path / "one", "12-after-truncation", "node-3")
    meta = (folder / "node-3" / "meta.properties").read_text()
    (cluster_id,) = [line.partition("=")[2] for line in meta.splitlines() if line.startswith("cluster.id=")]
    (folder / "node-3" / "meta.properties").unlink()
    say = f"{folder}/node-3 has no meta.properties: say whose log it is: kraft-audit rescue --plan {folder} --as"
    assert planned(kraft_audit, folder)[1]["next_steps"] == [f"{say} CLUSTER=NODE"]
    code, plan = planned(kraft_audit, folder, "--gone", "1,2")
    assert (code, plan["next_steps"]) == (4, [f"{say} CLUSTER=NODE --gone 1,2"])
    captured(folder, "12-after-truncation", "node-11")
    _, plan = planned(kraft_audit, folder, "--gone", "1,2")
    (step,) = plan["next_steps"]
    assert step == f"{say} {cluster_id}=NODE --gone 1,2"
    named = kraft_audit(*pasted(step.replace("NODE", "3"))[0])
    assert named.code == 0
    (built,) = [line for line in named.out.splitlines() if "kraft-audit rescue " in line]
    assert f" rescue {folder} --as {cluster_id}=3 --gone 1,2 --from 3 " in built
    assert kraft_audit(*pasted(built.replace("--out rescued-3", f"--out {tmp_path}/new"))[0]).code == 0
    kit = kraft_audit("restore-kit", tmp_path / "new", "--only-lost")
    assert kit.code == 0, "its rescue.json says whose the disks were"


def test_one_of_three_that_is_left_is_the_plan(kraft_audit, tmp_path: Path) -> None:
    folder = captured(tmp_path / "one", "12-after-truncation", "node-3", "node-11")
    code, plan = planned(kraft_audit, folder, "--gone", "1,2")
    best = plan["outcomes"][plan["chosen"]]
    assert (code, best["copy"]["node_id"], best["copy"]["end_offset"]) == (0, 3, 58)
    assert best["unknown_from"] == best["keeps_to"]
    assert [each["copy"]["node_id"] for each in plan["outcomes"]] == [3, 11]


def test_the_command_that_builds_the_dir_is_printed(kraft_audit, tmp_path: Path, monkeypatch) -> None:
    """And runs as printed, with the copy that the plan chose; of a broker's copy with blanks for what it cannot be."""
    folder = captured(tmp_path / "one", "12-after-truncation", "node-3", "node-11")
    (build,) = pasted(kraft_audit("rescue", "--plan", folder, "--gone", "1,2").out)
    monkeypatch.chdir(tmp_path)
    assert kraft_audit(*build).code == 0
    declared = json.loads((tmp_path / "rescued-3" / "rescue.json").read_text())
    assert (declared["node"]["node_id"], declared["plan"]["gone"]) == (3, [1, 2])
    (build,) = pasted(kraft_audit("rescue", "--plan", folder / "node-11", "--gone", "1,2,3").out)
    assert kraft_audit(*build).code == 2, "NODE is a blank"
    blanks = {"NODE": "9", "HOST:PORT": "c9.example:9093"}
    assert kraft_audit(*(blanks.get(word, word) for word in build)).code == 0
    assert json.loads((tmp_path / "rescued-11" / "rescue.json").read_text())["node"]["node_id"] == 9


def test_the_only_voter_cannot_be_named_as_lost_while_its_disk_is_there(kraft_audit) -> None:
    (advice,) = pasted(kraft_audit("rescue", "--plan", SAMPLES / "elr-29-stopped.tgz").out)
    assert advice[0] == "may-i"
    assert kraft_audit(*advice).code == 0


def test_a_voter_that_is_neither_there_nor_gone_is_named(kraft_audit, tmp_path: Path) -> None:
    """Only node 2 is said to be gone, 3 was not copied and 1 alone is no majority of the three."""
    folder = captured(tmp_path / "one", "12-after-truncation", "node-1")
    code, plan = planned(kraft_audit, folder, "--gone", "1,2")
    assert (code, plan["reason"]) == (
        4,
        "It depends on the disk of node 3, which is neither here nor said to be gone: it may hold a better copy.",
    )
    assert plan["next_steps"] == [
        f"Copy the disk of node 3 below {folder}, and ask again.",
        "Is node 3 lost with its disk? Then add --gone 1,2,3.",
    ]
    assert planned(kraft_audit, folder, "--gone", "1,2,3")[0] == 0


def test_a_longer_log_of_an_older_epoch_is_ranked_below(kraft_audit, tmp_path: Path) -> None:
    """Node 2 wrote a suffix that was never committed; a shorter log of a later epoch still wins."""
    folder = captured(tmp_path / "two", "11-dead-node-diverged", "node-2", "node-3")
    code, plan = planned(kraft_audit, folder, "--gone", "1,2")
    assert code == 0
    newer, older = plan["outcomes"]
    assert (newer["copy"]["node_id"], older["copy"]["node_id"]) == (3, 2)
    assert newer["copy"]["last_epoch"] > older["copy"]["last_epoch"]
    gained = [operation["subject"] for operation in older["gains"] if operation["kind"] == "topic"]
    missing = [operation["subject"] for operation in older["loses"] if operation["kind"] == "topic"]
    assert gained
    assert missing
    assert set(gained).isdisjoint(missing)


def test_check_names_the_plan_where_a_majority_is_lost(kraft_audit, tmp_path: Path) -> None:
    folder = captured(tmp_path / "one", "12-after-truncation", "node-3")
    out = kraft_audit("check", folder, "--gone", "1,2").out
    (advice,) = [words for words in pasted(out) if words[:2] == ["rescue", "--plan"]]
    assert advice == ["rescue", "--plan", str(folder), "--gone", "1,2"]
    assert kraft_audit(*advice).code == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--plan", "--from", "3"], "leave out --from"),
        (["--plan", "--out", "new", "--dynamic"], "leave out --out, --static"),
        (["--out", "new"], "--from NODE and --out DIR"),
        (["--from", "3"], "--plan says which"),
    ],
)
def test_a_plan_writes_nothing_and_a_rescue_needs_both(kraft_audit: Any, options: list[str], named: str) -> None:
    ended = kraft_audit("rescue", SAMPLES / "divergence.tgz", "--gone", "1,2", *options)
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1)
    assert named in ended.err
