"""Commands that replay: against what Kafka's own tools and image said of the same captures."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_audit.text.readable import natural
from tests.builders.captures import SMALL_CORPUS
from tests.builders.facts import facts

ELR = "samples/elr-06-kill-13-last-replica.tgz"


def described(root: Path) -> Iterator[tuple[Path, str]]:
    """Captures of which kafka-topics said the same before and after the cut."""
    for after in sorted(root.glob("*/*/oracle/topics.after.txt")):
        reported = after.read_text()
        if "Topic:" in reported and reported == after.with_name("topics.before.txt").read_text():
            yield after.parents[1], reported


def topics(text: str) -> dict[str, list[str]]:
    """The lines of each topic; the order of topics, and of the configs of one, is the tool's own."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = line.strip().split("\t")
        if len(cells) > 1:
            # A release without the ELR has an API that cannot tell it.
            cells = [cell.replace("N/A", "") if cell.startswith(("Elr:", "LastKnownElr:")) else cell for cell in cells]
            cells = [",".join(sorted(cell.split(","))) if cell.startswith("Configs:") else cell for cell in cells]
            found.setdefault(cells[0], []).append("\t".join(cell.strip() for cell in cells))
    return found


def test_partitions_are_described_as_the_tool_does(small_corpus: Path, kraft_audit) -> None:
    count = 0
    for capture, reported in described(small_corpus):
        ours, theirs = topics(kraft_audit("partitions", capture, "--describe").out), topics(reported)
        assert ours.keys() == theirs.keys(), capture
        assert {name: [line.split("Configs:")[0] for line in lines] for name, lines in ours.items()} == {
            name: [line.split("Configs:")[0] for line in lines] for name, lines in theirs.items()
        }, capture
        count += 1
    assert count >= 6


def image_of(small_corpus: Path, capture: str) -> dict[str, object]:
    index = json.loads((small_corpus / "elr/oracle-files/index.json").read_text())
    key = index[f"{capture}/__cluster_metadata-0"]
    return json.loads(gzip.decompress((small_corpus / f"elr/oracle-files/{key}.image.json.gz").read_bytes()))[
        "wholeLog"
    ]


def test_state_is_kafkas_image(small_corpus: Path, kraft_audit) -> None:
    document = json.loads(kraft_audit("state", ELR, "--output", "json").out)
    whole = image_of(small_corpus, "06-kill-13-last-replica/node-1")
    image = whole["image"]
    assert (document["offset"], document["proven_to"], document["is_complete"]) == (whole["lastOffset"], 189, True)
    ours = {(row["topic"], row["partition"]): row for row in document["partitions"]}
    theirs = {(row["topic"], row["partition"]): row for row in image["partitions"]}
    assert ours.keys() == theirs.keys()
    for subject, row in theirs.items():
        mine = ours[subject]
        assert mine["topic_id"] == row["topicId"]
        assert (mine["isr"], mine["elr"], mine["last_known_elr"]) == (row["isr"], row["elr"], row["lastKnownElr"])
        assert (mine["leader"], mine["leader_epoch"], mine["partition_epoch"]) == (
            row["leader"],
            row["leaderEpoch"],
            row["partitionEpoch"],
        )
    assert {row["broker_id"]: row["fenced"] for row in document["brokers"]} == {
        row["id"]: row["fenced"] for row in image["brokers"]
    }
    configs = {(row["resource_type"], row["resource_name"], row["name"]): row["value"] for row in document["configs"]}
    assert configs == {(c["type"], c["name"], name): v for c in image["configs"] for name, v in c["data"].items()}
    assert next(iter(document)) == "cluster_id"
    assert [voter["voter_id"] for voter in document["voters"]] == [1]


@pytest.mark.slow
def test_state_at_offsets_and_times(kraft_audit) -> None:
    def offset(*options: str) -> int:
        return json.loads(kraft_audit("state", ELR, "--only", "features", "-o", "json", *options).out)["offset"]

    assert offset("--at", "100") == 100
    assert offset("--at", "999999") == 188
    assert offset("--at", "committed") == 188
    assert offset("--at", "1999-01-01") == -1
    assert offset("--at", "2999-01-01T00:00:00Z") == 188
    for wrong in ("-5", "yesterday", "12x"):
        ended = kraft_audit("state", ELR, f"--at={wrong}")
        assert (ended.code, len(ended.error_lines)) == (2, 1)
        assert wrong in ended.err


