"""`dump --format kafka --reveal-secrets` is kafka-dump-log's text, file by file, whatever PATH was given."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.builders.captures import ROOT, SMALL_CORPUS

# The tool's release did not know this record type: it printed an error in its line.
UNKNOWN_TO_THE_TOOL = "UnsupportedVersionException: Unknown metadata id 29"
# Where the tool threw in the middle of a line: nothing is to be compared from there on.
THREW = "offset: 3111java.lang.IllegalArgumentException"


def sections(text: str, root: Path) -> dict[str, list[str]]:
    """The lines of each dumped file, by its path below `root`; paths in the lines made relative as the oracle's are."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        line = line.replace(f"{root}/", "")
        if line.startswith("Dumping "):
            current = found.setdefault(line.removeprefix("Dumping "), [])
            assert not current, f"{line} twice"
        current.append(line)
    return found


def differences(relative: str, ours: list[str], theirs: list[str]) -> list[str]:
    """The pairs of lines that differ, but for what the oracle says of itself."""
    # Equal files were dumped once, under the path of the first.
    dumped = theirs[0].removeprefix("Dumping ")
    theirs = [line.replace(dumped, relative) for line in theirs]
    if relative.endswith("bootstrap.checkpoint"):
        theirs[1] = "KRaft bootstrap snapshot"  # the oracle dumped a copy under a snapshot's name
    if any(line.startswith(THREW) for line in theirs):
        theirs = theirs[: next(place for place, line in enumerate(theirs) if line.startswith(THREW))]
        ours = ours[: len(theirs)]
    pairs = [f"{a}\n{b}" for a, b in zip(ours, theirs, strict=False) if a != b and not b.endswith(UNKNOWN_TO_THE_TOOL)]
    return pairs if len(ours) == len(theirs) else [*pairs, f"{len(ours)} lines, the tool has {len(theirs)}"]


def compare(scenario: Path, kraft_audit) -> int:
    """Dumps a whole scenario by one command; how many files were compared."""
    ended = kraft_audit("dump", scenario, "--format", "kafka", "--reveal-secrets")
    assert ended.code == 0
    index = json.loads((scenario / "oracle-files" / "index.json").read_text())
    ours = sections(ended.out, scenario)
    count = 0
    for relative, key in index.items():
        witness = scenario / "oracle-files" / f"{key}.dump.txt.gz"
        is_started = (scenario / relative).with_name(
            "__cluster_metadata-0"
        ).exists() or "__cluster_metadata-0" in relative
        if not witness.exists() or not is_started:
            continue
        theirs = gzip.decompress(witness.read_bytes()).decode().removesuffix("\n").split("\n")
        assert differences(relative, ours[relative], theirs) == [], relative
        count += 1
    return count


@pytest.mark.slow
def test_every_dump_of_the_samples(small_corpus: Path, kraft_audit) -> None:
    found = sorted(index.parents[1] for index in small_corpus.glob("*/oracle-files/index.json"))
    assert sum(compare(scenario, kraft_audit) for scenario in found) >= 90


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.long
def test_every_dump_of_the_captures(corpus: Path, kraft_audit) -> None:
    # Of the one with most lines each is compared where the text is made: tests/kraft_codec/text/test_dump_text.py.
    found = sorted(index.parents[1] for index in corpus.glob("*/oracle-files/index.json"))
    assert sum(compare(scenario, kraft_audit) for scenario in found if scenario.name != "volume") >= 400


LOG = "node-2/__cluster_metadata-0/00000000000000000000.log"
CAPTURE = f"{SMALL_CORPUS.relative_to(ROOT)}/divergence/11-dead-node-diverged"


@pytest.mark.parametrize(
    ("given", "options", "first_line"),
    [
        (f"{CAPTURE}/{LOG}", [], f"Dumping {CAPTURE}/{LOG}"),
        (f"./{CAPTURE}/", ["--file", LOG], f"Dumping ./{CAPTURE}/{LOG}"),
        (f"{CAPTURE}/node-2", ["--file", "*.log"], f"Dumping {CAPTURE}/{LOG}"),
        (f"{CAPTURE}/node-2/__cluster_metadata-0", ["--file", "*.log"], f"Dumping {CAPTURE}/{LOG}"),
        (CAPTURE, ["--node", "2", "--file", "*0.log"], f"Dumping {CAPTURE}/{LOG}"),
    ],
)
def test_paths_are_as_given(kraft_audit, given: str, options: list[str], first_line: str) -> None:
    ended = kraft_audit("dump", given, "--format", "kafka", *options)
    assert (ended.code, ended.err) == (0, "")
    assert [line for line in ended.out.splitlines() if line.startswith("Dumping")] == [first_line]


def test_an_archive_holds_the_same_text(kraft_audit, samples: Path, small_corpus: Path) -> None:
    folder = small_corpus / "elr" / "06-kill-13-last-replica"
    archive = samples / "elr-06-kill-13-last-replica.tgz"
    of_folder = kraft_audit("dump", folder, "--format", "kafka", "--reveal-secrets").out
    of_archive = kraft_audit("dump", archive, "--format", "kafka", "--reveal-secrets").out
    assert of_folder.count("Dumping ") > 4
    paths = {line.split()[-1] for line in of_archive.splitlines() if line.startswith("Dumping")}
    assert all(path.startswith(f"{archive}/") for path in paths)
    for node in folder.glob("node-*"):
        log = f"{node.name}/__cluster_metadata-0/00000000000000000000.log"
        path = next(path for path in paths if path.endswith(f"/{log}"))
        assert (
            sections(of_folder, folder)[log][1:] == sections(of_archive, archive)[path.removeprefix(f"{archive}/")][1:]
        )


def test_row_options_do_not_go_with_a_text_of_whole_files(kraft_audit) -> None:
    for options in (["--output", "json"], ["--from", "3"], ["--type", "TOPIC_RECORD"], ["--table", "batches"]):
        ended = kraft_audit("dump", CAPTURE, "--format", "kafka", *options)
        assert (ended.code, ended.out, len(ended.error_lines)) == (2, "", 1)
