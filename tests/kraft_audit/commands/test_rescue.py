"""`rescue`: what it writes holds the state of the copy, what it refuses, and that it never touches what is there."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import kraft_audit
from kraft_audit.replay.cluster_state import ClusterState
from kraft_codec.records.batch import Batch, read_batches
from tests.builders.captures import SMALL_CORPUS
from tests.builders.rescues import AFTER_ELECTION

STATIC = f"{SMALL_CORPUS}/static-to-dynamic-upgrade/01-kafka-3.5.2"
FENCED = ("leader_epoch", "partition_epoch")
BOOKKEEPING = {"from_offset", "from_epoch", "timestamp_ms", "cause", "cause_broker_id", "election", "plan"}


def state(path: Path | str, at: int | None = None) -> ClusterState:
    with kraft_audit.open(str(path)) as clusters:
        (cluster,) = clusters
        return cluster.state(at)


def rows(found: ClusterState, table: str, *, added: int = 0) -> list[dict[str, Any]]:
    return sorted(
        (
            {name: value + added if name in FENCED else value for name, value in row.items() if name not in BOOKKEEPING}
            for row in found.rows(table)
            if row.get("exists", True)
        ),
        key=str,
    )


def test_the_rescued_dir_holds_the_state_at_the_cut(kraft_audit, one_left: Path, tmp_path: Path) -> None:
    before = state(one_left)
    ended = kraft_audit("rescue", one_left, "--gone", "1,2", "--from", "3", "--out", tmp_path / "new", "-o", "json")
    written = json.loads(ended.out)
    assert ended.code == 0
    after = state(tmp_path / "new")
    for table in ("topic_changes", "broker_changes", "config_changes", "controller_changes"):
        assert rows(after, table) == rows(before, table), table
    partitions = "partition_changes"
    assert rows(after, partitions) == rows(before, partitions, added=1_000)
    assert after.offset + 1 == written["offset"] > before.offset + 1
    assert after.voter_set is not None
    assert [voter["voter_id"] for voter in after.voter_set["voters"]] == [3]
    for name, digest in written["files"].items():
        assert hashlib.sha256((tmp_path / "new" / name).read_bytes()).hexdigest() == digest
    declared = json.loads((tmp_path / "new" / "rescue.json").read_text())
    assert (declared["declared"], declared["cut"], declared["read_from"]["node_id"]) == ("rescue", 58, 3)


def test_the_procedure_names_ids_hosts_and_paths_in_order(kraft_audit, one_left: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    arguments = ["--gone", "1,2", "--from", "3", "--endpoint", "c9.example:9093", "--node-id", "9", "--out", target]
    procedure = json.loads(kraft_audit("rescue", one_left, *arguments, "-o", "json").out)["procedure"]
    steps = ["\n".join([step["text"], *step["settings"], *step["commands"]]) for step in procedure]
    marks = (
        "Power off",
        "elects itself",
        "Stop all brokers",
        "back up their data dirs",
        "bootstrap.servers=c9.example:9093",
        "Start only one rescued dir",
        f"Copy what is in {target} to a new empty folder on host c9.example, chown it to Kafka's user, and set",
        "Take controller.properties to that host",
        "describe --status",
    )
    marks += ("Start all brokers", "-stray", "rotate", "ISR and ELR", "Feature levels", "--no-initial-controllers")
    places = [next(place for place, step in enumerate(steps) if mark in step) for mark in marks]
    assert places == sorted(places)
    assert str(one_left / "node-3") in steps[0]


def test_a_cut_leaves_out_what_came_after_it(kraft_audit, one_left: Path, tmp_path: Path) -> None:
    """Offset 40 need not end an operation: the cut is at or before it, and what follows is named."""
    ended = kraft_audit(
        *("rescue", one_left, "--gone", "1,2", "--from", "3", "--to", "40", "--out", tmp_path / "new", "-o", "json")
    )
    written = json.loads(ended.out)
    assert written["cut"] <= 41
    assert rows(state(tmp_path / "new"), "topic_changes") == rows(state(one_left, written["cut"] - 1), "topic_changes")
    lost = {operation["subject"].split(" ")[0] for operation in written["lost_after_cut"]}
    topics = {row["topic"] for row in rows(state(one_left), "topic_changes")}
    remaining = {row["topic"] for row in rows(state(tmp_path / "new"), "topic_changes")}
    assert topics - remaining <= lost
    (line,) = [line for step in written["procedure"] for line in step["commands"] if "restore-kit" in line]
    advice = shlex.split(line.partition("kraft-audit ")[2])
    assert kraft_audit(*advice).code == 0
    script = (tmp_path / "new-kit" / "restore.sh").read_text()
    assert {name for name in topics - remaining if f"--topic {name} " in script} == topics - remaining


def test_nothing_is_written_where_the_plan_does_not_stand(kraft_audit, one_left: Path, tmp_path: Path) -> None:
    for gone, code in ((["--gone", "2"], 1), (["--gone", "2,3"], 4)):
        ended = kraft_audit("rescue", one_left, *gone, "--from", "3", "--out", tmp_path / "new")
        assert (ended.code, ended.out) == (code, ""), ended
        assert "refused" in ended.err
        assert not (tmp_path / "new").exists()


def test_the_copy_says_which_of_two_histories_is_meant(kraft_audit, captured_logs: Path, tmp_path: Path) -> None:
    """Both have one cluster id, so `rescue --plan` can name no --cluster: its command works as printed all the same."""
    path = captured_logs / "split" / "03-stopped"
    printed = kraft_audit("rescue", "--plan", path, "--gone", "1").out
    (command,) = [line.partition("kraft-audit ")[2] for line in printed.splitlines() if "kraft-audit rescue " in line]
    words = shlex.split(command.replace("NODE", "5").replace("HOST:PORT", "c5.example:9093"))
    words[words.index("--out") + 1] = str(tmp_path / "new")
    ended = kraft_audit(*words)
    assert (ended.code, ended.err) == (0, ""), ended
    unknown = kraft_audit("rescue", path, "--gone", "1", "--from", "7", "--out", tmp_path / "other")
    assert (unknown.code, unknown.out) == (2, "")


def test_a_broker_s_id_is_refused_for_a_controller(kraft_audit, tmp_path: Path) -> None:
    shutil.copytree(f"{AFTER_ELECTION}/node-11", tmp_path / "left" / "node-11")
    arguments = ["rescue", tmp_path / "left", "--gone", "1,2,3", "--from", "11", "--out", tmp_path / "new"]
    ended = kraft_audit(*arguments)
    assert ended.code == 1
    assert "--node-id" in ended.err
    assert kraft_audit(*arguments, "--node-id", "4", "--endpoint", "127.0.0.1:9093").code == 0


def test_what_is_there_is_never_written_to(kraft_audit, one_left: Path, tmp_path: Path) -> None:
    filled = tmp_path / "filled"
    filled.mkdir()
    (filled / "file").write_text("kept")
    for out in (filled, one_left / "node-3" / "new", one_left):
        ended = kraft_audit("rescue", one_left, "--gone", "1,2", "--from", "3", "--out", out)
        assert (ended.code, ended.out) == (2, ""), out
    assert [path.name for path in filled.iterdir()] == ["file"]


def test_a_quorum_before_kraft_version_1_stays_static(kraft_audit, tmp_path: Path) -> None:
    """Written by Kafka 3.5.2: no control record but header and footer, and the config names the voter."""
    arguments = ["rescue", STATIC, "--gone", "1,2", "--from", "3", "--endpoint", "c3.example:9093"]
    written = json.loads(kraft_audit(*arguments, "--out", tmp_path / "new", "-o", "json").out)
    settings = [line for step in written["procedure"] for line in step["settings"]]
    assert settings.count("controller.quorum.voters=3@c3.example:9093") == 2
    assert not any("bootstrap" in line for line in settings)
    first, texts = written["procedure"][0]["text"], [step["text"] for step in written["procedure"]]
    assert "Nodes 1, 2 and 3 are brokers too" in first, "its brokers have these ids"
    assert not any("Leave the brokers that run" in text for text in texts)
    assert settings.count("process.roles=broker,controller") == 1
    assert written["lost_brokers"]["brokers"] == [1, 2]
    before, after = state(STATIC), state(tmp_path / "new")
    partitions = "partition_changes"
    assert rows(after, partitions) == rows(before, partitions, added=1_000)
    (checkpoint,) = [name for name in written["files"] if name.endswith(".checkpoint")]
    batches = [
        batch for batch in read_batches((tmp_path / "new" / checkpoint).read_bytes()) if isinstance(batch, Batch)
    ]
    assert [batch.header.record_count for batch in batches if batch.header.is_control] == [1, 1]
    quorum_state = json.loads((tmp_path / "new" / "__cluster_metadata-0" / "quorum-state").read_text())
    assert (quorum_state["data_version"], quorum_state["currentVoters"]) == (0, [{"voterId": 3}])
    refused = kraft_audit(*arguments, "--out", tmp_path / "dynamic", "--dynamic")
    assert (refused.code, refused.out) == (1, "")
    assert "3.5-IV2" in refused.err


def test_a_dynamic_quorum_is_never_made_static(kraft_audit, one_left: Path, tmp_path: Path) -> None:
    arguments = ["rescue", one_left, "--gone", "1,2", "--from", "3", "--out", tmp_path / "new"]
    refused = kraft_audit(*arguments, "--static")
    assert (refused.code, refused.out) == (1, "")
    assert not (tmp_path / "new").exists()


def test_backups_of_all_controllers_do_not_prove_that_nothing_is_lost(kraft_audit, tmp_path: Path) -> None:
    """Controllers that are gone may have committed more after their disks were copied: brokers' copies tell."""
    voters, brokers = tmp_path / "voters", tmp_path / "with-brokers"
    for node in ("node-1", "node-2", "node-3"):
        shutil.copytree(f"{AFTER_ELECTION}/{node}", voters / node)
    shutil.copytree(voters, brokers)
    shutil.copytree(f"{AFTER_ELECTION}/node-11", brokers / "node-11")

    def asked(path: Path, gone: str, *more: str) -> tuple[dict[str, Any], str]:
        plan = json.loads(kraft_audit("rescue", "--plan", path, "--gone", gone, "-o", "json").out)
        arguments = ["--gone", gone, "--from", "3", "--out", tmp_path / f"{path.name}-{len(gone)}", "-o", "json"]
        written = json.loads(kraft_audit("rescue", path, *arguments, *more).out)
        texts = [[step["text"], *step["commands"]] for step in written["procedure"]]
        return plan, "\n".join(line for lines in texts for line in lines)

    plan, procedure = asked(voters, "1,2,3")
    assert (plan["is_end_proven"], plan["high"], plan["uncaptured_brokers"]) == (False, None, [11])
    assert plan["outcomes"][0]["unknown_from"] == plan["low"]
    assert "Leave the brokers that run" not in procedure
    assert procedure.index("Stop all brokers, 11 (") < procedure.index("add the node dirs of broker 11")
    assert f"kraft-audit rescue --plan {voters} --gone 1,2,3" in procedure
    unknown = 'kraft-audit restore-kit "$RESCUED_DIR" --old-disks "$OLD_DISKS" --only-lost --internal-topics'
    assert procedure.index("Keep clients away") < procedure.index("brokers' backed-up dirs") < procedure.index(unknown)
    one, _ = asked(voters / "node-3", "1,2")
    assert one["asked_again"] == 'kraft-audit rescue --plan "$OLD_DISKS" --gone 1,2', "a node dir holds no other"

    plan, procedure = asked(brokers, "1,2,3")
    assert (plan["is_end_proven"], plan["high"], plan["outcomes"][0]["unknown_from"]) == (True, plan["low"], None)
    older = "If the copies are from before the majority was lost, stop all brokers, copy again, and start over"
    assert procedure.index(older) < procedure.index("Leave the brokers that run as they are. Nothing is lost")
    assert "Start all brokers that are stopped, and restart one by one those that still run." in procedure
    assert unknown not in procedure

    shutil.rmtree(voters / "node-1")
    shutil.rmtree(voters / "node-2")
    plan, procedure = asked(voters, "1,2")
    assert not plan["is_end_proven"]
    assert "Stop all brokers, 11 (" in procedure


