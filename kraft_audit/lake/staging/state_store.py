"""Kept states beside the tables of a lake: `_state/HISTORY/NAME`, both hashes, never changed once written.

A state is written whole, or as what differs from one that is: `NAME-BASE`. An hour changes few of a cluster's
partitions, and writes those. A state is found by the name that a closed plan recorded, so one that no plan names is
only unused space. Whoever cannot read one reads everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from kraft_audit.findings.kept_state import NAME_BYTES, state_name
from kraft_audit.lake.data_files import name_of_history, named_when_whole, table_folder, write_octets
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.tables.kept_parts import KeptPartsError, changes_of, with_changes

STATES_FOLDER: Final = "_state"
"""Delta and Spark take no folder for a table whose name begins so."""
BASE_BYTES_MIN: Final = 256 << 10
"""A smaller state is written whole: a second file to read costs more than its bytes."""
_BETWEEN: Final = "-"
_NAME: Final = re.compile(f"[0-9a-f]{{{2 * NAME_BYTES}}}({_BETWEEN}[0-9a-f]{{{2 * NAME_BYTES}}})?")


@dataclass(frozen=True, slots=True)
class StoredState:
    """A state as it was read: `content` for `KeptState`; the next one may be written as changes of `base`."""

    content: bytes
    base_name: str
    base: bytes


def put_state(lake_uri: str, history: str, content: bytes, earlier: StoredState | None = None) -> str:
    """Writes a state of a history where it is not there yet, and returns its name. Raises OSError.

    Where that is less than half of it, what differs from the base of an earlier state is written.
    """
    if earlier is not None and len(earlier.base) >= BASE_BYTES_MIN and state_name(content) != earlier.base_name:
        changes = changes_of(earlier.base, content)
        if changes is not None:
            return _put(lake_uri, history, f"{state_name(changes)}{_BETWEEN}{earlier.base_name}", changes)
    return _put(lake_uri, history, state_name(content), content)


def _put(lake_uri: str, history: str, name: str, content: bytes) -> str:
    folder = _folder(lake_uri, history)
    if folder.get_file_info(name).type == pafs.FileType.File:
        return name
    with named_when_whole(lake_uri, folder, name) as written:
        write_octets(folder, written, content)
    return name


def get_state(lake_uri: str, history: str, name: str) -> StoredState:
    """A state by its name. Raises KeptPartsError where there are no bytes, or other ones, under this name."""
    if _NAME.fullmatch(name) is None:
        raise KeptPartsError(f"{name!r} is no name of a state")
    folder = _folder(lake_uri, history)
    _, is_changed, base_name = name.partition(_BETWEEN)
    content = _read(folder, name)
    if not is_changed:
        return StoredState(content, name, content)
    base = _read(folder, base_name)
    return StoredState(with_changes(base, content), base_name, base)


def _read(folder: pafs.FileSystem, name: str) -> bytes:
    try:
        with folder.open_input_file(name) as source:
            content: bytes = source.read()
    except (OSError, pa.ArrowException):
        raise KeptPartsError("it is not in the lake") from None
    if state_name(content) != name.partition(_BETWEEN)[0]:
        raise KeptPartsError("its bytes are not those that were written")
    return content


def delete_states(lake_uri: str, history: str, except_names: frozenset[str], *, dry_run: bool = False) -> int:
    """Deletes the states of a history but for some and their bases; returns how many, or would be. Raises OSError."""
    folder = _folder(lake_uri, history)
    names = [info.base_name for info in folder.get_file_info(pafs.FileSelector("", allow_not_found=True))]
    needed = except_names | {name.partition(_BETWEEN)[2] for name in except_names}
    unused = [name for name in names if _NAME.fullmatch(name.partition(".")[0]) and name not in needed]
    for name in () if dry_run else unused:
        folder.delete_file(name)
    return len(unused)


def _folder(lake_uri: str, history: str) -> pafs.FileSystem:
    lake = lake_uri if is_uri(lake_uri) else str(Path(lake_uri))
    return table_folder(lake, f"{STATES_FOLDER}/{name_of_history(history)}")
