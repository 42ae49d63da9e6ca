"""`rescue --plan`, `rescue` and `restore-kit` on a lake: the answer of the node dirs that it read, also without these.

The witness is the same question about the node dirs themselves, kept beside the test.
"""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import kraft_audit as audit
from kraft_codec.files.state_files import QuorumState
from tests.builders import without_spark
from tests.builders.captures import SMALL_CORPUS
from tests.builders.lakes import write_fleet
from tests.builders.logs import write_node
from tests.builders.printed_scripts import calls_of
from tests.builders.restorable_logs import RestorableLog, hostile_log

pytestmark = pytest.mark.slow

DIVERGENCE = SMALL_CORPUS / "divergence"
OF_THE_LAKE = ("number", "capture", "path", "branch", "archived_ms")
"""What a copy in a lake is called by, and where; the rest is what the disk held."""
ENDPOINT = ("--endpoint", "127.0.0.1:9093")


def lake_of(folder: Path, *readings: Path, **more: list[Path | str]) -> Path:
    """A lake that read the node dirs below each of these folders, one after the other; `more`: other clusters."""
    for source in readings:
        shutil.rmtree(folder / "read", ignore_errors=True)
        shutil.copytree(source, folder / "read")
        fleet = write_fleet(folder, {"one": [folder / "read"], **more})
        assert without_spark.run(fleet).exit_code == 0
    shutil.rmtree(folder / "read")
    return folder / "lake"


def answer(kraft_audit: Any, *arguments: object, code: int = 0) -> dict[str, Any]:
    ended = kraft_audit(*arguments, "-o", "json")
    assert ended.code == code, ended.err or ended.out
    return dict(json.loads(ended.out))