def test_state_in_other_formats(kraft_audit) -> None:
    rows = [json.loads(x) for x in kraft_audit("state", ELR, "--only", "topics", "-o", "jsonl").out.splitlines()]
    assert len(rows) == 8
    assert len(kraft_audit("state", ELR, "--only", "topics", "-o", "csv").out.splitlines()) == 9
    assert kraft_audit("state", ELR, "-o", "csv").code == 2
    table = kraft_audit("state", ELR).out
    assert "189" in facts(table)
    assert "partitions: 13" in table


def test_listeners_and_features_are_shown_to_people_without_their_keys(kraft_audit) -> None:
    """All that JSON has of them, in a third of the room."""
    parts = ("--only", "brokers", "--only", "controllers")
    table = kraft_audit("state", ELR, *parts).out
    document = json.loads(kraft_audit("state", ELR, *parts, "-o", "json").out)
    for row in (*document["brokers"], *document["controllers"]):
        for feature in row["features"]:
            assert f"{feature['name']} {feature['min_supported_version']}-{feature['max_supported_version']}" in table
        for point in row["end_points"]:
            assert f"{point['name']}://{point['host']}:{point['port']}" in table
    assert "SASL://127.0.0.1:19611 (SASL_PLAINTEXT)" in table
    assert "PLAINTEXT://127.0.0.1:19511," in table, "a listener that is named after its protocol says it once"
    assert "{" not in table
    assert max(map(len, table.splitlines())) < 600


def test_what_is_not_proven_is_said(kraft_audit) -> None:
    reported = kraft_audit("state", f"{SMALL_CORPUS}/divergence/10-uncommitted-suffix-live", "--only", "topics").out
    assert facts(reported) >= {"27", "36", "35"}
    proven = kraft_audit(
        "state", f"{SMALL_CORPUS}/divergence/10-uncommitted-suffix-live", "--at", "committed", "-o", "json"
    )
    assert json.loads(proven.out)["offset"] == 26


def test_diff_is_what_the_ledger_has_between(kraft_audit) -> None:
    rows = [
        json.loads(line)
        for line in kraft_audit(
            "diff", ELR, "--from", "150", "--to", "188", "--only", "partitions", "-o", "jsonl"
        ).out.splitlines()
    ]
    ledger = [json.loads(line) for line in kraft_audit("partitions", ELR, "-o", "jsonl").out.splitlines()]
    between = [row for row in ledger if 150 < row["from_offset"] <= 188]
    changed = {row["subject"].split(" ")[0] for row in rows if row["field"] == "partition_epoch"}
    assert changed == {f"{row['topic']}-{row['partition']}" for row in between}
    for row in rows:
        assert row["change"] == "changed"
        newest = [
            partition_row
            for partition_row in between
            if row["subject"].startswith(f"{partition_row['topic']}-{partition_row['partition']} ")
        ][-1]
        assert newest[row["field"]] == row["after"]
    assert kraft_audit("diff", ELR, "--from", "188", "--to", "188", "-o", "json").out == "[]\n"


def test_the_ledger_is_kafkas_registration_after_every_record(small_corpus: Path, kraft_audit) -> None:
    index = json.loads((small_corpus / "elr/oracle-files/index.json").read_text())
    key = index["06-kill-13-last-replica/node-1/__cluster_metadata-0"]
    lines = (
        gzip.decompress((small_corpus / f"elr/oracle-files/{key}.parts.jsonl.gz").read_bytes()).decode().splitlines()
    )
    theirs = {}
    for row in map(json.loads, lines):
        if row.get("src") == "log" and row["state"] is not None:
            state = row["state"]
            theirs[row["offset"], row["topicId"], row["partition"]] = (state["isr"], state["elr"], state["leader"])
    ours = {}
    for row in map(json.loads, kraft_audit("partitions", ELR, "-o", "jsonl").out.splitlines()):
        ours[row["from_offset"], row["topic_id"], row["partition"]] = (row["isr"], row["elr"], row["leader"])
    assert len(theirs) > 50
    assert {place: ours.get(place) for place in theirs} == theirs


def test_partitions_of_one_topic(kraft_audit) -> None:
    rows = [json.loads(x) for x in kraft_audit("partitions", ELR, "--topic", "elr-u", "-o", "jsonl").out.splitlines()]
    assert {row["topic"] for row in rows} == {"elr-u"}
    assert rows[0]["cause"] == "created"
    text = kraft_audit("partitions", ELR, "--describe", "--topic", "elr-u").out
    assert [line.split("\t")[0] or line.split("\t")[1] for line in text.splitlines()] == ["Topic: elr-u"] * 2
    assert kraft_audit("partitions", ELR, "--describe", "-o", "json").code == 2
    assert kraft_audit("partitions", ELR, "--at", "5").code == 2


