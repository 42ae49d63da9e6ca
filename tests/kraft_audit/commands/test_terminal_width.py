"""What every command prints fits the lines of a terminal, with colours too, cuts no word, and has all with --wide."""

from __future__ import annotations

import io
import itertools
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_audit.commands.cli import COMMANDS, run_command

COLOR = re.compile("\x1b\\[[0-9;]*m")
META = "version=1\ncluster.id=SPA6Lw-19VaaSAxl6jMkhw\nnode.id={}\n"
WIDTHS = (80, 100, 120, 200)
LINES = (
    "check samples/elr-06-kill-13-last-replica.tgz",
    "check samples/elr-29-stopped.tgz",
    "check samples/jbod.tgz --full",
    "check samples/torn-write.tgz --findings",
    "check samples/static-to-dynamic-upgrade.tgz",
    "check samples",
    "check {unreadable}",
    "check --incidents samples/elr-06-kill-13-last-replica.tgz",
    "rules KV017",
    "rules",
    "whatif samples/elr-29-stopped.tgz --lose 13 --all",
    "may-i start 2 samples/divergence.tgz --stopped 3",
    "may-i wipe 13 samples/elr-06-kill-13-last-replica.tgz",
    "may-i scale-in 1 samples/static-to-dynamic-upgrade.tgz",
    "may-i roll samples/divergence.tgz",
    "upgrade-check samples/mini-3.9.2.tgz --to 4.3",
    "rescue --plan samples/divergence.tgz",
    "rescue samples/divergence.tgz --gone 1,2 --from 3 --out {new}",
    "restore-kit samples/divergence.tgz",
    "restore-kit samples/divergence.tgz --only-lost",
    "recover-plan samples/elr-29-stopped.tgz",
    "recover-plan samples/elr-06-kill-13-last-replica.tgz --all",
    "salvage samples/elr-29-stopped.tgz --plan",
    "evidence samples/divergence.tgz --out {new}.zip",
    "report samples/divergence.tgz --out {new}",
    "timeline samples/divergence.tgz",
    "timeline samples/elr-29-stopped.tgz --all",
    "changes samples/dynamic-quorum.tgz",
    "changes tests/data/authorizer/controller.tgz --authorizer-log tests/data/authorizer/kafka-authorizer.log.gz",
    "quorum samples/divergence.tgz",
    "quorum samples/dynamic-quorum.tgz --nodes",
    "quorum --voters samples/uncommitted-voter-change.tgz",
    "state samples/elr-29-stopped.tgz",
    "diff samples/elr-29-stopped.tgz --from 10",
    "partitions samples/elr-29-stopped.tgz",
    "partitions samples/elr-29-stopped.tgz --all",
    "cost samples/elr-29-stopped.tgz",
    "quorum --diverge samples/divergence.tgz",
    "dump samples/divergence.tgz",
    *(
        f"dump samples/torn-write.tgz --table {table}"
        for table in ("batches", "captures", "node_cards", "files", "decode_errors")
    ),
    "simulate list",
    "simulate last-replica-standing --seed 7 --out {new}",
    "doctor",
    *(f"doctor --completion {shell}" for shell in ("bash", "zsh", "fish")),
    "lake tables {lake}",
    "lake quality {lake}",
    "notify {lake} --config conf/notify.yaml --dry-run",
    "lake export {lake} --out {new}",
    "lake maintain {lake} --dry-run",
    "lake register {lake} --catalog duckdb",
    "run {lake}/../fleet.yaml --engine local",
    "check samples/no-such-folder/of/a/long/path/that/nobody/has/made/anywhere/below/the/samples/of/this/repository",
)
"""Every command, over a few samples. `{new}` is a path where nothing is."""
SCRIPTS = {
    *(f"doctor --completion {shell}" for shell in ("bash", "zsh", "fish")),
    "lake register {lake} --catalog duckdb",
}
"""What they print is for a shell or an engine, which takes a line as it stands."""
AS_KAFKA = (
    "partitions samples/elr-29-stopped.tgz --describe",
    "quorum samples/dynamic-quorum.tgz --status --replication",
    "dump samples/mini-3.9.2.tgz --format kafka",
)
"""What they print is Kafka's format, which scripts and people compare with what Kafka's own tools print."""
VARYING = {"rescue", "report", "run", "doctor", "lake quality", "lake tables", "lake maintain"}
"""What they print differs from run to run: ids, sizes, ages and times."""
_TIME = re.compile(r"\d\d:\d\d:\d\d(\.\d+)?|[0-9a-f]{64}")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


Printed = Callable[..., str]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, project_root: Path) -> Path:
    """A lake of two samples."""
    folder = tmp_path_factory.mktemp("lake")
    samples = f"paths: [{project_root}/samples/torn-write.tgz]"
    (folder / "fleet.yaml").write_text(f"lake: lake\nclusters:\n  - name: torn\n    {samples}\n")
    run = [sys.executable, "-m", "kraft_audit", "run", folder / "fleet.yaml", "--engine", "local"]
    subprocess.run(run, capture_output=True, check=True, cwd=project_root)
    return folder / "lake"


