"""`may-i`: its verdicts on real disks, its exit codes, and that what it prints can be pasted."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from tests.builders.feature_logs import FeatureLog
from tests.builders.rescues import three_controllers

ELR = "samples/elr-06-kill-13-last-replica.tgz"


def emptied(node_dir: Path) -> None:
    """As after a wipe that kept the node's ids: no log, no vote, no snapshot."""
    for log in node_dir.rglob("__cluster_metadata-0"):
        shutil.rmtree(log)


def test_a_healthy_quorum_may_be_started_and_restarted(kraft_audit, tmp_path: Path) -> None:
    folder = three_controllers(tmp_path / "three")
    for action in ("start", "restart"):
        ended = kraft_audit("may-i", action, 2, folder, "-o", "json")
        answer = json.loads(ended.out)
        assert (ended.code, answer["verdict"], answer["running"]) == (0, "yes", [1, 2, 3])
        assert answer["cannot_be_lost"] == {"safe_to": 58, "emptied": [1, 2], "gone_count": 2}


def test_a_restart_that_leaves_no_majority_is_an_outage(kraft_audit, tmp_path: Path) -> None:
    ended = kraft_audit("may-i", "restart", 2, three_controllers(tmp_path / "three"), "--stopped", "1")
    assert ended.code == 1
    assert "Outage" in ended.out


def test_two_emptied_voters_may_not_be_started_together(kraft_audit, tmp_path: Path) -> None:
    """A majority without a record elects a leader without it; the disk that holds all comes first."""
    folder = three_controllers(tmp_path / "three")
    for node in (2, 3):
        emptied(folder / f"node-{node}")
    ended = kraft_audit("may-i", "start", 2, folder)
    assert ended.code in (1, 4)
    assert ended.out.splitlines()[1].split()[0] in ("NO", "UNDECIDED")
    alone = kraft_audit("may-i", "start", 1, folder, "--stopped", "2,3")
    assert alone.code == 0


def test_without_a_disk_it_is_undecided_and_names_it(kraft_audit, tmp_path: Path) -> None:
    folder = three_controllers(tmp_path / "three")
    shutil.rmtree(folder / "node-3")
    shutil.rmtree(folder / "node-1")
    ended = kraft_audit("may-i", "start", 2, folder, "-o", "json")
    answer = json.loads(ended.out)
    assert (ended.code, answer["verdict"]) == (4, "undecided")
    assert "1 and 3" in answer["reason"]
    assert "--stopped 1,3" in answer["next_steps"][0]
    assert kraft_audit("may-i", "start", 2, folder, "--stopped", "1,3").code == 0


def test_a_volume_is_kept_while_the_majority_needs_it(kraft_audit, tmp_path: Path) -> None:
    folder = three_controllers(tmp_path / "three")
    assert kraft_audit("may-i", "delete-volume", 3, folder).code == 0
    assert kraft_audit("may-i", "delete-volume", 3, folder, "--gone", "1").code == 1


@pytest.mark.slow
@pytest.mark.parametrize("action", ["wipe", "delete-volume", "scale-in"])
def test_the_last_broker_with_what_was_acknowledged_stays(kraft_audit, action: str) -> None:
    ended = kraft_audit("may-i", action, 13, ELR)
    assert ended.code == 1
    assert "elr-m1-0" in ended.out
    pasted = next(line for line in ended.out.splitlines() if "kraft-audit" in line)
    assert kraft_audit(*shlex.split(pasted.partition("kraft-audit ")[2])).code == 0


@pytest.mark.slow
def test_who_holds_what_an_unclean_election_passed_over_is_kept(kraft_audit, tmp_path: Path) -> None:
    """11 lagged and leads: only the disks of 12 and 13, which are down, have what was acknowledged since."""
    assert kraft_audit("simulate", "unclean-election", "--out", tmp_path / "incident").code == 0
    for action in ("wipe", "delete-volume", "scale-in", "start"):
        for broker in (12, 13):
            ended = kraft_audit("may-i", action, broker, tmp_path / "incident")
            assert (ended.code, f"Broker {broker} still holds records of orders-0" in ended.out) == (1, True), action
            assert f"First copy the log dirs of broker {broker} for orders-0" in ended.out
    checked = kraft_audit("check", tmp_path / "incident").out
    assert "Do not start or wipe broker 12 or 13 before their log dirs of orders-0 are copied" in checked
    assert "all acknowledged records" not in checked


@pytest.mark.parametrize(("sample", "code"), [("samples/jbod.tgz", 1), ("samples/dynamic-quorum.tgz", 0)])
def test_a_broker_whose_isr_is_too_small_without_it_is_an_outage(kraft_audit, sample: str, code: int) -> None:
    newest = {}
    for line in kraft_audit("partitions", sample, "-o", "jsonl").out.splitlines():
        row = json.loads(line)
        newest[row["topic_id"], row["partition"]] = row
    alive = [row for row in newest.values() if row["exists"]]
    verdicts = set()
    for broker in sorted({node for row in alive for node in row["replicas"]}):
        short = [row for row in alive if broker in row["isr"] and len(row["isr"]) - 1 < row["effective_min_isr"]]
        ended = kraft_audit("may-i", "restart", broker, sample)
        assert (ended.code == 1) == bool(short), broker
        assert all(f"{row['topic']}-{row['partition']}" in ended.out for row in short[:1]) or len(short) > 3
        verdicts.add(ended.code)
    assert code in verdicts


def test_the_command_that_check_prints_answers_yes(kraft_audit, tmp_path: Path) -> None:
    """One of three controllers would make a majority: check names may-i for it."""
    folder = three_controllers(tmp_path / "three")
    for node in (1, 2, 3):
        state = next((folder / f"node-{node}").rglob("quorum-state"))
        fields = json.loads(state.read_text())
        fields |= {"leaderId": -1, "votedId": -1, "leaderEpoch": fields["leaderEpoch"] + (node == 1)}
        state.write_text(json.dumps(fields))
    out = kraft_audit("check", folder).out
    advice = next(line for line in out.splitlines() if "kraft-audit may-i start" in line)
    assert kraft_audit(*shlex.split(advice.partition("kraft-audit ")[2])).code == 0


@pytest.mark.parametrize("software", ["4.0", "4.3"])
def test_a_static_voter_leaves_by_a_command_that_its_software_has(kraft_audit, tmp_path: Path, software: str) -> None:
    """Kafka raises kraft.version from 4.1 on: before that the answer names what has to come first."""
    made = FeatureLog(kraft_version=0, levels={"metadata.version": 25}, voters=(1, 2, 3))
    for node in (1, 2, 3):
        made.controller(node, software)
    made.write(tmp_path)
    ended = kraft_audit("may-i", "scale-in", "1", tmp_path)
    assert ended.code == 1
    assert ("upgrade --feature kraft.version=1" in ended.out) == (software == "4.3")
    if software == "4.0":
        blocked = kraft_audit(*shlex.split(ended.out.partition("kraft-audit ")[2].partition("\n")[0]))
        assert (blocked.code, "Upgrade the software" in blocked.out) == (1, True)


def test_an_unknown_node_is_a_wrong_argument(kraft_audit) -> None:
    ended = kraft_audit("may-i", "start", 99, ELR)
    assert (ended.code, ended.out) == (2, "")
    assert "99" in ended.err