def ranked(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """The copies, best first, with what each keeps and loses, and without where each was read."""
    outcomes = [outcome | {"copy": dict(outcome["copy"])} for outcome in plan["outcomes"]]
    for outcome in outcomes:
        for name in OF_THE_LAKE:
            del outcome["copy"][name]
    return outcomes


def commands(kit: dict[str, Any]) -> dict[str, Any]:
    return {name: kit[name] for name in ("commands", "blanks", "left_out", "object_count", "is_complete")}


def rows(path: Path) -> dict[str, list[str]]:
    """The state that a node dir begins with, without which record made each row."""
    with audit.open(str(path)) as clusters:
        (cluster,) = clusters
        state = cluster.state()
    names = {"from_offset", "from_epoch", "timestamp_ms", "cause", "possible_causes", "cause_broker_id", "plan"}
    return {
        table: sorted(str({key: row[key] for key in row if key not in names}) for row in state.rows(table))
        for table in state.tables
    }


class LaterLost:
    """Nodes 1 and 2 wrote on, and are gone; the disk of node 3 ends where it was cut off from them.

    `before` are the disks as the lake read them, `now` is what is left.
    """

    def __init__(self, folder: Path, *, secrets: bool = False) -> None:
        log = RestorableLog().start(11, 12)
        log.create("early", [11], [12], retention_ms="1")
        log.acl(2, "early", "User:alice", 3)
        if secrets:
            log.scram("early-user", 1, 4096)
        cut = log.content
        self.cut = log.next_offset
        log.create("late", [11, 12])
        log.config("TOPIC", "early", "retention.ms", "2")
        log.quota({"user": "bob"}, "producer_byte_rate", 9.0)
        self.end = log.next_offset
        state = QuorumState(1, 1, 1, -1, "A" * 22)
        self.before, self.now = folder / "both" / "1-before", folder / "both" / "2-now"
        self.both = folder / "both"
        for node, content in ((1, log.content), (2, log.content), (3, cut)):
            write_node(self.before, node, content, state=state)
        write_node(self.now, 3, cut, state=state)


def test_a_lake_alone_answers_as_its_disks_do(kraft_audit: Any, tmp_path: Path) -> None:
    disks = DIVERGENCE / "11-dead-node-diverged"
    lake = lake_of(tmp_path, disks)
    gone = ("--gone", "1,2,3")
    own, theirs = (answer(kraft_audit, "rescue", "--plan", path, *gone) for path in (lake, disks))
    by_node = [{each["copy"]["node_id"]: each for each in ranked(plan)} for plan in (own, theirs)]
    assert by_node[0].keys() == by_node[1].keys() != set()
    for node_id, outcome in by_node[0].items():
        # A lake says nothing of what its nodes wrote after it read them.
        assert outcome["unknown_from"] == outcome["keeps_to"]
        assert outcome | {"unknown_from": None} == by_node[1][node_id] | {"unknown_from": None}
    for more in ((), ("--at", "20"), ("--at", "committed"), ("--only-lost",)):
        kits = [answer(kraft_audit, "restore-kit", path, *more) for path in (lake, disks)]
        assert commands(kits[0]) == commands(kits[1])
        assert kits[0]["commands"] or more


def test_without_a_disk_a_voter_is_missing_until_it_is_said_to_be_gone(kraft_audit: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, DIVERGENCE / "12-after-truncation")
    assert answer(kraft_audit, "rescue", "--plan", lake, code=1)["verdict"] == "refused"
    plan = answer(kraft_audit, "rescue", "--plan", lake, "--gone", "1,2", code=4)
    assert plan["next_steps"] == [
        f"Copy the disk of node 3 into a folder to read with --lake {lake}, and ask again.",
        "Is node 3 lost with its disk? Then add --gone 1,2,3.",
    ]
    assert answer(kraft_audit, "rescue", "--plan", lake, "--gone", "1,2,3")["verdict"] == "a plan stands"


def test_every_secret_of_a_lake_is_a_blank(kraft_audit: Any, tmp_path: Path) -> None:
    disks = tmp_path / "disks"
    write_node(disks, 1, hostile_log(4).content)
    lake = lake_of(tmp_path, disks)
    own, theirs = (answer(kraft_audit, "restore-kit", path) for path in (lake, disks))
    assert commands(own) == commands(theirs)
    assert any("PASSWORD" in blank["name"] for blank in own["blanks"])
    assert "redacted:" not in json.dumps(own["commands"])


def files_of(folder: Path) -> list[tuple[str, bytes, int]]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [(str(path), path.read_bytes(), path.stat().st_mtime_ns) for path in found]


def test_what_only_the_lake_still_holds_is_ranked_first(kraft_audit: Any, tmp_path: Path) -> None:
    story = LaterLost(tmp_path)
    lake = lake_of(tmp_path, story.before)
    as_read = files_of(lake)
    gone = ("--gone", "1,2")
    with_lake = answer(kraft_audit, "rescue", "--plan", story.now, *gone, "--lake", lake)
    with_disks = answer(kraft_audit, "rescue", "--plan", story.both, *gone)
    assert ranked(with_lake) == ranked(with_disks)
    best = with_lake["outcomes"][with_lake["chosen"]]["copy"]
    assert (best["node_id"], best["end_offset"], best["path"]) == (1, story.end, str(lake))
    assert [each["copy"]["node_id"] for each in with_lake["outcomes"]] == [1, 2, 3]
    # The end of the disk that is left is not the end: the disks alone say that they may lose something, the lake what.
    alone = answer(kraft_audit, "rescue", "--plan", story.now, *gone)
    assert (alone["outcomes"][0]["loses"], alone["outcomes"][0]["copy"]["node_id"]) == ([], 3)
    assert "late" in json.dumps(with_lake["outcomes"][2]["loses"])
    assert files_of(lake) == as_read


def test_real_disks_that_diverged_are_ranked_with_those_of_the_lake(kraft_audit: Any, tmp_path: Path) -> None:
    """Node 2 alone is left, with a suffix that was never committed: the lake has what nodes 1 and 3 committed since."""
    lake = lake_of(tmp_path, DIVERGENCE / "11-dead-node-diverged")
    now = tmp_path / "now"
    shutil.copytree(DIVERGENCE / "11-dead-node-diverged" / "node-2", now / "node-2")
    plan = answer(kraft_audit, "rescue", "--plan", now, "--gone", "1,3", "--lake", lake)
    found = [(each["copy"]["node_id"], each["copy"]["last_epoch"], each["keeps_to"]) for each in plan["outcomes"]]
    assert found == [(1, 3, 52), (3, 3, 52), (11, 3, 52), (2, 2, 27)]
    alone = answer(kraft_audit, "rescue", "--plan", now, "--gone", "1,3")
    assert alone["outcomes"][0]["copy"]["node_id"] == 2


def test_a_dir_rescued_from_a_lake_holds_what_the_dead_disk_did(kraft_audit: Any, tmp_path: Path) -> None:
    story = LaterLost(tmp_path)
    lake = lake_of(tmp_path, story.before)
    common = ("--from", "1", *ENDPOINT)
    made = [tmp_path / name for name in ("beside", "alone", "disks")]
    kraft_audit("rescue", story.now, "--gone", "1,2", "--lake", lake, *common, "--out", made[0])
    kraft_audit("rescue", lake, "--gone", "1,2,3", *common, "--out", made[1])
    assert kraft_audit("rescue", story.before, "--gone", "1,2,3", *common, "--out", made[2]).code == 0
    states = [rows(path) for path in made]
    assert any("late" in row for row in states[2]["topic_changes"])
    for state in states[:2]:
        differs = {table for table in state if state[table] != states[2][table]}
        assert differs <= {"voter_sets"}  # each dir has a directory id of its own
    for path in made:  # what a rescue lost is found again where it read the copies
        assert answer(kraft_audit, "restore-kit", path, "--only-lost")["commands"] == []


def test_what_a_rescue_from_the_worse_copy_lost_is_found_in_the_lake(kraft_audit: Any, tmp_path: Path) -> None:
    story = LaterLost(tmp_path)
    lake = lake_of(tmp_path, story.before)
    out = tmp_path / "rescued"
    ended = kraft_audit(*("rescue", story.now, "--gone", "1,2", "--lake", lake, "--from", "3", *ENDPOINT, "--out", out))
    assert ended.code == 0, ended.err
    kit = answer(kraft_audit, "restore-kit", out, "--only-lost")
    assert [each["subject"] for each in kit["commands"]] == ["late", "early", "user bob"]
    moved = story.now.rename(tmp_path / "elsewhere")
    again = answer(kraft_audit, "restore-kit", out, "--only-lost", "--old-disks", moved, "--lake", lake)
    assert commands(again) == commands(kit)


def test_secrets_are_taken_from_a_disk_that_has_them_or_refused(kraft_audit: Any, tmp_path: Path) -> None:
    """Node 3's disk holds the credential, and the lake what followed: together they make the whole state."""
    story = LaterLost(tmp_path, secrets=True)
    lake = lake_of(tmp_path, story.before)
    arguments = ("--from", "1", *ENDPOINT)
    refused = kraft_audit("rescue", lake, "--gone", "1,2,3", *arguments, "--out", tmp_path / "refused")
    assert (refused.code, refused.out) == (1, "")
    assert "SCRAM credential of early-user" in refused.err
    assert not (tmp_path / "refused").exists()
    whole = tmp_path / "whole"
    assert kraft_audit("rescue", story.now, "--gone", "1,2", "--lake", lake, *arguments, "--out", whole).code == 0
    (snapshot,) = (whole / "__cluster_metadata-0").glob("*.checkpoint")
    assert b"salt-of-sixteen-b" in snapshot.read_bytes()
    printed = kraft_audit("restore-kit", story.now, "--lake", lake, "--only-lost")
    assert "salt-of" not in printed.out + printed.err


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_lost_suffix_is_restored_from_the_lake(kraft_audit: Any, tmp_path: Path, epoch: int) -> None:
    """Dirs that were rewritten: cut, or cut and written on in a later epoch. The old suffix is in the lake alone."""
    story = LaterLost(tmp_path)
    lake = lake_of(tmp_path, story.before)
    later = RestorableLog().start(11, 12)
    later.create("early", [11], [12], retention_ms="1")
    later.acl(2, "early", "User:alice", 3)
    if epoch > 1:
        later.lead(3, epoch)
        later.create("since", [11])
    shutil.rmtree(story.now)
    for node in (1, 2, 3):
        write_node(story.now, node, later.content, state=QuorumState(1, 3, epoch, -1, "A" * 22))
    kit = answer(kraft_audit, "restore-kit", story.now, "--only-lost", "--lake", lake)
    assert [each["subject"] for each in kit["commands"]] == ["late", "early", "user bob"]
    if epoch > 1:  # two readings of one lake, and two captures side by side, say the same
        refused = answer(kraft_audit, "rescue", "--plan", story.now, "--gone", "1,2", "--lake", lake, code=1)
        assert "both committed" in refused["reason"]
        witness = answer(kraft_audit, "restore-kit", story.both, "--only-lost")
        assert commands(kit) == commands(witness)
        lake = lake_of(tmp_path, story.now)
        assert commands(answer(kraft_audit, "restore-kit", lake, "--only-lost")) == commands(witness)
    script = kraft_audit("restore-kit", story.now, "--only-lost", "--lake", lake).out
    calls = calls_of(script, tmp_path / "bash", BOOTSTRAP_SERVER="b:9092")
    assert len(calls) == len(kit["commands"])


def test_what_cannot_be_asked_of_a_lake_is_said(kraft_audit: Any, tmp_path: Path) -> None:
    story = LaterLost(tmp_path)
    lake = lake_of(tmp_path, story.before, two=[DIVERGENCE / "12-after-truncation"])
    several = kraft_audit("rescue", "--plan", lake)
    assert (several.code, "(one)" in several.err, "(two)" in several.err) == (2, True, True)
    assert kraft_audit("rescue", "--plan", lake, "--cluster", "one").code == 1
    for arguments in (
        ["rescue", "--plan", lake, "--cluster", "three"],
        ["rescue", "--plan", lake, "--cluster", "one", "--lake", lake],
        ["restore-kit", lake, "--cluster", "one", "--out", lake / "kit"],
        ["rescue", story.now, "--lake", lake, "--from", "3", "--out", lake / "new"],
    ):
        assert kraft_audit(*arguments).code == 2, arguments
    no_lake = kraft_audit("rescue", "--plan", story.now, "--lake", tmp_path / "none")
    assert (no_lake.code, "no such folder" in no_lake.err) == (3, True)
    stranger = tmp_path / "stranger"
    log = RestorableLog(timestamp_ms=1_600_000_000_000).start(1)
    write_node(stranger, 9, log.content, directory_id="A" * 22)
    refused = kraft_audit("rescue", "--plan", stranger, "--lake", lake)
    assert (refused.code, "other histories" in refused.err) == (2, True)
    checked = kraft_audit("check", lake)
    assert (checked.code, "a lake, not log dirs" in checked.err) == (3, True)


def test_what_reads_no_lake_says_how_to_read_its_log(kraft_audit: Any, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, DIVERGENCE / "12-after-truncation")
    refused = kraft_audit("state", lake)
    assert refused.code == 3
    export = shlex.split(refused.err.split("`")[1])
    assert export == ["kraft-audit", "lake", "export", str(lake), "--out", "DIR"]
    assert kraft_audit(*export[1:-1], tmp_path / "exported").code == 0
    topics = ("state", "--only", "topics", "--output", "csv")
    shown, wanted = (kraft_audit(*topics, path) for path in (tmp_path / "exported", DIVERGENCE / "12-after-truncation"))
    assert (shown.code, shown.out) == (0, wanted.out)