def test_voters_report_the_reverted_change(kraft_audit) -> None:
    rows = json.loads(kraft_audit("quorum", "--voters", f"{SMALL_CORPUS}/uncommitted-voter-change", "-o", "json").out)
    reported = [
        (row["from_offset"], [v["voter_id"] for v in row["voters"]], row["ended_by"], row["committed"]) for row in rows
    ]
    assert reported == [
        (-1, [1, 2, 3], "superseded", True),
        (23, [1, 2, 3, 4], "truncated", False),
        (29, [1, 2, 3, 4], "superseded", True),
        (33, [2, 3, 4], "in_effect", True),
    ]
    assert "+4-" in kraft_audit("quorum", "--voters", f"{SMALL_CORPUS}/uncommitted-voter-change").out


def test_diverge_shows_both_records_and_who_holds_them(kraft_audit) -> None:
    (row,) = json.loads(kraft_audit("quorum", "--diverge", f"{SMALL_CORPUS}/divergence", "-o", "json").out)
    assert (row["offset"], row["epochs"], row["canonical"]) == (27, [2, 3], [False, True])
    assert row["to_offsets"] == [36, 58]
    assert {(holder["node_id"], holder["capture"]) for holder in row["held_by"][0]} >= {(2, "11-dead-node-diverged")}
    assert {(holder["node_id"], holder["capture"]) for holder in row["held_by"][1]} >= {
        (1, "11-dead-node-diverged"),
        (2, "12-after-truncation"),
    }
    assert [record["leader_epoch"] for record in row["records"]] == [2, 3]
    assert row["records"][1]["record_type"] == "LEADER_CHANGE"
    text = kraft_audit("quorum", "--diverge", f"{SMALL_CORPUS}/divergence").out
    assert "offset 27: 2 histories" in text
    assert "node 2 (10-uncommitted-suffix-live, 11-dead-node-diverged)" in text


def test_a_lagging_replica_does_not_differ(kraft_audit) -> None:
    ended = kraft_audit("quorum", "--diverge", f"{SMALL_CORPUS}/divergence/10-uncommitted-suffix-live")
    assert "no two captured logs differ" in ended.out
    assert kraft_audit("quorum", "--diverge", f"{SMALL_CORPUS}/elr", "-o", "json").out == "[]\n"


def test_the_timeline_has_who_leads_and_who_is_in_service(kraft_audit) -> None:
    rows = json.loads(kraft_audit("timeline", ELR, "-o", "json").out)
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    assert rows[-1]["nodes"] == {"1": "L", "11": "F", "12": "F", "13": "F", "14": "+"}
    (lost,) = [row for row in rows if "without a leader" in row["text"]]
    assert facts(lost["text"]) >= {"13", "10"}
    assert (lost["offset"], lost["nodes"]["13"]) == (174, "+")
    cut = json.loads(kraft_audit("timeline", ELR, "--from", "100", "--to", "120", "-o", "json").out)
    assert cut == [row for row in rows if 100 <= row["offset"] < 120]


def test_the_timeline_distinguishes_a_removed_leader_from_a_voter(kraft_audit) -> None:
    rows = json.loads(kraft_audit("timeline", f"{SMALL_CORPUS}/dynamic-quorum", "-o", "json").out)
    voters = json.loads(kraft_audit("quorum", "--voters", f"{SMALL_CORPUS}/dynamic-quorum", "-o", "json").out)[-1]
    at_the_end = {int(node) for node, mark in rows[-1]["nodes"].items() if mark in ("L", "V")}
    assert at_the_end == {voter["voter_id"] for voter in voters["voters"]}
    reverted = [
        row
        for row in json.loads(kraft_audit("timeline", f"{SMALL_CORPUS}/uncommitted-voter-change", "-o", "json").out)
        if not row["canonical"] and row["event"] == "voters"
    ]
    assert [facts(row["text"]) for row in reverted] == [{"1", "2", "3", "4"}]
    assert "+4" in reverted[0]["text"]


def test_the_timeline_puts_a_capture_before_the_record_that_it_lacks(kraft_audit) -> None:
    rows = json.loads(kraft_audit("timeline", f"{SMALL_CORPUS}/dynamic-quorum", "-o", "json").out)
    assert [row["text"] for row in rows if row["offset"] in (115, 118)] == [
        "node 2 leads epoch 7, votes of 2 4",
        "capture 09-leader-removed-while-leader: log end offset 118, committed through offset 117",
        "topic t5 created",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["state", "partitions", "diff"])
