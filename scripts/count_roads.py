"""Counts how much code there is and how many ways lead through it, for a comparison before and after a change.

`python scripts/count_roads.py [--code DIR] [--path PATH]` prints a Markdown table. Hops are calls from a function of
one file to a function of another file while `check PATH` runs.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kraft_audit", "kraft_codec", "kraft_engine", "kraft_capture")


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--code", type=Path, default=ROOT, help="the checkout to count (default: this one)")
    parser.add_argument("--path", default="samples/elr-06-kill-13-last-replica.tgz", help="what `check` reads")
    given = parser.parse_args()
    print("| what | count |\n| --- | ---: |")
    for what, count in counts(given.code.resolve(), given.path):
        print(f"| {what} | {count:,} |")
    return 0


def counts(code: Path, path: str) -> Iterator[tuple[str, int]]:
    """What is counted, one figure after the other."""
    sources = {package: sorted((code / package).rglob("*.py")) for package in PACKAGES}
    for package, files in sources.items():
        yield f"lines of {package}", sum(map(line_count, files))
    audit = sources["kraft_audit"]
    yield "files of kraft_audit", len(audit)
    yield "lines of tests", sum(map(line_count, (code / "tests").rglob("*.py")))
    texts = {file: file.read_text() for file in audit}
    yield (
        "places that make a ClusterHistory",
        sum(len(re.findall(r"\bClusterHistory\(", text)) for text in texts.values()),
    )
    yield "import circles", len(circles(code, with_types=False))
    yield "import circles with those for types", len(circles(code, with_types=True))
    yield "options declared in several places", len(repeated_options(texts.values()))
    yield "hops from file to file of check", hops(code, path)


def line_count(file: Path) -> int:
    """The lines of a file."""
    return len(file.read_text().splitlines())


def circles(code: Path, *, with_types: bool) -> list[list[str]]:
    """Modules of kraft_audit that import each other, within functions too; `with_types`: also for types alone."""
    files = {module_name(file.relative_to(code)): file for file in (code / "kraft_audit").rglob("*.py")}
    imports = {name: set(imported(file, set(files), with_types=with_types)) for name, file in files.items()}
    reach: dict[str, set[str]] = {}
    for module in imports:
        seen, waiting = set[str](), [module]
        while waiting:
            for name in imports[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        reach[module] = seen
    groups = {frozenset(name for name in seen if module in reach[name]) for module, seen in reach.items()}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def module_name(file: Path) -> str:
    """The dotted name of a module or package."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(file: Path, modules: set[str], *, with_types: bool) -> Iterator[str]:
    """Which of the modules a file imports, wherever the import stands."""
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                yield from [name] if name in modules else {node.module} & modules
        elif isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING" and not with_types:
            waiting += node.orelse
        else:
            waiting += ast.iter_child_nodes(node)


def repeated_options(texts: Iterable[str]) -> list[str]:
    """Options of commands that are declared with the same help in several places."""
    option = re.compile(r'typer\.Option\(\s*"(--[a-z-]+)"[^)]*?help="([^"]*)"')
    declared = Counter(match for text in texts for match in option.findall(text))
    return sorted(name for (name, _), count in declared.items() if count > 1)


def hops(code: Path, path: str) -> int:
    """How often `check` goes from one file of ours to another one."""
    sys.path.insert(0, str(code))
    from kraft_audit.commands import cli

    count, ours = 0, str(code / "kraft_")

    def called(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event == "call" and frame.f_back is not None:
            own, other = frame.f_code.co_filename, frame.f_back.f_code.co_filename
            count += own != other and own.startswith(ours) and other.startswith(ours)

    for profile in (None, called):  # the second time nothing is imported or compiled
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            sys.setprofile(profile)
            try:
                cli.run_command(["check", str(code / path)])
            finally:
                sys.setprofile(None)
    return count


if __name__ == "__main__":
    raise SystemExit(main())