def test_brokers_start_in_the_order_that_the_rescued_state_wants(kraft_audit, tmp_path: Path) -> None:
    """The one that `recover-plan` gives of the cluster, and of the dir that was written."""
    sample, new = "samples/elr-29-stopped.tgz", tmp_path / "new"
    words = ["--gone", "1", "--from", "14", "--node-id", "9", "--endpoint", "kafka-c9:9093", "--out", new]
    ended = kraft_audit("rescue", sample, *words)
    lines = ended.out.splitlines()
    assert "Lost: nothing." in lines
    (place,) = [number for number, line in enumerate(lines) if "Start all brokers" in line]
    assert lines[place].endswith("in this order, each once the one before is unfenced: 11, then 14, then 12, then 13.")
    asking = "      kafka-topics --bootstrap-server 127.0.0.1:19511 --describe --unavailable-partitions"
    assert lines[place + 1] == asking
    order = "Start broker 11 with its disk, wait until it is unfenced, then 14, then 12, then 13. Wipe none."
    assert order in kraft_audit("recover-plan", sample).out
    printed = kraft_audit("recover-plan", new).out
    assert printed.index("Start node 9 first") < printed.index(order)


def test_plan_and_procedure_name_the_same_disks(kraft_audit, tmp_path: Path) -> None:
    """Those that were read and are not said to be gone: no other can be copied."""
    words = ["samples/divergence.tgz", "--gone", "1,2"]
    plan = kraft_audit("rescue", "--plan", *words).out
    assert "Copy the metadata logs of nodes 3 and 11 before anything starts" in plan
    ended = kraft_audit("rescue", *words, "--from", "3", "--out", tmp_path / "new")
    assert "2.    If the metadata log of node 3 or 11 changed after it was copied, copy it again" in ended.out