def test_a_capture_of_one_of_several_clusters(kraft_audit, tmp_path: Path, command: str) -> None:
    """Clusters that have no capture of that name are left out, as by `quorum`."""
    captures = ("divergence/12-after-truncation", "static-to-dynamic-upgrade/01-kafka-3.5.2")
    names = [Path(capture).name for capture in captures]
    for capture, name in zip(captures, names, strict=True):
        shutil.copytree(SMALL_CORPUS / capture, tmp_path / name)
    arguments = ["--from", "1", "--only", "voters"] if command == "diff" else []
    for name in names:
        ended = kraft_audit(command, tmp_path, "--capture", name, *arguments)
        assert (ended.code, ended.err) == (0, "")
        cluster = json.loads(kraft_audit("quorum", tmp_path, "--capture", name, "-o", "json").out)
        assert ended.out.splitlines()[0].startswith(cluster["cluster_id"])
    missing = kraft_audit(command, tmp_path, "--capture", "nope", *arguments)
    assert (missing.code, len(missing.error_lines)) == (2, 1)
    assert ", ".join(sorted(names)) in missing.err


@pytest.mark.parametrize("name", ["10²", "٣", "9" * 5000])
def test_digits_that_are_no_numbers_do_no_harm(name: str) -> None:
    """As a capture's folder and as the name of anything in a state."""
    assert natural(f"{name}a") < natural(f"{name}a1") < natural(f"{name}b")


def test_names_are_sorted_as_people_count() -> None:
    assert sorted(["b", "a10b10", "a2", "a10", "a02", "a", "a1", "a10b2", "a0"], key=natural) == [
        *("a", "a0", "a1", "a02", "a2", "a10", "a10b2", "a10b10", "b"),
    ]


def test_a_capture_with_a_superscript_in_its_name(kraft_audit, tmp_path: Path) -> None:
    for number in ("9", "10²"):
        shutil.copytree(f"{SMALL_CORPUS}/divergence/10-uncommitted-suffix-live", tmp_path / number)
    ended = kraft_audit("check", tmp_path, "--fail-on", "never")
    assert (ended.code, ended.err) == (0, "")


COMMANDS = ["state", "partitions", "quorum --voters", "quorum --diverge", "timeline", "check", "whatif", "recover-plan"]


def tell(kraft_audit, command: str, path: Path) -> None:
    """Runs a command for people and for programs; whatever lies there, it ends well and says something."""
    options = {"check": ["--fail-on", "never"], "whatif": ["--lose", "11"]}.get(command, [])
    for output in ("table", "json"):
        ended = kraft_audit(*command.split(), path, *options, "-o", output)
        assert (ended.code, ended.err) == (0, ""), path
        assert ended.out
        if output == "json":
            json.loads(ended.out)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_sample_is_reported(kraft_audit, small_corpus: Path, command: str) -> None:
    tell(kraft_audit, command, small_corpus / "static-to-dynamic-upgrade")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_damaged_logs_are_reported(kraft_audit, small_corpus: Path, command: str) -> None:
    """A broken checksum, a gap, a torn batch, zeros: four logs below one path."""
    tell(kraft_audit, command, small_corpus / "crafted" / "damaged")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_sample_is_reported(kraft_audit, small_corpus: Path, command: str) -> None:
    for path in sorted(small_corpus.iterdir()):
        if path.suffix == ".tgz" or (path.is_dir() and path.name not in ("crafted", "static-to-dynamic-upgrade")):
            tell(kraft_audit, command, path)


def test_a_stopped_broker_is_fenced_and_an_unchanged_cordoned_list_is_no_event(kraft_audit) -> None:
    rows = json.loads(kraft_audit("timeline", f"{SMALL_CORPUS}/dynamic-quorum", "-o", "json").out)
    assert not [row["text"] for row in rows if "cordon" in row["text"]]
    stopping, stopped = (
        [row["nodes"]["11"] for row in rows if row["text"] == f"broker 11 {cause}"][-1]
        for cause in ("controlled shutdown", "fenced")
    )
    assert (stopping, stopped) == ("S", "F")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["state", ELR, "--at", "9999", "--only", "features"], "--at 9999: the log ends with offset 188, this is"),
        (
            ["state", ELR, "--at", "2020-01-01", "--only", "features"],
            "--at: the log starts later, so no state is known",
        ),
        (
            ["state", ELR, "--at", "2030-01-01", "--only", "features"],
            "--at: the log ends at 2026-11-21 01:34:12.586 UTC",
        ),
        (["diff", ELR, "--from", "2026-11-21T01:34:12.587Z"], "--from: the log ends at 2026-11-21 01:34:12.586 UTC"),
        (["diff", ELR, "--from", "9999"], "--from 9999: the log ends with offset 188, this is"),
        (["timeline", ELR, "--from", "500"], "no event in this range; the log has events at offsets 0 to 188"),
        (["dump", ELR, "--from", "500"], "no record matches; its logs hold offsets 0 to 188"),
        (["dump", ELR, "--type", "UnregisterBrokerRecord"], "no record matches; its logs hold offsets 0 to 188"),
    ],
)
def test_what_lies_beyond_the_log_is_remarked(kraft_audit, arguments: list[str], text: str) -> None:
    ended = kraft_audit(*arguments)
    assert (ended.code, len(ended.error_lines)) == (0, 1), ended.err
    assert text in ended.err


