"""Which pages of the report that is in the folder can stay: those made of the same things, and whole.

A report leaves `pages.json` beside its pages: the hash of each file, and of a cluster's page the hash of all that it is
made of. What cannot be read as such a file counts as no earlier report, so that every page is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_audit.report.report_source import AsOf, ClusterInput
from kraft_audit.report.since_last import left_by_report

PAGES_FILE: Final = "pages.json"
PAGES_FORMAT: Final = "kraft-audit pages 1"


@dataclass(frozen=True, slots=True)
class EarlierPages:
    """The files that an earlier report left in `folder`: of each the hash of its bytes, and of what it was made of.

    `edition` stands for what makes the pages: the versions of the tool and its rules, the templates and the source.
    """

    folder: Path
    edition: str
    hashes: Mapping[str, str] = field(default_factory=dict)
    made_of: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, as_of: AsOf) -> EarlierPages:
        """Those in a folder; none where its `pages.json` is missing or damaged."""
        document = left_by_report(folder / PAGES_FILE, PAGES_FORMAT)
        return cls(folder, _edition(as_of), _texts(document.get("files")), _texts(document.get("made_of")))

    def made_of_now(self, given: ClusterInput) -> str | None:
        """The hash of all that a cluster's page is made of; None where that is not known, as of log dirs."""
        return None if given.origin is None else _hash_of(given, self.edition)

    def has(self, name: str, made_of: str) -> bool:
        """Whether a page is there as it is made of the same things now."""
        return self.made_of.get(name) == made_of and self.is_whole(name)

    def is_whole(self, name: str) -> bool:
        """Whether a file has the bytes that the earlier report wrote."""
        file = self.folder / name
        known = self.hashes.get(name)
        return known is not None and _is_inside(self.folder, name) and file.is_file() and file_hash(file) == known

    def gone(self, names: set[str]) -> Iterator[Path]:
        """The files that the earlier report wrote, and that are none of these: those that nobody has changed since."""
        for name in sorted(self.hashes.keys() - names):
            if self.is_whole(name):
                yield self.folder / name


def write_pages(file: Path, hashes: Mapping[str, str], made_of: Mapping[str, str]) -> None:
    """Leaves what the next report compares with."""
    document = {"format": PAGES_FORMAT, "files": hashes, "made_of": made_of}
    file.write_text(json.dumps(document, ensure_ascii=True, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def file_hash(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _is_inside(folder: Path, name: str) -> bool:
    """Whether a name leads to a file of its own below the folder, whatever wrote the name."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        return False
    return (folder / name).resolve() == folder.resolve().joinpath(*path.parts)


def _texts(values: Any) -> dict[str, str]:
    is_whole = isinstance(values, dict) and all(isinstance(value, str) for value in values.values())
    return values if is_whole else {}


def _edition(as_of: AsOf) -> str:
    parts = [as_of.tool_version, as_of.rules_version, as_of.kind, as_of.source]
    for folder in ("assets", "templates"):
        made_with = files("kraft_audit.report").joinpath(folder).iterdir()
        parts += [file.read_text(encoding="utf-8") for file in sorted(made_with, key=lambda each: each.name)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _hash_of(given: ClusterInput, edition: str) -> str:
    """The order of rows does not count: a table that was arranged anew has the same rows in another one."""
    digest = hashlib.sha256(edition.encode())
    apart = None if given.apart is None else (given.apart.losses, given.apart.log_ends)
    for value in (
        *(given.cluster_id, given.page_id, given.title, given.name, given.origin, given.first_change_ms, apart),
        *(given.history.is_read, given.situation, sorted(given.labels.items()), sorted(given.judged_rules or ())),
        *(sorted(map(repr, rows)) for rows in (given.findings, given.incidents)),
        sorted((day, round(minutes, 3)) for day, minutes in (given.exposed_minutes or {}).items()),  # sums in any order
    ):
        digest.update(repr(value).encode("utf-8", "surrogatepass") + b"\0")
    for name, table in sorted(given.history.tables.items()):
        digest.update(name.encode() + row_bytes(table))
    if given.exposed_spans is not None:
        digest.update(row_bytes(given.exposed_spans))
    return digest.hexdigest()


def row_bytes(table: pa.Table) -> bytes:
    """The rows as Parquet, in an order of their own: neither their order nor how Arrow holds them counts."""
    plain = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    rows = table.sort_by([(column, "ascending") for column in plain]).replace_schema_metadata()
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="none", use_dictionary=False, write_statistics=False)
    return bytes(sink.getvalue())
