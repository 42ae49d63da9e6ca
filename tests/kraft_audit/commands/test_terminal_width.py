"""What commands print on a terminal fits its lines, with colours too, and says what they print in a pipe."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_audit.commands.cli import run_command

COLOR = re.compile("\x1b\\[[0-9;]*m")
META = "version=1\ncluster.id=SPA6Lw-19VaaSAxl6jMkhw\nnode.id={}\n"
WIDTHS = (80, 100, 120, 200)
CHECKED = (
    "elr-06-kill-13-last-replica.tgz",
    "elr-29-stopped.tgz",
    "jbod.tgz",
    "torn-write.tgz",
    "static-to-dynamic-upgrade.tgz",
)
RED = {"elr-06-kill-13-last-replica.tgz", "elr-29-stopped.tgz", "jbod.tgz", "torn-write.tgz"}
LINES = (
    "check samples/elr-06-kill-13-last-replica.tgz --findings",
    "check samples/jbod.tgz --full",
    "recover-plan samples/elr-29-stopped.tgz",
    "recover-plan samples/elr-06-kill-13-last-replica.tgz --all",
    "may-i start 2 samples/divergence.tgz --stopped 3",
    "may-i wipe 13 samples/elr-06-kill-13-last-replica.tgz",
    "may-i scale-in 1 samples/static-to-dynamic-upgrade.tgz",
    "timeline samples/divergence.tgz",
    "timeline samples/elr-29-stopped.tgz --all",
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


Printed = Callable[..., str]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """What a command line prints: in a pipe, or on a coloured terminal of so many columns."""
    monkeypatch.chdir(project_root)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    key_file = tmp_path_factory.mktemp("key") / "key"
    key_file.touch(0o600)
    key_file.write_text("00" * 32)
    monkeypatch.setenv("KRAFT_AUDIT_REDACTION_KEY_FILE", str(key_file))

    def run(line: str, columns: int | None = None) -> str:
        stream, errors = (Screen(), Screen()) if columns else (io.StringIO(), io.StringIO())
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", stream)
            patch.setattr("sys.stderr", errors)
            patch.setenv("COLUMNS", str(columns or 40))
            run_command([*shlex.split(line), "--quiet"])
        return stream.getvalue() + errors.getvalue()

    return run


@pytest.fixture
def unreadable(tmp_path: Path) -> Path:
    """Three voters whose logs hold no batch."""
    for node in (1, 2, 3):
        log_dir = tmp_path / f"node-{node}" / "__cluster_metadata-0"
        log_dir.mkdir(parents=True)
        (log_dir.parent / "meta.properties").write_text(META.format(node))
        (log_dir / f"{0:020d}.log").write_bytes(bytes(range(97, 123)) * 100)
    return tmp_path


def words(text: str) -> list[str]:
    """The words of a text without the breaks of lines, of commands that go on, and of lists."""
    return text.replace(" \\\n", " ").replace(",", " ").split()


def require_fitting(shown: str, whole: str, columns: int) -> None:
    """A line is longer than the terminal's only where it is one word; every word is whole, and none is missing."""
    plain = COLOR.sub("", shown)
    too_long = [line for line in plain.splitlines() if len(line) > columns and len(line.split()) > 1]
    assert not too_long
    assert words(plain) == words(whole)


@pytest.mark.slow
@pytest.mark.parametrize("sample", CHECKED)
def test_check_fits_every_terminal(printed: Printed, sample: str) -> None:
    line = f"check samples/{sample}"
    whole = printed(line)
    for columns in WIDTHS:
        shown = printed(line, columns)
        require_fitting(shown, whole, columns)
        assert ("\x1b[31m" in shown or "\x1b[1;31m" in shown) is (sample in RED)


@pytest.mark.slow
def test_check_of_what_cannot_be_read_fits_every_terminal(printed: Printed, unreadable: Path) -> None:
    line = f"check {unreadable}"
    whole = printed(line)
    assert "UNREADABLE" in whole
    assert max(map(len, whole.splitlines())) > 150
    for columns in WIDTHS:
        require_fitting(printed(line, columns), whole, columns)


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_a_command_fits_every_terminal(printed: Printed, line: str) -> None:
    whole = printed(line)
    for columns in WIDTHS:
        require_fitting(printed(line, columns), whole, columns)