def test_milliseconds_of_a_dump_are_no_offset_and_how_they_are_written_is_reported(kraft_audit) -> None:
    rows = [json.loads(line) for line in kraft_audit("dump", ELR, "-o", "jsonl").out.splitlines()]
    offset, time_ms = next((row["offset"], row["timestamp_ms"]) for row in rows if row["offset"] == 100)
    ended = kraft_audit("state", ELR, "--only", "features", "--at", str(time_ms))
    assert (ended.code, len(ended.error_lines)) == (0, 2), ended.err
    written = re.search(r"--at [0-9]+: a plain number is an offset; write that time as (\S+)", ended.err)[1]
    reported = kraft_audit("state", ELR, "--only", "features", "--at", written, "-o", "json")
    last = max(row["offset"] for row in rows if row["source"] == "log" and row["timestamp_ms"] <= time_ms)
    assert (reported.err, json.loads(reported.out)["offset"]) == ("", last)
    assert last >= offset


@pytest.mark.parametrize(
    "arguments",
    [["state", ELR, "--at", "188"], ["state", ELR, "--at", "2026-11-21T01:34:12.586Z"], ["diff", ELR, "--from", "0"]],
)
def test_what_lies_in_the_log_is_not(kraft_audit, arguments: list[str]) -> None:
    assert kraft_audit(*arguments, "--only", "features").err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["dump", ELR, "--from", "180", "--to", "170"],
        ["timeline", ELR, "--from", "180", "--to", "180"],
        ["check", ELR, "--default", "min.insync.replica=2"],
        ["simulate", "last-replica-standing", "--clusters", "3"],
        ["simulate", "random", "--partitions", "3"],
    ],
)
def test_options_that_would_be_ignored_are_refused(kraft_audit, arguments: list[str]) -> None:
    ended = kraft_audit(*arguments)
    assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1)


@pytest.mark.parametrize(
    "command", [["quorum"], ["state", "--only", "features"], ["check", "--rule", "KV601"], ["dump", "--from", "180"]]
)
def test_the_only_capture_is_known_by_its_folder(kraft_audit, command: list[str]) -> None:
    name, *options = command
    plain = kraft_audit(name, ELR, *options)
    named = kraft_audit(name, ELR, *options, "--capture", "06-kill-13-last-replica")
    second = kraft_audit(name, ELR, *options, "--capture", "07")
    assert (named.code, len(named.out.splitlines())) == (0, len(plain.out.splitlines()))
    assert (second.code, second.out) == (2, "")
    assert "there is one alone, 06-kill-13-last-replica" in second.err


@pytest.mark.slow
def test_no_partition_is_reported_before_its_topic(kraft_audit) -> None:
    rows = json.loads(kraft_audit("timeline", f"{SMALL_CORPUS}/elr", "--output", "json").out)
    known: set[str] = set()
    created = 0
    for row in rows:
        if row["event"] == "topic" and row["text"].endswith(" created"):
            known.add(row["text"].split()[1])
        if row["event"] == "partition" and " created: " in row["text"]:
            names = row["text"].partition(" created: ")[2].partition(" and ")[0].split()
            created += len(names)
            assert {name.rpartition("-")[0] for name in names} <= known, row
    assert created > 5


@pytest.mark.slow
def test_json_of_several_clusters_is_a_list(kraft_audit, tmp_path: Path) -> None:
    for name in ("divergence", "mini-3.9.2"):
        (tmp_path / name).mkdir()
        shutil.copytree(SMALL_CORPUS / name, tmp_path / name, dirs_exist_ok=True)
    for command in (["quorum"], ["state"], ["whatif", "--lose", "1"]):
        row = json.loads(kraft_audit(command[0], f"{SMALL_CORPUS}/mini-3.9.2", *command[1:], "--output", "json").out)
        two = json.loads(kraft_audit(command[0], tmp_path, *command[1:], "--output", "json").out)
        assert isinstance(row, dict)
        assert row["cluster_id"] in [cluster["cluster_id"] for cluster in two]
