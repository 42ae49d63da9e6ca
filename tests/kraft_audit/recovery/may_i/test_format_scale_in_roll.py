"""`may-i format`, `scale-in` and `roll` on disks of real Kafka and of the engine: the verdict at each boundary."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.builders.captures import SMALL_CORPUS
from tests.builders.commands import Command
from tests.builders.feature_logs import FeatureLog
from tests.builders.printed_commands import commands_in, echoed

THREE = f"{SMALL_CORPUS}/divergence/12-after-truncation"
"""A dynamic quorum of three led by node 1, and a broker whose partitions have one replica."""
STATIC = f"{SMALL_CORPUS}/static-to-dynamic-upgrade/01-kafka-3.5.2"
JBOD = "samples/jbod.tgz"
ELR = "samples/elr-06-kill-13-last-replica.tgz"


def asked(kraft_audit: Command, *words: object) -> dict[str, Any]:
    ended = kraft_audit("may-i", *map(str, words), "-o", "json")
    answer: dict[str, Any] = json.loads(ended.out)
    assert ended.code == {"yes": 0, "no": 1, "undecided": 4}[answer["verdict"]]
    return answer


def verdict(kraft_audit: Command, *words: object) -> str:
    return str(asked(kraft_audit, *words)["verdict"])


def dynamic(out: Path, *, level: int = 30, software: str = "4.3", voters: tuple[int, ...] = (1, 2, 3)) -> Path:
    """Voters of a dynamic quorum led by 1, each registered; every disk has the whole log."""
    made = FeatureLog(kraft_version=1, levels={"metadata.version": level}, voters=voters)
    for node in voters:
        made.controller(node, software)
    made.write(out)
    return out


# format


def test_a_voter_of_a_dynamic_quorum_is_formatted_after_it_was_removed(kraft_audit: Command, tmp_path: Path) -> None:
    answer = asked(kraft_audit, "format", 2, dynamic(tmp_path / "three"))
    assert answer["verdict"] == "yes"
    assert answer["reason"].startswith("A formatted disk has a new directory id: node 2 follows")
    programs = [command.split()[0:3:2] for step in answer["next_steps"] for command in commands_in(step)]
    assert [name for name, _ in programs] == [
        "kafka-metadata-quorum",
        "kafka-storage",
        "kafka-server-start",
        "kafka-metadata-quorum",
    ]
    assert "--no-initial-controllers" in answer["next_steps"][1]
    assert "remove-controller --controller-id 2 " in answer["next_steps"][0]
    assert "--standalone" not in " ".join(answer["next_steps"])


@pytest.mark.parametrize(("voters", "gone", "expected"), [((1, 2, 3), "1", "no"), ((1, 2), "", "no"), ((1,), "", "no")])
def test_no_voter_is_formatted_whose_loss_ends_the_quorum(
    kraft_audit: Command, tmp_path: Path, voters: tuple[int, ...], gone: str, expected: str
) -> None:
    folder = dynamic(tmp_path / "few", voters=voters)
    node, options = voters[-1], ["--gone", gone] if gone else []
    answer = asked(kraft_audit, "format", node, folder, *options)
    assert answer["verdict"] == expected
    assert "could never elect a leader again" in answer["reason"]
    lost = ",".join(sorted({*gone, str(node)}))
    assert answer["next_steps"][1].endswith(f"kraft-audit rescue --plan {folder} --gone {lost}")


def test_a_new_node_is_formatted_to_follow(kraft_audit: Command, tmp_path: Path) -> None:
    answer = asked(kraft_audit, "format", 7, dynamic(tmp_path / "three"))
    assert (answer["verdict"], "Node 7 is new here" in answer["reason"]) == ("yes", True)
    assert "--no-initial-controllers" in answer["next_steps"][0]
    assert answer["next_steps"][-1].startswith("If it should vote, once it has fetched the log: ")


def test_standalone_is_refused_beside_voters_and_over_a_log(kraft_audit: Command, tmp_path: Path) -> None:
    folder = dynamic(tmp_path / "three")
    for node, others in ((2, "voters 1 and 3"), (7, "voters 1, 2 and 3")):
        answer = asked(kraft_audit, "format", node, folder, "--standalone")
        assert (answer["verdict"], answer["standalone"]) == ("no", True)
        assert f"second quorum beside {others} of the same cluster.id" in answer["reason"]
        assert answer["next_steps"][1:] == [
            f"To go on from a copy of the log instead: kraft-audit rescue --plan {folder}",
            f"Are {others.replace('voters', 'nodes')} lost with their disks? "
            f"Then add --gone {others.removeprefix('voters ').replace(' and ', ',').replace(', ', ',')}.",
        ]
    alone = dynamic(tmp_path / "alone", voters=(1,))
    answer = asked(kraft_audit, "format", 1, alone, "--standalone")
    assert (answer["verdict"], "begins an empty log" in answer["reason"]) == ("no", True)


def test_a_static_voter_is_formatted_once_the_others_know_a_later_epoch(kraft_audit: Command, tmp_path: Path) -> None:
    """It votes on with its id: until then its empty disk could vote twice in one epoch."""
    folder = shutil.copytree(STATIC, tmp_path / "three")
    answer = asked(kraft_audit, "format", 2, folder)
    assert answer["verdict"] == "undecided"
    assert answer["next_steps"][0].endswith(f"kraft-audit may-i format 2 {folder}")
    for node in (1, 3):
        raise_epoch(folder / f"node-{node}")
    answer = asked(kraft_audit, "format", 2, folder)
    assert answer["verdict"] == "yes"
    formatted = answer["next_steps"][0]
    assert formatted.startswith("kafka-storage format --cluster-id ")
    assert "--no-initial-controllers" not in formatted
    assert verdict(kraft_audit, "format", 2, folder, "--gone", "1") != "yes"


def raise_epoch(node_dir: Path) -> None:
    state = next(node_dir.rglob("quorum-state"))
    said = json.loads(state.read_text())
    state.write_text(json.dumps({**said, "leaderEpoch": said["leaderEpoch"] + 1, "leaderId": -1, "votedId": -1}))


def test_a_brokers_disk_is_kept_while_it_holds_the_last_copy_of_the_log(kraft_audit: Command, tmp_path: Path) -> None:
    """The controllers' disks are lost: an observer's copy is what a rescue goes on from."""
    folder = tmp_path / "some"
    for node in (1, 2, 3, 11):
        shutil.copytree(f"{THREE}/node-{node}", folder / f"node-{node}")
    for action in ("format", "wipe", "delete-volume"):
        answer = asked(kraft_audit, action, 11, folder, "--gone", "1,2,3")
        assert answer["verdict"] == "no", action
        assert "no majority" in answer["reason"] or "only copy" in answer["reason"]


def test_a_foreign_disk_is_not_formatted(kraft_audit: Command, tmp_path: Path) -> None:
    folder = tmp_path / "three"
    for node in (1, 2, 3):
        shutil.copytree(f"{THREE}/node-{node}", folder / f"node-{node}")
    meta = folder / "node-3" / "meta.properties"
    lines = meta.read_text().splitlines()
    meta.write_text("\n".join("cluster.id=AAAAAAAAAAAAAAAAAAAAAQ" if "cluster.id" in line else line for line in lines))
    for action in ("format", "wipe", "delete-volume"):
        answer = asked(kraft_audit, action, 3, folder)
        assert (answer["verdict"], "may be that cluster's only copy" in answer["reason"]) == ("no", True), action


# scale-in


@pytest.mark.parametrize(("level", "software"), [(30, "4.3"), (33, "4.4")])
def test_a_dynamic_voter_leaves_and_what_follows_is_printed(
    kraft_audit: Command, tmp_path: Path, level: int, software: str
) -> None:
    answer = asked(kraft_audit, "scale-in", 3, dynamic(tmp_path / "three", level=level, software=software))
    assert answer["verdict"] == "yes"
    assert answer["reason"].endswith("voters 1 and 2 remain. Of 2 voters none may fail then.")
    removed, stopped, registration = answer["next_steps"]
    assert "remove-controller --controller-id 3 --controller-directory-id " in removed
    assert stopped.startswith("Stop node 3 then")
    assert ("unregister-controller" in registration) == (level == 33)


def test_the_last_voter_and_one_without_a_majority_of_others_stay(kraft_audit: Command, tmp_path: Path) -> None:
    folder = dynamic(tmp_path / "three")
    assert verdict(kraft_audit, "scale-in", 3, folder, "--stopped", "2") == "no"
    assert verdict(kraft_audit, "scale-in", 1, dynamic(tmp_path / "one", voters=(1,))) == "no"


def test_a_static_voter_leaves_by_configuration_in_the_printed_order(kraft_audit: Command) -> None:
    answer = asked(kraft_audit, "scale-in", 3, STATIC)
    assert (answer["verdict"], "each set can elect a leader" in answer["reason"]) == ("no", True)
    pasted = next(commands_in(answer["next_steps"][1]))
    assert pasted == f"kraft-audit may-i start 1 {STATIC} --stopped 3 --voters 1,2"
    assert kraft_audit(*shlex.split(pasted)[1:]).code == 0


def test_a_broker_stays_while_replica_lists_name_it(kraft_audit: Command) -> None:
    """Both lists of all its partitions are moved to brokers that are up and not yet in them."""
    newest = {}
    for line in kraft_audit("partitions", JBOD, "-o", "jsonl").out.splitlines():
        row = json.loads(line)
        newest[row["topic"], row["partition"]] = row
    own = {key: row["replicas"] for key, row in newest.items() if row["exists"] and 11 in row["replicas"]}
    answer = asked(kraft_audit, "scale-in", 11, JBOD)
    assert answer["verdict"] == "no"
    assert answer["reason"].startswith(f"{len(own)} partitions still count on broker 11: ")
    step = next(step for step in answer["next_steps"] if "echo " in step)
    file = json.loads(echoed(step))
    moved = {(each["topic"], each["partition"]): each["replicas"] for each in file["partitions"]}
    assert moved == {key: [broker for broker in replicas if broker != 11] for key, replicas in own.items()}
    assert any("kafka-cluster unregister" in step and "--id 11" in step for step in answer["next_steps"])


def test_a_broker_that_no_list_names_is_unregistered(kraft_audit: Command, tmp_path: Path) -> None:
    made = FeatureLog(kraft_version=1, levels={"metadata.version": 30}, voters=(1,))
    made.controller(1, "4.3")
    for broker in (11, 12):
        made.broker(broker, "4.3")
    made.write(tmp_path)
    answer = asked(kraft_audit, "scale-in", 12, tmp_path)
    assert (answer["verdict"], answer["reason"]) == ("yes", "No partition names broker 12.")
    (step,) = answer["next_steps"]
    assert step.startswith("With broker 12 stopped: kafka-cluster unregister --bootstrap-server ")


# roll


def test_a_roll_takes_followers_then_the_leader_then_brokers(kraft_audit: Command) -> None:
    done: list[str] = []
    taken = []
    for _ in range(3):
        answer = asked(kraft_audit, "roll", THREE, *(["--restarted", ",".join(done)] if done else []))
        assert (answer["verdict"], answer["order"][0]) == ("yes", answer["node_id"])
        assert verdict(kraft_audit, "restart", answer["node_id"], THREE) == "yes"
        taken.append(answer["node_id"])
        done.append(str(answer["node_id"]))
    assert taken == [2, 3, 1]
    answer = asked(kraft_audit, "roll", THREE, "--restarted", "1,2,3")
    assert (answer["verdict"], answer["node_id"], answer["order"]) == ("no", None, [11])
    assert answer["reason"].startswith("Node 11: Outage: ")
    assert answer["next_steps"][-1].endswith("--restarted 1,2,3,11")
    answer = asked(kraft_audit, "roll", THREE, "--restarted", "1,2,3,11")
    assert (answer["verdict"], answer["node_id"], answer["order"]) == ("yes", None, [])


def test_a_roll_waits_for_whoever_is_away_and_for_the_isr(kraft_audit: Command) -> None:
    answer = asked(kraft_audit, "roll", ELR)
    assert (answer["verdict"], answer["node_id"]) == ("no", None)
    assert answer["reason"].startswith("Wait. Nodes 11 since ")
    answer = asked(kraft_audit, "roll", JBOD)
    assert (
        answer["reason"] == "Wait. The ISR of 4 partitions is not whole, it lacks broker 12: j-0, j-1, j-4 and 1 more."
    )
    answer = asked(kraft_audit, "roll", THREE, "--stopped", "3")
    assert (answer["verdict"], answer["reason"]) == ("no", "Wait. Node 3 is away.")


def test_a_roll_needs_every_voters_disk(kraft_audit: Command, tmp_path: Path) -> None:
    for node in (1, 2):
        shutil.copytree(f"{THREE}/node-{node}", tmp_path / f"node-{node}")
    answer = asked(kraft_audit, "roll", tmp_path)
    assert (answer["verdict"], "controller 3" in answer["reason"]) == ("undecided", True)
    assert asked(kraft_audit, "roll", tmp_path, "--gone", "3")["verdict"] == "no"  # one more leaves no majority


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("start", "1", THREE, "--standalone"), "--standalone"),
        (("roll", THREE, "--standalone"), "--standalone"),
        (("format", "1", THREE, "--restarted", "2"), "--restarted"),
    ],
)
def test_an_option_of_another_action_is_refused(kraft_audit: Command, words: tuple[str, ...], option: str) -> None:
    ended = kraft_audit("may-i", *words)
    assert (ended.code, option in ended.err) == (2, True)
