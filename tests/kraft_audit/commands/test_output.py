"""The one sink: text from bytes that anyone may have written, made harmless for each format."""

from __future__ import annotations

import csv
import io
import json
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_audit.commands.cli import run_command
from kraft_audit.text.output import (
    Format,
    Json,
    Output,
    ShownColumn,
    json_objects,
    neutral,
    table_columns,
    to_csv_cell,
    to_json,
)
from kraft_audit.text.terminal import all_columns

ACTING = ["\x00", "\x07", "\x1b", "\x7f", "\x85", "\x9b", "\n", "\r", "\u200e", "\u2028", "\u202e", "\u2066", "\ufeff"]
COLUMNS = [ShownColumn("name", "name"), ShownColumn("count", "count")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("character", ACTING)
def test_acting_characters_are_shown_as_what_they_are(character: str) -> None:
    assert neutral(f"a{character}b") == f"a{ascii(character)[1:-1]}b"
    assert json.loads(to_json(f"a{character}b")) == f"a{character}b"
    assert character not in to_json(f"a{character}b")


@given(st.text())
def test_no_text_ends_a_line_or_moves_a_cursor(text: str) -> None:
    assert len(neutral(text).splitlines()) <= 1
    assert not set(neutral(text)) & set(ACTING)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_json_means_what_was_given(value: object) -> None:
    assert json.loads(to_json({"value": value})) == {"value": value}


@given(st.lists(st.tuples(st.text(), st.integers(-(2**63), 2**63 - 1), st.none() | st.booleans()), max_size=5))
def test_arrow_rows_are_the_json_of_their_values(rows: list[tuple[str, int, bool | None]]) -> None:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.int64()), pa.array(columns[2], pa.bool_())],
        names=["text", "number", "flag"],
    )
    assert [json.loads(text) for text in json_objects(batch)] == batch.to_pylist()
    assert list(json_objects(batch)) == [to_json(row) for row in batch.to_pylist()]


@pytest.mark.parametrize("start", ["=", "+", "-", "@"])
def test_no_text_is_a_formula(start: str) -> None:
    assert to_csv_cell(f"{start}1+1") == f"'{start}1+1"
    assert to_csv_cell(-1) == "-1"
    assert to_csv_cell(f"\t{start}") in (f"'\\t{start}", f"\\t{start}")


def test_formats_of_rows() -> None:
    rows = [{"name": "a", "count": 1, "more": Json('{"b":[1]}')}, {"name": "bb", "count": None, "more": None}]
    printed = {}
    for format_ in Format:
        stream = io.StringIO()
        assert Output(format_, stream).rows(rows, COLUMNS, rows[0]) == 2
        printed[format_] = stream.getvalue()
    plain = [{"name": "a", "count": 1, "more": {"b": [1]}}, {"name": "bb", "count": None, "more": None}]
    assert json.loads(printed[Format.JSON]) == plain
    assert [json.loads(line) for line in printed[Format.JSONL].splitlines()] == plain
    assert list(csv.reader(io.StringIO(printed[Format.CSV]))) == [
        ["name", "count", "more"],
        ["a", "1", '{"b":[1]}'],
        ["bb", "", ""],
    ]
    assert printed[Format.TABLE] == "name  count\na         1\nbb\n"


@pytest.mark.parametrize("format_", list(Format))
def test_no_rows(format_: Format) -> None:
    for keys, header in (((), "name,count\n"), (("name", "count", "more"), "name,count,more\n")):
        stream = io.StringIO()
        Output(format_, stream).rows([], COLUMNS, keys)
        assert stream.getvalue() == {"table": "", "json": "[]\n", "jsonl": "", "csv": header}[format_]


def test_color_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Output(stream=Terminal()).has_color
    assert not Output(stream=io.StringIO()).has_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Output(stream=Terminal()).has_color


def on_terminal(
    columns: int, rows: list[dict[str, object]], of: list[ShownColumn], patch: pytest.MonkeyPatch
) -> list[str]:
    patch.setenv("COLUMNS", str(columns))
    patch.setenv("NO_COLOR", "1")
    stream = Terminal()
    Output(stream=stream).rows(rows, of)
    return stream.getvalue().splitlines()


def test_a_table_fits_the_terminal_and_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_terminal(20, [{"name": "n" * 50, "count": 123456}], COLUMNS, monkeypatch)
    assert lines == ["name", "     count", "n" * 50, "    123456"]


def test_a_table_with_room_has_a_line_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_terminal(80, [{"name": "n", "count": 1}], COLUMNS, monkeypatch) == ["name  count", "n         1"]


