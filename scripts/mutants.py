"""`python scripts/mutants.py [--seed S] [--count N] [--file PART] [--list]`: changes one thing in decoder, replay or
rules, runs the tests that hold that file, and says whether they noticed.

A mutant is one comparison turned, one constant moved, one operator exchanged, one condition negated or one `return`
emptied. The file is changed in a private copy of the project's packages, never in place. Survivors are printed with the
line before and after; those that cannot matter are listed with the reason in `scripts/mutants_equal.txt`. Ends with 1
where a mutant survived that is not listed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EQUAL = Path(__file__).with_name("mutants_equal.txt")
PACKAGES = ("kraft_codec", "kraft_engine", "kraft_audit", "pyspark_kraft")
SECONDS_MAX = 400
NO_TESTS = 5
NEAR = {
    "kraft_codec/kernels": ["tests/kraft_codec/columns"],
    "kraft_codec": ["tests/kraft_codec", "tests/fuzz/test_parsers.py"],
    "kraft_audit/replay": ["tests/kraft_audit/replay", "tests/kraft_audit/analyze"],
    "kraft_audit/rules": ["tests/kraft_audit/rules"],
}
"""The tests of a folder, the first match counts. The quick ones of them notice most."""
FAR = ["tests/kraft_audit/analyze", "tests/witness", "tests/kraft_audit/rules", "tests/kraft_audit/commands"]
"""What also stands on every file; asked only where the near ones noticed nothing."""
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: the file, the line, the line's text before and after, the whole new source."""

    file: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before.strip()}  →  {self.after.strip()}"

    @property
    def key(self) -> str:
        """Names it in the list of equal mutants; line numbers move, texts stay."""
        return f"{self.file}: {self.before.strip()}  →  {self.after.strip()}"


Change = tuple[str, ast.expr, ast.expr]


def changes(file: str) -> Iterator[Change]:
    """Every change of a file: the expression as it is, and another in its place."""
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        for old, new in _changes(node):
            if old.end_lineno == old.lineno and old.end_col_offset is not None:
                yield file, old, new


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        turned = ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
        yield node, turned
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not isinstance(node.left, ast.Constant):
        yield node, ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield node, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield node.value, ast.Constant(None)
    elif isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 1 << 20:
        yield node, ast.Constant(node.value + 1)


def mutant(change: Change) -> Mutant | None:
    """The file with the change made; None where that is no Python."""
    file, old, new = change
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    line = lines[old.lineno - 1]
    raw = line.encode()
    changed = (raw[: old.col_offset] + f"({ast.unparse(new)})".encode() + raw[old.end_col_offset :]).decode()
    source = "\n".join([*lines[: old.lineno - 1], changed, *lines[old.lineno :]]) + "\n"
    try:
        compile(source, file, "exec")
    except SyntaxError:
        return None
    return Mutant(file, old.lineno, line, changed, source)


def files(part: str = "") -> list[str]:
    """Decoder, replay and rules, but for what only writes text for people."""
    found = []
    for folder in ("kraft_codec", "kraft_audit/replay", "kraft_audit/rules"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if "/texts/" not in name and part in name:
                found.append(name)
    return found


def verdict(mutant: Mutant, *, far: bool = True) -> str:
    """`killed` where a test of the file notices, `too slow` where the tests did not end in time, else `SURVIVED`."""
    folders = next(tests for folder, tests in NEAR.items() if mutant.file.startswith(folder))
    near = [*_named_after(mutant.file, folders), *folders]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for package in (*PACKAGES, "tests"):
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("samples", "conf", "benchmarks", "scripts", "docs", "jobs", "pyproject.toml"):
            (copy / name).symlink_to(ROOT / name)
        (copy / mutant.file).write_text(mutant.source, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m"]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        if "kernels" in mutant.file:
            environment["KRAFT_AUDIT_CACHE"] = str(copy / "cache")
        for marked, tests in (("unit", near), ("unit or slow", FAR))[: 1 + far]:
            try:
                ended = subprocess.run(
                    [*command, marked, *tests],
                    cwd=copy,
                    env=environment,
                    capture_output=True,
                    timeout=SECONDS_MAX,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return "too slow"
            if ended.returncode not in (0, NO_TESTS):
                return "killed"
        return "SURVIVED"


def is_sound(file: str) -> bool:
    """Whether the near tests pass where nothing is changed: else every mutant would look noticed."""
    source = (ROOT / file).read_text(encoding="utf-8")
    return verdict(Mutant(file, 1, "", "", source), far=False) == "SURVIVED"


def _named_after(file: str, folders: list[str]) -> list[str]:
    """The tests that bear the file's name, which are asked first."""
    word = Path(file).stem.removesuffix("_kernel").split("_")[0].rstrip("s")
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob(f"test_*{word}*.py"))]
    return [str(path.relative_to(ROOT)) for path in found]


def equal() -> frozenset[str]:
    """The mutants that change nothing anyone can see; each line of the list is a key, `# ` and the reason."""
    if not EQUAL.exists():
        return frozenset()
    lines = EQUAL.read_text(encoding="utf-8").splitlines()
    return frozenset(line.partition("  # ")[0] for line in lines if line and not line.startswith("#"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--file", default="", help="only files whose path holds this")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    given = parser.parse_args()
    every = [change for file in files(given.file) for change in changes(file)]
    if given.list:
        print("\n".join(str(one) for change in every if (one := mutant(change)) is not None))
        return 0
    known = equal()
    random.Random(given.seed).shuffle(every)  # noqa: S311
    candidates = (one for change in every if (one := mutant(change)) is not None and one.key not in known)
    chosen = list(islice(candidates, given.count))
    for folder in sorted({next(folder for folder in NEAR if one.file.startswith(folder)) for one in chosen}):
        if not is_sound(next(one.file for one in chosen if one.file.startswith(folder))):
            print(f"the tests of {folder} fail, or do not end, where nothing is changed")
            return 2
    told: Counter[str] = Counter()
    for one in chosen:
        found = verdict(one)
        told[found] += 1
        print(f"{found:8} {one}", flush=True)
    print(f"{told['killed']} of {len(chosen)} mutants killed, {told['too slow']} too slow; {len(every)} are possible")
    return int(bool(told["SURVIVED"]))


if __name__ == "__main__":
    sys.exit(main())
