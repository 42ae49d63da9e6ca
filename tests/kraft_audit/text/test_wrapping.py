"""Sentences in the lines of a terminal."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.text.wrapping import text_width, wrapped


@given(st.text("ab [].,   \\漢é", max_size=200), st.integers(60, 200), st.none() | st.integers(0, 20))
def test_every_word_is_whole_and_every_line_fits(text: str, room: int, hanging: int | None) -> None:
    lines = wrapped(text, room, hanging)
    assert " ".join(lines).split() == text.split()
    assert all(text_width(line) <= room or len(line.split()) == 1 for line in lines)


def test_a_wide_character_takes_two_columns_and_an_accent_none() -> None:
    assert [text_width(text) for text in ("ab", "漢字", "e\u0301")] == [2, 4, 1]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("NEXT  start the brokers again", ["NEXT  start the", "      brokers again"]),
        ("  the brokers are away", ["  the brokers are", "    away"]),
        ("  01:34:04  broker 11 away", ["  01:34:04  broker", "          11 away"]),
        ("lost one by one   since 01:34", ["lost one by one", "  since 01:34"]),
        ("of /a/path/longer/than/a/line it is", ["of", "  /a/path/longer/than/a/line", "  it is"]),
    ],
)
def test_a_line_goes_on_below_its_text(text: str, lines: list[str]) -> None:
    assert wrapped(text, 20) == lines


def test_a_command_that_does_not_fit_has_its_own_line() -> None:
    text = "NEXT        See who has to come back first:   kraft-audit recover-plan incident.tgz"
    assert wrapped(text, 120) == [text]
    assert wrapped(text, 60) == [
        "NEXT        See who has to come back first:",
        "            kraft-audit recover-plan incident.tgz",
    ]
    asked = "NEXT        kraft-audit may-i start 2 incident.tgz --stopped 3"
    assert wrapped(asked, 60, 12) == ["NEXT        kraft-audit may-i start 2 incident.tgz \\", f"{' ' * 16}--stopped 3"]


@pytest.mark.parametrize(
    "sentence",
    [
        "run: kafka-storage format --standalone, then start it and look at its log before anything else",
        "a KafkaUser has only its own quotas: kafka-configs sets those of others, one after the other",
        "do: kafka-features upgrade --feature kraft.version=1. It cannot be undone by anybody, ever.",
        "do: kafka-features upgrade --feature 'an open quote that no shell would take as it stands here",
    ],
)
def test_a_sentence_that_goes_on_after_a_command_is_no_command(sentence: str) -> None:
    lines = wrapped(sentence, 60)
    assert len(lines) == 2
    assert " ".join(line.strip() for line in lines) == sentence


@given(
    st.lists(st.text("ab/-'\" $\\*é", min_size=1, max_size=30).filter(lambda word: word[-1] not in ".,;:"), max_size=8),
    st.integers(60, 120),
)
def test_a_command_in_several_lines_is_the_same_command(words: list[str], room: int) -> None:
    command = shlex.join(["kraft-audit", "rescue", *words])
    lines = wrapped(f"Find the copy to go on from, whichever it is:   {command}", room, 12)
    pasted = "\n".join(lines).partition(":")[2].strip()
    assert shlex.split(pasted.replace(" \\\n", " ")) == shlex.split(command)


def test_bash_takes_a_command_that_was_broken() -> None:
    command = "kraft-audit rescue '/backups/of the/first disk' --gone 1,2 --from 3 --out /var/lib/kafka/rescued-3"
    lines = wrapped(f"NEXT        {command}", 60, 12)
    assert len(lines) == 3
    pasted = "\n".join([lines[0].removeprefix("NEXT"), *lines[1:]])
    script = f'kraft-audit() {{ printf "%s\\n" "$@"; }}\n{pasted}\n'
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == shlex.split(command)[1:]
