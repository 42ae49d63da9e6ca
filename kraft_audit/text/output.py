"""The one place where a command's results become text: a table for people, JSON and CSV for programs.

Names, values and error texts come from bytes that anyone may have written. They are made harmless here and only here:
control characters, terminal escapes and bidirectional marks are shown as escapes, spreadsheet formulas are quoted.
"""

from __future__ import annotations

import csv
import enum
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any, Final

from kraft_audit.text.readable import plural
from kraft_audit.text.table_layout import ColumnNeed, layout, longest_word
from kraft_audit.text.terminal import line_columns, shows_all_columns
from kraft_audit.text.watched_work import erase
from kraft_audit.text.wrapping import wrapped, wrapped_script

if TYPE_CHECKING:
    import pyarrow as pa

OutputRow = Mapping[str, Any]
SAMPLED_ROWS: Final = 200
"""A table's widths follow its first rows, so that it starts to print before the last row is known."""
CELL_CHARACTERS_MAX: Final = 60
"""A longer cell takes the room that it needs, and does not widen the cells above and below."""
ROOM_MIN: Final = 60
"""A narrower terminal breaks lines by itself."""
SLICED_ROWS: Final = 1000
"""At most so many rows of a batch are Python objects at the same time."""
HEADING_SGR: Final = "1"
SHOWN_NAME_CHARACTERS_MAX: Final = 255
"""What a file system accepts; a topic's name has at most 249 (Topic.MAX_NAME_LENGTH, Kafka 4.3)."""
NAME_END_CHARACTERS: Final = 60
_LONG_NAME: Final = re.compile(rf"""[^\s"'{{}}\[\](),:;/=@|]{{{SHOWN_NAME_CHARACTERS_MAX + 1},}}""")
"""A name that no file or topic can have; not a path or a file's content, which consist of shorter ones."""
_json_string: Final = json.JSONEncoder(ensure_ascii=False).encode
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
_INVISIBLE: Final = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]"
)


class Format(enum.StrEnum):
    """What `--output` takes."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Json:
    """Text that is JSON already: it stands in JSON output as the value it is, elsewhere as text."""

    text: str


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of a table for people: `title` is its heading.

    A wide one has the room of its longest cell, and may go on below its row. Those with a `drop_rank` are left out
    where a line has no room for all, the lowest rank first.
    """

    name: str
    title: str
    is_wide: bool = False
    drop_rank: int | None = None


def table_columns(
    names: str | Iterable[str],
    titles: Mapping[str, str] = MappingProxyType({}),
    *,
    wide: str = "",
    dropped: str | Sequence[str] = "",
) -> tuple[ShownColumn, ...]:
    """The columns of these names, in their order; each is its own title where `titles` has no other.

    `dropped` names those that a narrow terminal does without, in the order in which they go.
    """
    names, dropped = (given.split() if isinstance(given, str) else list(given) for given in (names, dropped))
    ranks = {name: rank for rank, name in enumerate(dropped)}
    return tuple(ShownColumn(name, titles.get(name, name), name in wide.split(), ranks.get(name)) for name in names)


