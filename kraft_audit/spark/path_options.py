"""The paths that a query of format("kraft") is given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraft_audit.lake.settings import SettingsError

PATHS_FORM: Final = 'a JSON list of paths, as ["/captures/a", "/captures/b"]; or load([…])'


def given_paths(options: Mapping[str, str]) -> list[str]:
    """The paths and patterns of a query, as Spark passes them on: load(x) as `path`, load([x, y]) as JSON in `paths`.

    As with Spark's own sources both may be given. Raises SettingsError where neither is, or `paths` is something else.
    """
    paths = _listed(options["paths"]) if "paths" in options else []
    if "path" in options:
        paths.append(options["path"])
    if not paths:
        raise SettingsError('format("kraft")', "path", None, "a value")
    return paths


def location_of(paths: Sequence[str]) -> str:
    """One text that stands for the paths in errors, as commands print it."""
    return paths[0] if len(paths) == 1 else "{" + ",".join(paths) + "}"


def _listed(text: str) -> list[str]:
    try:
        paths: Any = json.loads(text)
    except ValueError:
        paths = None
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise SettingsError('format("kraft")', "paths", text, PATHS_FORM)
    return paths
