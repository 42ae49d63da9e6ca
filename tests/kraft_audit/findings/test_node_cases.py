"""Captures of real clusters where one file of a node contradicts the log: what `check` and `may-i` must say."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

CHECKED = [
    (
        "stale-log-three-voters",
        1,
        "UNDECIDED   The logs are older than they were: leader-epoch-checkpoint of nodes 1, 2",
    ),
    ("snapshots-over-time", 3, "It reached at least offset 274018, epoch 38"),
    ("reformatted-quorum-without-logs", 3, "quorum-state names leader 1 in epoch 22 and voters 1, 2 and 3"),
    ("later-copy-without-log", 3, "It reached at least offset 117117, epoch 38"),
    ("strangers-without-log", 3, "(history 2 of 2)"),
    ("many-snapshot-only-one-id", 3, "(history 3 of 3)"),
    ("emptied-dir", 3, "UNREADABLE  Every file here is empty"),
]
NEVER = ("KQ002", "KQ003", "KQ020", "KQ011")
ASKED = [
    (
        "static-scale-out-may-i",
        "1-new-formatted-all-stopped",
        "start 2 --stopped 1",
        1,
        "they elect 2 or 3 with an empty",
    ),
    (
        "static-scale-out-may-i",
        "1-new-formatted-all-stopped",
        "start 3 --stopped 1",
        1,
        "they elect 2 or 3 with an empty",
    ),
    (
        "static-scale-out-may-i",
        "2-new-pair-leads",
        "start 1",
        1,
        "voter 1 on nodes 1 and 11; voters 1, 2 and 3 on nodes",
    ),
    ("voters-dropped-from-config", "0-healthy", "restart 1", 0, "on 1, 2 and 3 still reads 1,2,3."),
    (
        "voters-dropped-from-config",
        "1-rolled-1",
        "restart 2",
        1,
        "names no voters on node 1; voters 1, 2 and 3 on nodes",
    ),
    ("voters-dropped-from-config", "2-rolled-2", "restart 3", 1, "names no voters on nodes 1 and 2;"),
    ("voters-dropped-from-config", "4-later", "start 1", 4, "nodes 1, 2 and 3 names no voters"),
    (
        "controllers-emptied",
        "1-controllers-formatted",
        "start 1 --stopped 11,12",
        1,
        "No voter holds them any more; which other disk does: kraft-audit rescue --plan",
    ),
    ("foreign-cluster-id", "s11", "start 3", 1, "names cluster kQHv733NQIew9aw9uCXnDA"),
    ("foreign-cluster-id", "s6", "start 3", 1, "names cluster 9z_aU6Y3L2BpoqWcmcV-nw=="),
]


@pytest.mark.parametrize(("case", "code", "said"), CHECKED)
def test_check_claims_no_more_than_the_files_show(
    kraft_audit: Any, cases: Path, case: str, code: int, said: str
) -> None:
    answer = kraft_audit("check", cases / case)
    assert answer.code == code
    assert said in answer.out
    assert not [word for word in NEVER if word in answer.out]


@pytest.mark.parametrize(("case", "capture", "asked", "code", "said"), ASKED)
def test_may_i_asks_every_file(
    kraft_audit: Any, cases: Path, case: str, capture: str, asked: str, code: int, said: str
) -> None:
    action, node_id, *options = asked.split()
    answer = kraft_audit("may-i", action, node_id, cases / case / "in.tgz", "--capture", capture, *options)
    assert answer.code == code
    assert said in answer.out


@pytest.mark.parametrize(
    ("case", "capture", "code", "said"),
    [
        ("foreign-cluster-id", "s6", 1, "CRITICAL    KQ010 foreign-replica"),
        ("foreign-cluster-id", "s11", 1, "CRITICAL    KQ010 foreign-replica"),
        ("static-scale-out-may-i", "2-new-pair-leads", 1, "CRITICAL    KV017 voters-disagree"),
        ("voters-dropped-from-config", "1-rolled-1", 1, "CRITICAL    KV017 voters-disagree"),
        (
            "voters-dropped-from-config",
            "4-later",
            1,
            "Stop all controllers, set controller.quorum.voters alike on every node",
        ),
        ("voters-dropped-from-config", "0-healthy", 0, "OK "),
        ("software-below-metadata-version", "2-rolled-back-3", 1, "needs Kafka 4.0 or later"),
        ("software-below-metadata-version", "2-rolled-back-3", 1, "with its own disk and Kafka 4.0 or later"),
        ("controllers-emptied", "1-controllers-formatted", 1, "Only nodes 11 and 12 hold the log, to offset 33"),
        ("disk-replaced", "2-new-disk-formatted", 1, "bring the log dir of broker 12 back that holds it"),
        ("disk-replaced", "3-new-disk-in-use", 1, "records of solo-2 may be lost"),
    ],
)
def test_check_of_one_capture(kraft_audit: Any, cases: Path, case: str, capture: str, code: int, said: str) -> None:
    answer = kraft_audit("check", cases / case / "in.tgz", "--capture", capture)
    assert answer.code == code
    assert said in answer.out


def test_of_a_voter_that_is_alone_the_last_leader_is_asked_about_with_the_other_stopped(
    kraft_audit: Any, cases: Path
) -> None:
    path = cases / "isolated-voter-called-quorum-stopped"
    answer = kraft_audit("check", path)
    assert answer.code == 1
    (line,) = [line for line in answer.out.splitlines() if "Otherwise start node 3, the last leader" in line]
    assert line.endswith(f"   kraft-audit may-i start 3 {path} --stopped 2")


def test_where_every_voter_is_empty_the_brokers_disks_are_named_and_no_voters(
    kraft_audit: Any, cases: Path, tmp_path: Path
) -> None:
    with tarfile.open(cases / "controllers-emptied" / "in.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    capture = tmp_path / "1-controllers-formatted"
    for node in (1, 2):  # formatted after the election in which they voted, as these times show
        for path in (capture / f"node-{node}").iterdir():
            path.touch()
    lines = kraft_audit("check", capture).out.splitlines()
    assert (
        "NEXT        Do not start nodes 1 or 2: the others are no majority. Copy every disk before anything else."
        in lines
    )
    assert any(line.endswith(f"   kraft-audit rescue --plan {capture} --gone 1,2,3") for line in lines)


def test_voters_that_name_none_are_started_one_by_one_after_all_were_stopped(kraft_audit: Any, cases: Path) -> None:
    path = cases / "voters-dropped-from-config" / "in.tgz"
    answer = kraft_audit("check", path, "--capture", "4-later")
    (line,) = [line for line in answer.out.splitlines() if "Stop all controllers, set controller.quorum.voters" in line]
    assert line.endswith(f"   kraft-audit may-i start 1 {path} --voters 1,2,3 --stopped 2,3")


NEVER_SAID = [
    ("observers-never-promoted", "6-only-2-and-3", "SINGLE NODE"),
    ("static-scale-out-may-i", "2-new-pair-leads", "MEMBERS"),
    ("controllers-emptied", "1-controllers-formatted", "Do not start node 1 or 2 before"),
]


@pytest.mark.parametrize(("case", "capture", "said"), NEVER_SAID)
def test_check_does_not_say(kraft_audit: Any, cases: Path, case: str, capture: str, said: str) -> None:
    answer = kraft_audit("check", cases / case / "in.tgz", "--capture", capture)
    assert answer.out
    assert said not in answer.out


def test_no_order_of_starts_uses_a_replaced_disk(kraft_audit: Any, cases: Path) -> None:
    """solo-2 was in the log dir that failed; broker 12 also stopped, and other partitions wait for it."""
    answer = kraft_audit("recover-plan", cases / "disk-replaced" / "in.tgz", "--capture", "2-new-disk-formatted")
    assert "Start or restart broker 12 only with the log dir that holds solo-2" in answer.out
    assert "Start broker 12" not in answer.out


def test_brokers_that_gave_up_the_role_are_unregistered_for_an_upgrade(kraft_audit: Any, cases: Path) -> None:
    path = cases / "ghost-brokers-after-role-change" / "in.tgz"
    answer = kraft_audit("upgrade-check", path, "--capture", "1-controllers-only", "--to", "4.1")
    for broker in (1, 2, 3):
        assert f"unregister --bootstrap-controller 127.0.0.1:27161 --id {broker}" in answer.out
    assert "Start brokers 1, 2 and 3" not in answer.out