def neutral(text: str) -> str:
    r"""Text on one line in which nothing acts: an escape character becomes `\x1b`, a bidirectional mark `\u202e`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == " " or not _acts(character):
        return character
    return ascii(character)[1:-1]


def _acts(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def abridged(text: str) -> str:
    """A line for people: of a name longer than any that Kafka or a file system accepts, both ends and its length."""
    return text if len(text) <= SHOWN_NAME_CHARACTERS_MAX else _LONG_NAME.sub(_both_ends, text)


def _both_ends(match: re.Match[str]) -> str:
    name = match[0]
    return f"{name[:NAME_END_CHARACTERS]}…{name[-NAME_END_CHARACTERS:]} ({len(name):,} characters)"


def to_json(value: Any) -> str:
    """Compact JSON; what is invisible or acts on a terminal is written as an escape."""
    if isinstance(value, Json):
        return _escaped(value.text)
    if isinstance(value, Mapping):
        inner = (f"{to_json(str(name))}:{to_json(part)}" for name, part in value.items())
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(to_json(part) for part in value) + "]"
    return _escaped(json.dumps(value, ensure_ascii=False, default=_to_plain))


def _to_plain(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _escaped(text: str) -> str:
    return text if text.isascii() and "\x7f" not in text else _INVISIBLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def json_objects(batch: pa.RecordBatch, json_columns: frozenset[str] = frozenset()) -> Iterator[str]:
    """Each row of an Arrow batch as `to_json` gives it; built by columns, which is ten times as fast."""
    names = batch.schema.names
    if not names:
        return
    texts = [_json_texts(batch.column(place).to_pylist(), name in json_columns) for place, name in enumerate(names)]
    heads = [f"{'{' if place == 0 else ','}{json.dumps(name)}:" for place, name in enumerate(names)]
    for values in zip(*texts, strict=True):
        yield _escaped("".join([part for pair in zip(heads, values, strict=True) for part in pair]) + "}")


def _json_texts(values: list[Any], is_json: bool) -> list[str]:
    if is_json:
        return ["null" if value is None else value for value in values]
    return [
        str(value) if type(value) is int else _json_string(value) if type(value) is str else to_json(value)
        for value in values
    ]


def to_cell(value: Any) -> str:
    """A value for people or a spreadsheet."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Json):
        return neutral(value.text)
    if isinstance(value, list | tuple | Mapping):
        return to_json(value)
    return neutral(value) if isinstance(value, str) else neutral(_to_plain(value))


def to_csv_cell(value: Any) -> str:
    """A value for a spreadsheet, which must not take a name for a formula."""
    text = to_cell(value)
    is_text = isinstance(value, str | Json | list | tuple | Mapping)
    return f"'{text}" if is_text and text.startswith(_FORMULA_STARTS) else text


