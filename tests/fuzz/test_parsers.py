"""Every parser meets mutated inputs: a value or its own error, nothing else, and soon."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft_audit.findings.pack.pack_verification import verify_pack
from scripts.soak_parts import SkippedError, guided
from tests.fuzz.parsers import PARSERS, Parser, kept_file, kept_inputs, mutated

GUIDED_SECONDS = 3
KEPT_BYTES_MAX = 64 << 10
INPUTS = int(os.environ.get("KRAFT_AUDIT_PARSER_INPUTS", "300"))
by_name = pytest.mark.parametrize("parser", PARSERS.values(), ids=PARSERS)


@by_name
def test_sound_inputs_are_read(parser: Parser) -> None:
    seeds = parser.seeds()
    assert seeds
    assert any(parser.feed(seed) for seed in seeds)


@by_name
def test_mutated_inputs_are_read_or_refused(parser: Parser) -> None:
    for number, data in enumerate(mutated(parser, INPUTS, 20261121)):
        try:
            parser.feed(data)
        except Exception as fault:
            raise AssertionError(f"input {number} of {parser.name}: {data[:200]!r}") from fault


@by_name
def test_what_guided_runs_found_is_read_or_refused(parser: Parser) -> None:
    """`python scripts/keep_inputs.py` adds what a soak has found since."""
    for data in kept_inputs(parser.name):
        parser.feed(data)


def test_guided_runs_found_something_for_every_parser_and_little_is_kept() -> None:
    assert all(kept_inputs(name) for name in PARSERS)
    assert sum(kept_file(name).stat().st_size for name in PARSERS) < KEPT_BYTES_MAX


@pytest.mark.ci
@pytest.mark.parametrize("parser", list(PARSERS.values())[::12], ids=list(PARSERS)[::12])
def test_a_short_guided_run_finds_no_fault(parser: Parser, tmp_path: Path) -> None:
    try:
        done = guided(parser.name, 20261122, GUIDED_SECONDS, tmp_path / "inputs")
    except SkippedError as reason:
        pytest.skip(str(reason))
    assert done.failures == ()
    assert done.cases > 100


FOUND = {
    "waivers.yaml": b"waivers:\n  - {rule: KP001, who: a, why: b, until: 2027-02-30}\n",
    "rules.yaml": b"KB001: {max_restarts_an_hour: 2027-13-01}\n",
    "fleet.yaml": b"lake: 2027-02-30\nclusters: []\n",
    "command-line": b"state\0logs\0--at\x002027-02-30",
}


@pytest.mark.parametrize("name", FOUND)
def test_a_day_that_no_calendar_has_is_a_refusal(name: str) -> None:
    assert not PARSERS[name].feed(FOUND[name])


@pytest.mark.parametrize("option", ["--lose\0", "--default\0min.insync.replicas=", "--default\0min.insync.replicas=0"])
def test_digits_without_end_are_a_refusal(option: str) -> None:
    """Python makes no number of more than 4,300."""
    digits = ("0" if option.endswith("0") else "9") * 5000
    assert not PARSERS["command-line"].feed(f"whatif\0logs\0{option}{digits}1".encode())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["waivers.yaml", "rules.yaml", "fleet.yaml"])
def test_endless_nesting_is_a_refusal(name: str) -> None:
    assert not PARSERS[name].feed(b"[" * 4000)


@pytest.mark.parametrize(("position", "value"), [(8, 0x45), (6, 1)], ids=["unknown compression", "encrypted"])
def test_a_pack_that_zip_readers_refuse_is_no_pack(position: int, value: int, tmp_path: Path) -> None:
    data = bytearray(PARSERS["evidence"].seeds()[0])
    for start in (data.find(b"PK\x03\x04"), data.find(b"PK\x01\x02") + 2):
        data[start + position] = value
    (tmp_path / "pack.zip").write_bytes(data)
    assert "cannot be read as an evidence pack" in verify_pack(tmp_path / "pack.zip").problems[0]