@pytest.fixture(scope="module")
def unreadable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three voters whose logs hold no batch."""
    folder = tmp_path_factory.mktemp("unreadable")
    for node in (1, 2, 3):
        log_dir = folder / f"node-{node}" / "__cluster_metadata-0"
        log_dir.mkdir(parents=True)
        (log_dir.parent / "meta.properties").write_text(META.format(node))
        (log_dir / f"{0:020d}.log").write_bytes(bytes(range(97, 123)) * 100)
    return folder


@pytest.fixture
def printed(
    monkeypatch: pytest.MonkeyPatch,
    project_root: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Printed:
    """What a command line prints: in a pipe, or on a coloured terminal of so many columns."""
    monkeypatch.chdir(project_root)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    folder = tmp_path_factory.mktemp("printed")
    key_file = folder / "key"
    key_file.touch(0o600)
    key_file.write_text("00" * 32)
    monkeypatch.setenv("KRAFT_AUDIT_REDACTION_KEY_FILE", str(key_file))
    numbers = itertools.count(100)

    def run(line: str, columns: int | None = None, stream_type: type[io.StringIO] | None = None) -> str:
        new = folder / f"new-{next(numbers)}"
        for name in re.findall(r"\{(lake|unreadable)\}", line):
            line = line.replace(f"{{{name}}}", str(request.getfixturevalue(name)))
        kind = stream_type or (Screen if columns else io.StringIO)
        stream, errors = kind(), kind()
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", stream)
            patch.setattr("sys.stderr", errors)
            if columns:
                patch.setenv("COLUMNS", str(columns))
            run_command([*shlex.split(line.replace("{new}", str(new))), "--quiet"])
        return (stream.getvalue() + errors.getvalue()).replace(str(new), f"{folder}/new")

    return run


def words(text: str) -> Counter[str]:
    """The words of a text without the breaks of lines, of commands that go on, of comments, and of lists."""
    text = re.sub(" \\\\\n|\n#|,", " ", text)
    return Counter(word for word in text.split() if not _TIME.search(word))


def too_long(plain: str, columns: int) -> list[str]:
    """Lines that are longer than the terminal's, but for a single word that is, with the backslash after it."""
    over = [line.strip(" #").removesuffix(" \\") for line in plain.splitlines() if len(line) > columns]
    return [line for line in over if len(line.split()) > 1 and not re.fullmatch("'[^']*'|\"[^\"]*\"", line)]


def command_of(line: str) -> str:
    """The command of a line: one word, or two."""
    return next(command for command in COMMANDS if line.startswith(f"{command} ") or line == command)


def has_wide(command: str) -> bool:
    from kraft_audit.commands.cli import function_of
    from kraft_audit.commands.terminal_options import WIDE_OPTION, terminal_options

    return WIDE_OPTION in terminal_options(function_of(command), [])


def test_the_lines_name_every_command() -> None:
    assert {command_of(line) for line in LINES} == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_a_command_fits_every_terminal_and_cuts_no_word(printed: Printed, line: str) -> None:
    command = command_of(line)
    varies = command in VARYING and line not in SCRIPTS
    whole = "" if varies else printed(line)
    for columns in WIDTHS[:1] if varies else WIDTHS:
        shown = COLOR.sub("", printed(line, columns))
        if line in SCRIPTS:
            assert shown == whole
            continue
        assert not too_long(shown, columns)
        remarks = re.findall("^--wide shows .*$", shown, re.MULTILINE)
        assert has_wide(command) or not remarks
        if varies:
            continue
        missing = words(whole) - words(shown)
        added = words(shown) - words(whole)
        assert not added - words("\n".join(remarks))
        assert bool(remarks) or not missing


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in LINES if has_wide(command_of(line))])
def test_wide_has_every_column(printed: Printed, line: str) -> None:
    if command_of(line) in VARYING:
        assert "--wide shows" not in printed(f"{line} --wide", 80)
        return
    whole, shown = printed(line), COLOR.sub("", printed(f"{line} --wide", 80))
    assert not too_long(shown, 80)
    assert words(shown) == words(whole)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits_every_terminal_and_cuts_no_word(printed: Printed, command: str) -> None:
    whole = printed(f"{command} --help", 200)
    for columns in WIDTHS:
        shown = printed(f"{command} --help", columns)
        assert not too_long(shown, columns)
        assert words(shown) == words(whole)


def test_a_finding_is_red_on_a_terminal(printed: Printed) -> None:
    for sample in ("elr-29-stopped.tgz", "static-to-dynamic-upgrade.tgz"):
        shown = printed(f"check samples/{sample}", 80)
        assert ("\x1b[31m" in shown or "\x1b[1;31m" in shown) is (sample == "elr-29-stopped.tgz")


@pytest.mark.parametrize("line", AS_KAFKA)
def test_a_terminal_gets_the_bytes_of_a_pipe_in_the_format_of_kafka(printed: Printed, line: str) -> None:
    whole = printed(line)
    assert max(map(len, whole.splitlines())) > 80
    assert printed(line, 80) == whole
    assert ("\t" in whole) is not line.startswith("dump")


def test_a_pipe_has_whole_lines_unless_columns_is_set(printed: Printed) -> None:
    line = "quorum samples/divergence.tgz"
    whole = printed(line)
    assert max(map(len, whole.splitlines())) > 200
    assert "--wide shows" not in whole
    shown = printed(line, 100, io.StringIO)
    assert not too_long(shown, 100)
    assert "--wide shows" in shown
    for exact in ("dump samples/mini-3.9.2.tgz --format kafka", "quorum samples/divergence.tgz --replication"):
        assert printed(exact, 100, io.StringIO) == printed(exact)
    for_programs = "quorum --voters samples/uncommitted-voter-change.tgz --output csv"
    assert printed(for_programs, 100, io.StringIO) == printed(for_programs)