class Output:
    """Where a command hands its results; it never prints itself."""

    def __init__(self, format_: Format | None = None, stream: IO[str] | None = None) -> None:
        self.stream = stream if stream is not None else sys.stdout
        self.is_terminal = self.stream.isatty()
        self.format = format_ or Format.TABLE
        self.has_color = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def room(self) -> int | None:
        """The characters of a line of text; None where it is as long as it needs to be."""
        columns = line_columns(self.stream)
        return None if columns is None else max(columns, ROOM_MIN)

    def rows(self, rows: Iterable[OutputRow], columns: Sequence[ShownColumn], keys: Iterable[str] = ()) -> int:
        """Prints rows as they come; returns how many there were. All keys of a row go to JSON, `columns` to a table.

        `keys` are the columns of CSV, whether there are rows or not; by default those of `columns`.
        """
        count = 0

        def counted() -> Iterator[OutputRow]:
            nonlocal count
            for row in rows:
                count += 1
                yield row

        if self.format is Format.TABLE:
            self._table(counted(), columns)
        elif self.format is Format.CSV:
            self._csv(counted(), list(keys) or [column.name for column in columns])
        else:
            (self._json if self.format is Format.JSON else self._json_lines)(counted())
        return count

    def batches(
        self,
        batches: Iterable[pa.RecordBatch],
        columns: Sequence[ShownColumn],
        keys: Iterable[str],
        json_columns: frozenset[str] = frozenset(),
    ) -> int:
        """Prints Arrow batches as they come, as `rows` does; `json_columns` hold JSON text."""
        count = 0
        slices = (
            batch.slice(start, SLICED_ROWS) for batch in batches for start in range(0, batch.num_rows, SLICED_ROWS)
        )
        if self.format is Format.JSONL:
            for part in slices:
                count += part.num_rows
                self.stream.writelines(f"{text}\n" for text in json_objects(part, json_columns))
        elif self.format is Format.JSON:
            separator = "[\n"
            for part in slices:
                count += part.num_rows
                for text in json_objects(part, json_columns):
                    self.stream.write(separator + text)
                    separator = ",\n"
            self.stream.write("[]\n" if separator == "[\n" else "\n]\n")
        else:
            count = self.rows((row for part in slices for row in part.to_pylist()), columns, keys)
        return count

    def document(self, document: Any) -> None:
        """Prints one JSON document; pretty on a terminal, one line elsewhere."""
        text = to_json(document)
        self.line(json.dumps(json.loads(text), indent=2) if self.is_terminal else text)

    def line(self, text: str) -> None:
        """Prints one line as it is: for text that is known to be harmless."""
        if self.is_terminal:  # what goes elsewhere does not write over the status line
            erase()
        self.stream.write(text + "\n")

    def text(self, text: str, hanging: int | None = None) -> None:
        """Prints one line of text that came from data, in as many lines as it needs, the later ones set in by
        `hanging`, by default below the line's own text.
        """
        self._wrapped(text, hanging)

    def script(self, line: str) -> None:
        """Prints a harmless line of a shell script: a terminal gets lines that the shell takes for the same one."""
        for part in wrapped_script(line, self.room or sys.maxsize) if self.is_terminal else [line]:
            self.line(part)

    def colored(self, word: str, sgr: str, rest: str = "", hanging: int | None = None) -> None:
        """Prints a line as `text` does, which begins with a coloured word; `sgr` are the codes of ECMA-48."""
        self._wrapped(word + rest, hanging, sgr, len(neutral(word)))

    def title(self, text: str) -> None:
        """Prints a heading."""
        self._wrapped(text, None, HEADING_SGR)

    def _wrapped(self, text: str, hanging: int | None, sgr: str = "", colored: int | None = None) -> None:
        """Prints a line, the first so many characters of it coloured, or all: a colour's codes take no room."""
        room, harmless = self.room, abridged(neutral(text))
        for line in [harmless] if room is None else wrapped(harmless, room, hanging):
            self.line(self._in_color(line[:colored], sgr) + line[len(line[:colored]) :])
            colored = colored and 0

    def _in_color(self, text: str, sgr: str) -> str:
        return f"\x1b[{sgr}m{text}\x1b[0m" if self.has_color and sgr and text else text

    def _json(self, rows: Iterator[OutputRow]) -> None:
        separator = "["
        for row in rows:
            self.stream.write(f"{separator}\n{to_json(row)}")
            separator = ","
        self.stream.write("[]\n" if separator == "[" else "\n]\n")

    def _json_lines(self, rows: Iterator[OutputRow]) -> None:
        for row in rows:
            self.stream.write(to_json(row) + "\n")

    def _csv(self, rows: Iterator[OutputRow], header: Sequence[str]) -> None:
        writer = csv.writer(self.stream, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            writer.writerow([to_csv_cell(row[name]) for name in header])

    def _table(self, rows: Iterator[OutputRow], columns: Sequence[ShownColumn]) -> None:
        sample = list(islice(rows, SAMPLED_ROWS))
        if not sample:
            return
        cells_of_sample = [_cells(row, columns) for row in sample]
        of_places = [_column(place, column, sample, cells_of_sample) for place, column in enumerate(columns)]
        ranks = {column.drop_rank: place for place, column in enumerate(columns) if column.drop_rank is not None}
        dropped = [] if shows_all_columns() else [ranks[rank] for rank in sorted(ranks)]
        laid_out = layout(of_places, line_columns(self.stream), dropped)
        for line in laid_out.lines([column.title for column in columns]):
            self.line(self._in_color(line, HEADING_SGR))
        for cells in cells_of_sample:
            self._lines(laid_out.lines(cells))
        for row in rows:
            self._lines(laid_out.lines(_cells(row, columns)))
        kept = {column.place for column in laid_out.columns}
        hidden = [column.title for place, column in enumerate(columns) if place not in kept]
        if hidden:
            note = f"--wide shows {plural(len(hidden), 'more column')}"
            named = f"{note}: {', '.join(hidden)}"
            self.line(named if len(named) <= (self.room or 0) else note)

    def _lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.line(line)


def _cells(row: OutputRow, columns: Sequence[ShownColumn]) -> list[str]:
    return [abridged(to_cell(row.get(column.name))) for column in columns]


def _column(place: int, shown: ShownColumn, rows: Sequence[OutputRow], cells: Sequence[Sequence[str]]) -> ColumnNeed:
    """What a column needs for its title and the cells of these rows."""
    limit = sys.maxsize if shown.is_wide else CELL_CHARACTERS_MAX
    width = max(len(shown.title), *(min(len(row[place]), limit) for row in cells))
    least = max(longest_word(row[place]) for row in cells)
    return ColumnNeed(place, width, least, _is_number([row.get(shown.name) for row in rows]), shown.is_wide)


def _is_number(values: Sequence[Any]) -> bool:
    """Whether a column holds whole numbers, which stand at the right."""
    present = [value for value in values if value is not None]
    return bool(present) and all(type(value) is int for value in present)