@pytest.mark.parametrize(
    ("left", "gone", "more"),
    [
        (f"{AFTER_ELECTION}/node-3", "1,2", ()),
        (f"{AFTER_ELECTION}/node-3", "1,2", ("--node-id", "9", "--endpoint", "CONTROLLER://c9.example:9093")),
        (f"{AFTER_ELECTION}/node-3", "1,2", ("--to", "40")),
        (f"{STATIC}/node-3", "1,2", ("--endpoint", "c3.example:9093")),
    ],
)
def test_the_printed_procedure_is_short(kraft_audit, tmp_path: Path, left: str, gone: str, more: tuple[str]) -> None:
    """It is read at three in the morning by somebody who has never done it: a sentence or a command a line."""
    shutil.copytree(left, tmp_path / "left" / "node-3")
    ended = kraft_audit("rescue", tmp_path / "left", "--gone", gone, "--from", "3", *more, "--out", tmp_path / "new")
    assert ended.code == 0, ended.err
    printed, _, notes = ended.out.partition("\nTo know:\n")
    lines = printed.partition("\nLater, back to a majority:\n")[0].splitlines()
    lines = lines[lines.index(next(line for line in lines if line.startswith("1. "))) :]
    assert notes
    assert len(lines) <= 25, printed
    assert not [line for line in lines if ". " in line.partition(". ")[2]], "one sentence a line"
