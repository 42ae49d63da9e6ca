"""What plans keep of earlier captures, beside the tables of a lake: `_state/HISTORY/NAME`, both hashes.

A file is never changed once written. It is found by the name that a closed plan recorded, so one that no plan names is
only unused space.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from kraft_audit.capture.plan import ClusterPlan
from kraft_audit.lake.data_files import name_of_history, named_when_whole, table_folder, write_octets
from kraft_audit.lake.lake_paths import is_uri
from kraft_audit.pipeline.earlier_captures import NAME_BYTES, EarlierCaptures, EarlierCapturesError, name_of

STATES_FOLDER: Final = "_state"
"""Delta and Spark take no folder for a table whose name begins so."""
_NAME: Final = re.compile(f"[0-9a-f]{{{2 * NAME_BYTES}}}(-[0-9a-f]{{{2 * NAME_BYTES}}})?")


def put_state(data_uri: str, history: str, content: bytes) -> str:
    """Writes what is kept of a history where it is not there yet, and returns its name. Raises OSError."""
    folder, name = _folder(data_uri, history), name_of(content)
    if folder.get_file_info(name).type != pafs.FileType.File:
        with named_when_whole(data_uri, folder, name) as written:
            write_octets(folder, written, content)
    return name


def get_state(data_uri: str, history: str, name: str) -> bytes:
    """What was kept, by its name. Raises EarlierCapturesError where there are no bytes, or other ones, under it."""
    if _NAME.fullmatch(name) is None:
        raise EarlierCapturesError(f"{name!r} is no name of a state")
    try:
        with _folder(data_uri, history).open_input_file(name) as source:
            content: bytes = source.read()
    except (OSError, pa.ArrowException):
        raise EarlierCapturesError("it is not in the lake") from None
    if name_of(content) != name.partition("-")[0]:
        raise EarlierCapturesError("its bytes are not those that were written")
    return content


def kept_before(data_uri: str, plan: ClusterPlan) -> tuple[EarlierCaptures | None, str | None]:
    """What plans before this one kept of its history, and why nothing where that cannot be read."""
    if not plan.kept_state:
        return None, None
    try:
        return EarlierCaptures.from_bytes(get_state(data_uri, plan.key, plan.kept_state)), None
    except EarlierCapturesError as error:
        return None, str(error)


def delete_states(data_uri: str, history: str, except_names: frozenset[str], *, dry_run: bool = False) -> int:
    """Deletes what was kept of a history but for some names; returns how many files, or would be. Raises OSError."""
    folder = _folder(data_uri, history)
    names = [info.base_name for info in folder.get_file_info(pafs.FileSelector("", allow_not_found=True))]
    unused = [name for name in names if _NAME.fullmatch(name.partition(".")[0]) and name not in except_names]
    for name in () if dry_run else unused:
        folder.delete_file(name)
    return len(unused)


def _folder(data_uri: str, history: str) -> pafs.FileSystem:
    place = data_uri if is_uri(data_uri) else str(Path(data_uri))
    return table_folder(place, f"{STATES_FOLDER}/{name_of_history(history)}")
