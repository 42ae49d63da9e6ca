"""Every command that a terminal shows in several lines is, once pasted, the command that a pipe gets in one line."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_audit.commands.cli import run_command
from tests.builders.captures import SAMPLES

COLUMNS = 80
PROGRAM = re.compile(r"(?:^ *|: +| {3,})(echo '.* > |kraft-audit [a-z]|kafka-[a-z-]+ (?:.*)-)", re.MULTILINE)
SHELL_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
CONTINUED = re.compile(r" \\\n *")
QUESTIONS = (
    *("check", "check --full", "check --include-resolved", "recover-plan --all", "salvage --plan", "may-i roll"),
    *("quorum", "rescue --plan", "rescue --plan --gone 1,2", "upgrade-check --to 4.4", "upgrade-check --to 3.5"),
    *(f"may-i {action} {node}" for action in ("start", "wipe", "scale-in", "remove") for node in (1, 3, 11, 13)),
)
USUAL = ("divergence", "elr-06-kill-13-last-replica", "jbod", "static-to-dynamic-upgrade", "uncommitted-voter-change")
"""Samples whose commands differ most: quorums and replicas that are lost, directories, voters that change."""
Words = tuple[str, ...]


def each_sample() -> Iterator[Any]:
    for sample in sorted(SAMPLES.glob("*.tgz")):
        marks = [] if sample.stem in USUAL else [pytest.mark.long]
        yield pytest.param(sample, id=sample.name, marks=[pytest.mark.slow, *marks])


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path, io.StringIO], str]:
    monkeypatch.chdir(SAMPLES.parent)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("NO_COLOR", "1")

    def run(question: str, sample: Path, stream: io.StringIO) -> str:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", stream)
            patch.setattr("sys.stderr", io.StringIO())
            if not stream.isatty():
                patch.delenv("COLUMNS")
            run_command([*question.split(), f"samples/{sample.name}", "--quiet"])
        return stream.getvalue()

    return run


def commands(text: str) -> Iterator[str]:
    """The commands of a text, each from its program to the end of its line. What more of a sentence follows is none."""
    for line in text.splitlines():
        if line.startswith("#") or (found := PROGRAM.search(line)) is None:
            continue
        command = line[found.start(1) :]
        words = SHELL_WORD.findall(command)
        if not any(map(_ends_sentence, words, [*words[1:], ""])):
            yield command


def _ends_sentence(word: str, after: str) -> bool:
    if word.endswith(";") and after.startswith(("kraft-audit", "kafka-")):
        return False
    return word.endswith((".", ",", ";", ":"))


def words_of(command: str) -> Words:
    return tuple(shlex.split(command))


@pytest.mark.parametrize("sample", list(each_sample()))
def test_a_broken_command_is_pasted_as_the_same_command(
    printed: Callable[[str, Path, io.StringIO], str], sample: Path
) -> None:
    pasted: list[str] = []
    for question in QUESTIONS:
        whole, shown = (printed(question, sample, kind()) for kind in (io.StringIO, Screen))
        wanted = Counter(map(words_of, commands(whole)))
        joined = CONTINUED.sub(" ", shown)
        assert not wanted - Counter(map(words_of, commands(joined))), question
        pasted += [shown_command(shown, command) for command in commands(joined)]
    assert any(" \\\n" in command for command in pasted)
    checked = subprocess.run(["bash", "-n"], input="\n".join(pasted), capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def shown_command(shown: str, command: str) -> str:
    """A command as the terminal has it, in several lines or one."""
    pattern = r" (?:\\\n *)?".join(re.escape(part) for part in command.split(" "))
    found = re.search(pattern, shown)
    assert found is not None, command
    return found[0]


@pytest.mark.parametrize("sample", list(each_sample()))
def test_a_restore_kit_on_a_terminal_is_the_same_script(
    printed: Callable[[str, Path, io.StringIO], str], sample: Path
) -> None:
    """Bash prints what it read: a here-document as it stands, a command without the breaks of its lines."""
    whole, shown = (printed("restore-kit", sample, kind()) for kind in (io.StringIO, Screen))
    assert _read_by_bash(shown) == _read_by_bash(whole)


def _read_by_bash(script: str) -> str:
    ran = subprocess.run(
        ["bash", "-c", 'eval "kit() { $1\n}"; declare -f kit', "bash", script],
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout
