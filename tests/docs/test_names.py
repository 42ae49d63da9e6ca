"""One name, one thing: no two modules of a package define the same class or constant, or have the same base name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("kraft_audit", "kraft_codec", "kraft_engine")
SAME_IN_A_FOLDER: Final[Mapping[str, Mapping[str, str]]] = {
    "kraft_audit/commands": {
        "COLUMNS": "the columns of a command's table",
        "KEYS": "the keys of a command's JSON",
        "LINES_MAX": "how many lines a command shows without --all",
        "TITLES": "the titles of a command's columns",
    }
}
"""Names by folder that each of its modules may define, and what the name means in all of them."""
SAME_PART: Final = frozenset(
    {
        frozenset({"kraft_audit/commands/rescue.py", "kraft_audit/recovery/lost_quorum/rescue.py"}),
        frozenset({"kraft_audit/commands/rescue_plan.py", "kraft_audit/recovery/lost_quorum/rescue_plan.py"}),
        frozenset({"kraft_audit/commands/restore_kit.py", "kraft_audit/recovery/restore/restore_kit.py"}),
        frozenset({"kraft_audit/commands/timeline.py", "kraft_audit/findings/timeline.py"}),
        frozenset({"kraft_audit/commands/upgrade_check.py", "kraft_audit/recovery/upgrade_check.py"}),
        *(
            frozenset({f"kraft_codec/columns/{name}.py", f"kraft_codec/kernels/{name}.py"})
            for name in ("batches", "records", "text", "typed")
        ),
    }
)
"""A command, whose file is named as it is typed, and the module that it answers from; columns, and their kernel."""


def repeated_names(root: Path, package: str) -> dict[str, list[str]]:
    """Public classes and constants that more than one module defines at its top level, each with those modules."""
    modules: defaultdict[str, set[str]] = defaultdict(set)
    places: defaultdict[str, set[str]] = defaultdict(set)
    for file in sorted((root / package).rglob("*.py")):
        module, folder = str(file.relative_to(root)), str(file.parent.relative_to(root))
        for name in defined_names(ast.parse(file.read_text(encoding="utf-8")).body):
            if not name.startswith("_"):
                modules[name].add(module)
                places[name].add(folder if name in SAME_IN_A_FOLDER.get(folder, {}) else module)
    return {name: sorted(modules[name]) for name, found in sorted(places.items()) if len(found) > 1}


def defined_names(statements: list[ast.stmt]) -> Iterator[str]:
    """The classes that a module's statements define, and the names that they assign; not what they import."""
    for statement in statements:
        if isinstance(statement, ast.ClassDef):
            yield statement.name
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name) and _is_stored(node))
        elif isinstance(statement, ast.If):
            yield from defined_names([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            handled = [each for handler in statement.handlers for each in handler.body]
            yield from defined_names([*statement.body, *handled, *statement.orelse, *statement.finalbody])


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def repeated_modules(root: Path, package: str) -> list[frozenset[str]]:
    """The modules of a package that share a base name."""
    modules: defaultdict[str, set[str]] = defaultdict(set)
    for file in (root / package).rglob("*.py"):
        if not file.name.startswith("__"):
            modules[file.name].add(str(file.relative_to(root)))
    return [frozenset(modules[name]) for name in sorted(modules) if len(modules[name]) > 1]


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_a_class_or_constant_name_stands_for_one_thing(package: str) -> None:
    """Where it is the same fact, one module imports it from the other; else each says what it is."""
    assert repeated_names(ROOT, package) == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_base_name_stands_for_one_part(package: str) -> None:
    assert [sorted(modules) for modules in repeated_modules(ROOT, package) if modules not in SAME_PART] == []


def test_every_exemption_is_needed() -> None:
    assert set(SAME_PART) <= {modules for package in PACKAGES for modules in repeated_modules(ROOT, package)}
    for folder, names in SAME_IN_A_FOLDER.items():
        defined = [
            {*defined_names(ast.parse(file.read_text(encoding="utf-8")).body)} for file in (ROOT / folder).glob("*.py")
        ]
        assert [name for name in names if sum(name in own for own in defined) < 2] == []


def test_a_planted_duplicate_is_found(tmp_path: Path) -> None:
    sources = {
        "package/a.py": "from package.rooms.b import IMPORTED\nLIMIT = 1\nclass Row: ...\n_OWN = 1\ndef verb(): ...\n",
        "package/c.py": "LIMIT: int = 2\n_OWN = 2\nLOCAL['key'] = Row.value = 3\ndef verb(): ...\n",
        "package/rooms/__init__.py": "",
        "package/rooms/a.py": "FIRST, (Row, *REST) = VALUES = 1, (2, 3)\n",
        "package/rooms/b.py": "IMPORTED = 1\nif IMPORTED:\n    REST = 1\n"
        "try:\n    pass\nexcept OSError:\n    VALUES = LOCAL = 2\n",
    }
    for name, source in sources.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    assert repeated_names(tmp_path, "package") == {
        "LIMIT": ["package/a.py", "package/c.py"],
        "REST": ["package/rooms/a.py", "package/rooms/b.py"],
        "Row": ["package/a.py", "package/rooms/a.py"],
        "VALUES": ["package/rooms/a.py", "package/rooms/b.py"],
    }
    assert repeated_modules(tmp_path, "package") == [frozenset({"package/a.py", "package/rooms/a.py"})]
