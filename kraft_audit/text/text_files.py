"""Files that people write and read: YAML without surprises, and files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """A path to write to, which replaces `target` at the end, whoever reads or writes there meanwhile. A failure leaves
    nothing.
    """
    unfinished = target.with_name(f".{secrets.token_hex(8)}.unfinished")
    try:
        yield unfinished
        unfinished.replace(target)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, have reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class YamlError(ValueError):
    """A text that is not YAML: `where` (`line 3`; None where the parser does not say), and `what` is wrong."""

    def __init__(self, where: str | None, what: str) -> None:
        super().__init__(what if where is None else f"{where}: {what}")
        self.where = where
        self.what = what


def parse_yaml(text: str) -> Any:
    """The value of a YAML text, None where it is empty; no key twice, no Python objects. Raises YamlError."""
    import yaml  # where a file is read: most commands read none

    try:
        return yaml.load(text, Loader=_unique_key_loader())  # noqa: S506  # a SafeLoader
    except yaml.MarkedYAMLError as problem:
        line = problem.problem_mark.line + 1 if problem.problem_mark else 1
        raise YamlError(f"line {line}", problem.problem or "") from None
    except (yaml.YAMLError, ValueError, RecursionError) as problem:  # ValueError: a day such as 2027-02-30
        raise YamlError(None, str(problem).splitlines()[0]) from None


@cache
def _unique_key_loader() -> type[yaml.SafeLoader]:
    """YAML keeps the last of two equal keys without a word; here that is an error."""
    import yaml

    class UniqueKeyLoader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key_node, _ in node.value:
                key = str(key_node.value)
                if key in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key!r} twice", problem_mark=key_node.start_mark)
                seen.add(key)
            return super().construct_mapping(node, deep)

    return UniqueKeyLoader