@given(
    st.lists(
        st.lists(st.integers(0, 10**18) | st.text("ab ,7[]", max_size=90), min_size=4, max_size=4),
        min_size=1,
        max_size=3,
    ),
    st.integers(24, 120),
)
def test_every_number_is_whole_and_every_line_fits(values: list[list[object]], room: int) -> None:
    columns = [ShownColumn(str(n), f"c{n}") for n, _ in enumerate(values[0])]
    rows = [{str(n): value for n, value in enumerate(row)} for row in values]
    rows = [row for row in rows if all(type(row[c.name]) is type(rows[0][c.name]) for c in columns)]
    with pytest.MonkeyPatch.context() as patch:
        lines = on_terminal(room, rows, columns, patch)
    assert all(len(line) <= room or not re.search("[ ,].", line.strip()) for line in lines)
    words = " ".join(lines).split()
    texts = [str(value) for row in rows for value in row.values()] + [c.title for c in columns]
    assert {part for text in texts for part in re.findall("[^ ,]+", text)} <= set(re.split("[ ,\n]+", "\n".join(lines)))
    assert all(str(value) in words for row in rows for value in row.values() if isinstance(value, int))
    reported = "".join(str(value) for row in rows for value in row.values()) + "".join(c.title for c in columns)
    assert sorted("".join(lines).replace(" ", "")) == sorted(reported.replace(" ", ""))


def test_a_long_text_is_folded_beside_short_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [ShownColumn("offset", "offset"), ShownColumn("shown", "event", is_wide=True)]
    lines = on_terminal(50, [{"offset": 188, "shown": "partitions fenced " * 4}], columns, monkeypatch)
    assert lines == [
        "offset  event",
        "   188  partitions fenced partitions fenced",
        "        partitions fenced partitions fenced",
    ]


def test_a_table_drops_columns_in_its_order_and_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = table_columns("path offset isr why", {"isr": "ISR"}, wide="why", dropped="path isr")
    row = {"path": "node-1/" + "p" * 40, "offset": 188, "isr": "[11,12,13]", "why": "broker 11 was fenced"}
    assert on_terminal(60, [row], columns, monkeypatch) == [
        "offset  ISR         why",
        "   188  [11,12,13]  broker 11 was fenced",
        "--wide shows 1 more column: path",
    ]
    assert on_terminal(14, [row], columns, monkeypatch)[:2] == ["offset", "    why"]
    with all_columns(True):
        assert on_terminal(60, [row], columns, monkeypatch)[0].split() == ["path", "offset"]
    assert not any("--wide" in line for line in on_terminal(200, [row], columns, monkeypatch))


def test_a_command_in_a_cell_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    command = "kafka-cluster unregister --bootstrap-controller 127.0.0.1:20901 --id 11"
    lines = on_terminal(48, [{"first": f"When it is gone: {command}"}], [ShownColumn("first", "first")], monkeypatch)
    assert lines[1] == "When it is gone:"
    assert "\n".join(lines[2:]).replace(" \\\n", " ").split() == command.split()
    assert lines[2].endswith(" \\")


def test_a_later_row_with_a_longer_word_than_its_column_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = table_columns("topic leader why", wide="why")
    rows = [{"topic": "t", "leader": 1, "why": "w"}] * 200 + [{"topic": "t" * 30, "leader": 2**40, "why": "w"}]
    *_, name, rest = on_terminal(40, rows, columns, monkeypatch)
    assert (name, rest.split()) == ("t" * 30, [str(2**40), "w"])


def test_a_list_of_ids_is_parted_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = list(range(1000, 1012))
    lines = on_terminal(32, [{"ids": ids}], [ShownColumn("ids", "ids")], monkeypatch)
    assert "".join(lines[1:]) == json.dumps(ids, separators=(",", ":"))
    assert all(line.endswith((",", "]")) for line in lines[1:])


def test_nothing_is_cut_in_a_pipe_but_names_that_no_kafka_accepts() -> None:
    stream, text = io.StringIO(), "name, " * 1_000 + "n"
    Output(stream=stream).rows([{"name": text, "count": 1}, {"name": "n" * 5_000, "count": 1}], COLUMNS)
    _, whole, shown = stream.getvalue().splitlines()
    assert whole == f"{text}      1"
    assert shown.startswith("n" * 60)
    assert len(shown) < 255


def test_long_text_is_broken_for_a_terminal_or_columns_and_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "    do    " + " ".join(["bring broker 13 back first"] * 6)
    for stream, columns, is_broken in ((Terminal(), 70, True), (io.StringIO(), 70, True), (io.StringIO(), 0, False)):
        monkeypatch.setenv("COLUMNS", str(columns))
        Output(stream=stream).text(text, hanging=10)
        lines = stream.getvalue().splitlines()
        assert (len(lines) > 1) is is_broken
        assert " ".join(" ".join(lines).split()) == " ".join(text.split())
        assert not is_broken or all(len(line) <= 70 for line in lines)
        assert all(line[:10].isspace() and line[10] != " " for line in lines[1:])


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_rule_is_explained_in_the_lines_of_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal breaks a longer line inside a word; a wider one than anybody reads changes nothing."""
    for rule in ("KP001", "KV013", "KQ002"):
        terminal, pipe = Terminal(), io.StringIO()
        for stream, declared in ((terminal, columns), (pipe, 0)):
            monkeypatch.setenv("COLUMNS", str(declared))
            monkeypatch.setattr("sys.stdout", stream)
            assert run_command(["rules", rule]) == 0
        lines = terminal.getvalue().splitlines()
        assert all(len(line) <= min(columns, 110) for line in lines if len(line.split()) > 1), lines
        assert terminal.getvalue().split() == pipe.getvalue().split()
        assert (lines == pipe.getvalue().splitlines()) is (columns == 200)
