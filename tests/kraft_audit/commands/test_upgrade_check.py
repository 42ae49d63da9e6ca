"""`upgrade-check`: its exit codes, its JSON and its refusal of an unknown release, on real disks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders.feature_logs import FeatureLog

NEWER = "samples/mini-4.4.0.tgz"
OLDER = "samples/static-to-dynamic-upgrade.tgz"


def asked(kraft_audit: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
    ended = kraft_audit("upgrade-check", *arguments, "-o", "json")
    return ended.code, json.loads(ended.out)


def test_what_nothing_blocks_is_allowed_with_the_command(kraft_audit) -> None:
    code, answer = asked(kraft_audit, OLDER, "--to", "4.3")
    assert (code, answer["verdict"], answer["release_level"]) == (0, "allowed", 30)
    (command,) = answer["next_steps"]
    assert command.startswith("kafka-features --bootstrap-controller 127.0.0.1:")
    assert "--feature share.version=1" in command


def test_what_a_registration_blocks_names_it_with_its_range_and_since_when(kraft_audit) -> None:
    code, answer = asked(kraft_audit, OLDER, "--to", "4.4.0")
    blockers = answer["features"][0]["blockers"]
    assert (code, answer["verdict"]) == (1, "blocked")
    assert {(each["lowest_level"], each["highest_level"]) for each in blockers} == {(7, 30)}
    text = kraft_audit("upgrade-check", OLDER, "--to", "4.4").out
    for each in blockers:
        assert f"{each['kind']} {each['node_id']}" in text
        assert str(each["since_offset"]) in text


def test_a_downgrade_that_would_drop_records_is_blocked(kraft_audit) -> None:
    code, answer = asked(kraft_audit, NEWER, "--to", "4.2")
    assert code == 1
    assert any("cordoned" in lost for lost in answer["features"][0]["drops"])


def test_the_release_it_is_at_changes_nothing(kraft_audit) -> None:
    code, answer = asked(kraft_audit, NEWER, "--to", "4.4-IV2")
    assert (code, answer["next_steps"]) == (0, [])


@pytest.mark.parametrize("release", ["5.2", "four", "4", ""])
def test_an_unknown_release_is_a_wrong_argument_that_names_the_known_ones(kraft_audit, release: str) -> None:
    ended = kraft_audit("upgrade-check", NEWER, "--to", release)
    assert (ended.code, ended.out) == (2, "")
    assert "3.9, 4.0, 4.1, 4.2, 4.3, 4.4" in ended.err


def test_a_fenced_broker_that_is_a_voter_is_not_unregistered(kraft_audit, tmp_path: Path) -> None:
    """It is the quorum that would be asked to forget it."""
    made = FeatureLog(kraft_version=0, levels={"metadata.version": 19}, voters=(1,))
    for node in (1, 2):
        made.broker(node, "3.7", fenced=True)
    made.write(tmp_path)
    _, answer = asked(kraft_audit, str(tmp_path), "--to", "4.0")
    steps = "\n".join(answer["next_steps"])
    assert "Start brokers 1 and 2 with 4.0" in steps
    assert "unregister" in steps
    assert "--id 2" in steps
    assert "--id 1" not in steps
