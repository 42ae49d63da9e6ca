"""`simulate`: log dirs that the other commands read, the same for the same seed."""

from __future__ import annotations

import json
from pathlib import Path

from kraft_engine import tree_hash
from tests.builders.documented import titled


def test_what_is_simulated_is_found(kraft_audit, tmp_path: Path) -> None:
    ended = kraft_audit("simulate", "last-replica-standing", "--seed", "7", "--out", tmp_path / "a")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(kraft_audit("check", tmp_path / "a", "--fail-on", "never", "-o", "json").out)
    assert "KP001" in {row["rule"] for row in found if row["status"] == "raised"}
    kraft_audit("simulate", "last-replica-standing", "--seed", "7", "--out", tmp_path / "b")
    assert tree_hash(tmp_path / "a") == tree_hash(tmp_path / "b")


def test_a_fleet(kraft_audit, tmp_path: Path) -> None:
    assert (
        kraft_audit("simulate", "fleet", "--clusters", "2", "--partitions", "3", "--out", tmp_path / "fleet").code == 0
    )
    document = json.loads(kraft_audit("state", tmp_path / "fleet", "--only", "partitions", "-o", "json").out)
    assert [len(cluster["partitions"]) for cluster in document] == [3, 3]


def test_a_fleet_with_more_changes_begins_with_the_same_bytes(kraft_audit, tmp_path: Path) -> None:
    def logs(changes: int) -> list[bytes]:
        size = ("--clusters", "2", "--partitions", "3", "--changes", str(changes))
        assert kraft_audit("simulate", "fleet", *size, "--out", tmp_path / str(changes)).code == 0
        return [path.read_bytes() for path in sorted((tmp_path / str(changes)).glob("*/node-*/__*-0/*.log"))]

    none, few, more = logs(0), logs(256), logs(640)
    assert len(none) == len(few) == len(more) == 6
    assert all(first and second.startswith(first) for first, second in zip(none, few, strict=True))
    grown = [(len(second), len(third)) for second, third in zip(few, more, strict=True) if third.startswith(second)]
    heads = [len(octets) for octets in none]
    # 256 changes, and 384 more: every batch of changes has the same size.
    assert [(after - before) * 2 for before, after in grown] == [
        (before - head) * 3 for (before, _), head in zip(grown, heads, strict=True)
    ]


def test_wrong_usage(kraft_audit, tmp_path: Path) -> None:
    reported = dict(line.split(maxsplit=1) for line in kraft_audit("simulate", "list").out.splitlines())
    assert reported["last-replica-standing"].endswith(".")
    assert {"random", "random-storm", "fleet"} <= reported.keys()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments, word in (
        (["nonsense", "--out", tmp_path / "x"], "nonsense"),
        (["last-replica-standin", "--out", tmp_path / "x"], "last-replica-standing"),
        (["healthy"], "--out"),
        (["healthy", "--out", tmp_path / "full"], "full"),
    ):
        ended = kraft_audit("simulate", *arguments)
        assert (ended.code, len(ended.error_lines)) == (2, 1)
        assert word in ended.err


def test_a_file_with_options(kraft_audit, tmp_path: Path) -> None:
    file = tmp_path / "quiet.yaml"
    file.write_text("brokers: []\nsteps: [settle, {capture: quiet}]\n")
    arguments = ["simulate", file, "--static", "--voters", "5", "--release", "4.0.2", "--seeds", "2"]
    ended = kraft_audit(*arguments, "--out", tmp_path / "run")
    assert (ended.code, ended.err) == (0, "")
    assert len(list((tmp_path / "run" / "seed-2" / "quiet").iterdir())) == 5
    for wrong, fact in (
        (["random", "--release", "four"], "four"),
        (["random", "--metadata-version", "9.9"], "9.9"),
        (["healthy", "--voters", "5"], "--voters"),
        (["random", "--without", "fsync"], "fsync"),
        ([tmp_path / "none.yaml"], "none.yaml"),
        (["fleet", "--elr"], "--elr"),
        (["healthy", "--changes", "5"], "--changes"),
    ):
        ended = kraft_audit("simulate", *wrong, "--out", tmp_path / "x")
        assert (ended.code, len(ended.error_lines)) in {(2, 1), (3, 1)}, wrong
        assert fact in ended.err


def test_a_rule_off_ends_with_one(kraft_audit, tmp_path: Path) -> None:
    ended = kraft_audit("simulate", "random-storm", "--without", "votes_from_a_majority", "--out", tmp_path / "run")
    assert ended.code == 1
    assert "INVARIANT BROKEN" in ended.out


def test_a_failing_seed_is_shortened_and_played(kraft_audit, tmp_path: Path) -> None:
    rule = ["--without", "votes_from_a_majority"]
    ended = kraft_audit("simulate", "random-storm", *rule, "--shrink", "--out", tmp_path / "short")
    assert ended.code == 1
    assert (tmp_path / "short" / "trace.yaml").read_text() == ended.out
    assert (tmp_path / "short" / "violation").is_dir()
    ended = kraft_audit("simulate", tmp_path / "short" / "trace.yaml", "--out", tmp_path / "run")
    assert ended.code == 1
    assert "INVARIANT BROKEN" in ended.out
    assert kraft_audit("simulate", "random-storm", "--shrink", "--events", "200").code == 0
    for wrong in (["healthy"], ["random", "--shrink"], [tmp_path / "short" / "trace.yaml"]):
        ended = kraft_audit("simulate", *wrong)
        assert (ended.code, len(ended.error_lines)) == (2, 1)


def test_a_loss_of_committed_records_is_reported(kraft_audit, project_root: Path, tmp_path: Path) -> None:
    """Two of three voters come back empty under their old ids, and elect themselves."""
    file = tmp_path / "two-voters-wiped.yaml"
    file.write_text(titled(project_root / "docs" / "simulate.md")["two-voters-wiped.yaml"])
    assert kraft_audit("simulate", file, "--out", tmp_path / "run").code == 0
    truth = [json.loads(line) for line in (tmp_path / "run" / "truth.jsonl").read_text().splitlines()]
    before, after = (line for line in truth if line["kind"] == "capture")
    assert before["committed_offset"] > 0
    assert any(line["kind"] == "damage_effect" for line in truth)
    rows = json.loads(kraft_audit("check", tmp_path / "run", "--fail-on", "never", "-o", "json").out)
    raised = {row["rule"]: row for row in rows if row["status"] == "raised"}
    assert {"KQ003", "KQ014", "KQ020"} <= raised.keys()
    assert after["captured"] == [2, 3]


def test_boot_prints_what_to_type(kraft_audit, tmp_path: Path) -> None:
    ended = kraft_audit("simulate", "random", "--voters", "3", "--events", "2500", "--out", tmp_path / "run", "--boot")
    assert ended.code == 0
    assert "kafka-server-start.sh" in ended.out
    assert "jdk.net.hosts.file" in ended.out
