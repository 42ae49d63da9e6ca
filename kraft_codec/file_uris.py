"""What `file://` names, in one place for all that take such an address: log dirs, lakes, settings."""

from __future__ import annotations

import re
import urllib.parse
from typing import Final

_FILE: Final = re.compile(r"file://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)
_THIS_HOST: Final = ("", "localhost")


def file_path(location: str) -> str | None:
    """The local path of a `file://` URI, its percent-encoding undone; None for other hosts, and for all that is none.

    As RFC 8089 and Python's Path.from_uri read it: there is no query and no fragment.
    """
    found = _FILE.fullmatch(location)
    if found is None or found[1].lower() not in _THIS_HOST:
        return None
    path = urllib.parse.unquote(found[2])
    return None if "\x00" in path else path


def other_host(location: str) -> str | None:
    """The host of a `file://` URI that names another one than this; None for any other text."""
    found = _FILE.fullmatch(location)
    return None if found is None or found[1].lower() in _THIS_HOST else found[1]
