"""Times and lengths as people read them; and logs whose timestamps are no times, through all that shows times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kraft_audit.commands.arguments import node_ids_of
from kraft_audit.commands.cli import run_command
from kraft_audit.commands.ending import UsageError
from kraft_audit.text.readable import (
    LAST_TIME_MS,
    any_of,
    listed,
    nouns,
    pasted_ids,
    time_text,
    timestamp_us,
    when,
)
from tests.builders.logs import write_node
from tests.builders.unsafe_times import NO_TIMES, unsafe_log


def test_times() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert time_text(None) == ""
    assert when(1_700_000_000_123) == "2023-11-14 22:13:20"
    assert when(1_700_000_000_123, 1_700_000_000_000) == "22:13:20"
    assert when(LAST_TIME_MS - 1, 0) == "9999-12-31 23:59:59"
    assert timestamp_us(1_700_000_000_123) == 1_700_000_000_123_000


@pytest.mark.parametrize("time_ms", NO_TIMES)
def test_what_is_no_time_is_shown_as_the_number_that_it_is(time_ms: int) -> None:
    assert time_text(time_ms) == str(time_ms)
    assert when(time_ms) == f"{time_ms} ms"
    assert when(time_ms, 0) == f"{time_ms} ms"
    assert when(0, time_ms) == "1970-01-01 00:00:00"
    assert timestamp_us(time_ms) is None


@pytest.mark.parametrize("times_ms", [(time, time) for time in NO_TIMES] + [(2**63 - 1, -(2**63))])
def test_every_command_lives_with_what_is_no_time(
    times_ms: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KRAFT_AUDIT_TRACEBACK", "1")
    logs, out = write_node(tmp_path / "logs", 1, unsafe_log(times_ms).content), tmp_path / "out"
    out.mkdir()

    def run(*arguments: str | Path) -> str:
        capsys.readouterr()
        code = run_command([arguments[0], str(logs), *map(str, arguments[1:])])
        reported = capsys.readouterr()
        assert code in (0, 1), (arguments, reported.err)
        return reported.out

    assert f"{times_ms[1]} ms" in run("check"), "when the partition became unsafe"
    for output in ("json", "csv"):
        assert str(times_ms[1]) in run("check", "--output", output)
    for command in ("timeline", "state", "partitions", "quorum", "dump", "recover-plan"):
        run(command)
    run("quorum", "--voters")
    run("quorum", "--diverge")
    run("whatif", "--lose", "11")
    run("evidence", "--out", out / "pack.zip")
    for kind in ("html", "csv", "openmetrics", "parquet"):
        run("report", "--output", kind, "--out", out / kind)
    found = pq.read_table(out / "parquet").to_pylist()
    unsafe = [row for row in found if row["rule"] == "KP001"]
    assert [(row["from_ms"], row["from_time"]) for row in unsafe] == [(times_ms[1], None)]


@pytest.mark.parametrize(
    ("ids", "pasted"),
    [
        ((), ""),
        ((3, 1, 2), "1,2,3"),
        (range(1, 9), "1,2,3,4,5,6,7,8"),
        (range(1, 10), "1-9"),
        ((1, *range(4, 20_001), 30_000), "1,4-20000,30000"),
    ],
)
def test_ids_are_pasted_as_options_take_them(ids: Sequence[int], pasted: str) -> None:
    assert pasted_ids(ids) == pasted
    assert node_ids_of("--gone", pasted) == sorted(ids)


def test_a_sentence_names_the_first_of_very_many() -> None:
    assert listed(range(32)).endswith("30 and 31")
    assert listed(range(33)) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 21 more"
    assert nouns("node", range(33)).startswith("nodes 0, 1")
    assert any_of(range(33)).endswith("11 or 21 more")


@pytest.mark.parametrize("text", ["4-2", "1,-2", "-", "0-99999999999", "a-b"])
def test_a_span_of_ids_that_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="--gone"):
        node_ids_of("--gone", text)
