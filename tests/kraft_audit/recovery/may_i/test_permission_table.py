"""The table of `may-i`'s answers: what the command says of each node, one by one, and what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraft_audit import cluster
from kraft_audit.recovery.may_i import permission_table

ELR = "samples/elr-06-kill-13-last-replica.tgz"
THREE = "samples/divergence.tgz"
ACTIONS = ["start", "restart", "wipe", "scale-in", "delete-volume"]


def quorum(kraft_audit: Any, *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(kraft_audit("quorum", *arguments, "-o", "json").out)
    return document


@pytest.mark.slow
@pytest.mark.parametrize("sample", [ELR, THREE])
def test_each_row_is_what_the_command_answers(kraft_audit: Any, sample: str) -> None:
    found = quorum(kraft_audit, sample)
    rows = {(row["node_id"], row["action"]): row for row in found["may_i"]}
    controllers = {voter["voter_id"] for voter in found["voters"]}
    assert {key for key in rows if key[0] in controllers} == {(node, each) for node in controllers for each in ACTIONS}
    for node in sorted(controllers | {11, 13} if sample == ELR else controllers | {11}):
        for action in ACTIONS if node in controllers else [each for each in ACTIONS if each != "scale-in"]:
            answer = json.loads(kraft_audit("may-i", action, node, sample, "-o", "json").out)
            row = rows.get((node, action))
            if row is None:
                assert (node in controllers, answer["verdict"]) == (False, "yes")
                continue
            same = ("verdict", "reason", "next_steps")
            assert {name: row[name] for name in same} == {name: answer[name] for name in same}
            assert answer["cannot_be_lost"] == found["cannot_be_lost"]


def test_people_see_the_same_answers_joined(kraft_audit: Any) -> None:
    lines = kraft_audit("quorum", ELR).out.splitlines()
    (line,) = [line for line in lines if line.startswith("broker 13") and "wipe" in line]
    assert "wipe, delete-volume  no " in line
    assert "elr-m1-0" in line
    assert any("cannot be lost by any election" in line for line in lines)


@pytest.mark.parametrize(
    ("place", "name", "value", "why"),
    [
        (cluster, "PERMISSION_BYTES_MAX", 0, "MiB would be replayed"),
        (permission_table, "CONTROLLERS_MAX", 0, "1 controllers"),
        (permission_table, "BROKER_LOOKS_MAX", 0, "4 brokers"),
    ],
)
def test_beyond_a_bound_it_is_not_asked_and_said(
    kraft_audit: Any, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, value: int, why: str
) -> None:
    monkeypatch.setattr(place, name, value)
    found = quorum(kraft_audit, ELR)
    assert why in found["may_i_skipped"]
    assert f"kraft-audit may-i ACTION NODE {ELR}" in found["may_i_skipped"]
    role = {"CONTROLLERS_MAX": "controller", "BROKER_LOOKS_MAX": "broker"}.get(name)
    assert not [row for row in found["may_i"] if role in (None, row["role"])]
    assert found["replicas"], "what quorum shows stays"
    assert why in kraft_audit("quorum", ELR).out


def test_of_a_named_capture_nothing_is_asked(kraft_audit: Any) -> None:
    found = quorum(kraft_audit, THREE, "--capture", "11-dead-node-diverged")
    assert found["may_i"] == []
    assert "newest capture" in found["may_i_skipped"]


@pytest.mark.slow
def test_the_page_of_a_cluster_has_the_table(kraft_audit: Any, tmp_path: Path) -> None:
    assert kraft_audit("report", ELR, "--out", tmp_path / "site").code == 0
    (page,) = (tmp_path / "site" / "clusters").glob("*.html")
    html = page.read_text()
    start = html.index('id="may-i"')
    section = html[start : html.index("</details>", start)]
    found = quorum(kraft_audit, ELR)
    for row in found["may_i"]:
        assert f"{row['role']} {row['node_id']}</th>" in section
    assert "has the only copy of elr-m1-0 that Kafka can elect" in section
    assert "cannot be lost by any election" in section
