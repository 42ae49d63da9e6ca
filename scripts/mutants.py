"""`python scripts/mutants.py [--seed S] [--count N] [--minutes M] [--file PART] [--list]`: changes one thing in
decoder, replay or rules, runs the quick tests that run the line, and says whether they noticed.

A mutant is one comparison turned, one constant moved, one operator exchanged, one condition negated or one `return`
emptied. The file is changed in a private copy of the project's packages, never in place. Which tests run a line is
measured first (`mutant_tests.py`); kernels are tested as plain Python, then compiled. Survivors are printed with the
line before and after; those that cannot matter are listed with the reason in `scripts/mutants_equal.txt`. Ends with 1
where a mutant survived that is not listed, with 2 where the tests fail without a change.
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
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.mutant_tests import COMPILED, OPTIONS, PLAIN, PLAIN_KERNELS, Measured, TestsFailError, measure

ROOT = Path(__file__).resolve().parents[1]
EQUAL = Path(__file__).with_name("mutants_equal.txt")
PACKAGES = ("kraft_codec", "kraft_engine", "kraft_audit", "pyspark_kraft")
FOLDERS = (
    "kraft_codec",
    *(f"kraft_audit/{room}" for room in ("capture", "quorum", "replay", "archive", "rules")),
)
IMPORT_TESTS = {
    "kraft_codec/kernels": ["tests/kraft_codec/columns", "tests/kraft_codec/kernels"],
    "kraft_codec": ["tests/kraft_codec", "tests/kraft_audit/capture"],
    "kraft_audit/rules": ["tests/kraft_audit/rules"],
    "kraft_audit": [f"tests/kraft_audit/{room}" for room in ("capture", "quorum", "replay", "archive")],
}
"""For lines that run as modules are imported, before any test: quick tests of the folder; the first match counts."""
SECONDS_MORE = 30
SECONDS_FACTOR = 3
COMPILE_SECONDS = 60
ASKED_SECONDS = 45.0
"""Of the tests that run a line, the quickest are asked, as many as take so long together."""
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
    """One change: the file, the line, its text before and after, the whole new source."""

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
    """Every change of a file: the expression as it is, and another in its place; annotations run nowhere."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    annotations = {
        id(part) for node in ast.walk(tree) for annotation in _annotations(node) for part in ast.walk(annotation)
    }
    for node in ast.walk(tree):
        if id(node) in annotations:
            continue
        for old, new in _changes(node):
            if old.end_lineno == old.lineno and old.end_col_offset is not None:
                yield file, old, new


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    for name in ("annotation", "returns"):
        if isinstance(annotation := getattr(node, name, None), ast.expr):
            yield annotation


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
    names = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if "/texts/" not in name and part in name:
                names.append(name)
    return names


class Workshop:
    """A private copy of the packages, in which one file at a time is another."""

    def __init__(self, folder: Path, measured: dict[str, Measured]) -> None:
        self.folder = folder
        self.measured = measured
        for package in (*PACKAGES, "tests"):
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        for path in ROOT.iterdir():
            if path.name not in (*PACKAGES, "tests", ".git") and not path.name.startswith(".coverage"):
                (folder / path.name).symlink_to(path)

    def verdict(self, mutant: Mutant) -> str:
        """`killed` where a test notices, `endless` where the tests do not end any more, else `SURVIVED`."""
        try:
            self._write(mutant.file, mutant.source)
            for kind, tests, seconds in self._tests(mutant):
                if (verdict := self._run(kind, tests, seconds, is_kernel="kernels" in mutant.file)) != "SURVIVED":
                    return verdict
            return "SURVIVED"
        finally:
            self._write(mutant.file, (ROOT / mutant.file).read_text(encoding="utf-8"))

    def _tests(self, mutant: Mutant) -> Iterator[tuple[str, list[str], float]]:
        is_any = False
        for kind in (PLAIN, COMPILED):
            measured = self.measured[kind]
            if tests := measured.tests_of(mutant.file, mutant.line):
                is_any = True
                until = accumulate(measured.seconds.get(test, 0.0) for test in tests)
                asked = [test for test, seconds in zip(tests, until, strict=True) if seconds <= ASKED_SECONDS]
                yield kind, asked or tests[:1], ASKED_SECONDS
        if not is_any:
            folders = next(tests for folder, tests in IMPORT_TESTS.items() if mutant.file.startswith(folder))
            yield COMPILED, ["-m", "unit", *folders], 120.0

    def _run(self, kind: str, tests: list[str], seconds: float, *, is_kernel: bool) -> str:
        chosen = self.folder / "chosen-tests.txt"
        chosen.write_text("\n".join(tests) + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", *OPTIONS, *(PLAIN_KERNELS if kind == PLAIN else ())]
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        limit = SECONDS_MORE + SECONDS_FACTOR * seconds
        if is_kernel and kind == COMPILED:
            environment["KRAFT_AUDIT_CACHE"] = str(self.folder / "cache")
            limit += COMPILE_SECONDS
        try:
            ended = subprocess.run(
                [*command, f"@{chosen}"],
                cwd=self.folder,
                env=environment,
                capture_output=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "endless"
        return "SURVIVED" if ended.returncode == 0 else "killed"

    def _write(self, file: str, source: str) -> None:
        path = self.folder / file
        path.write_text(source, encoding="utf-8")
        # What was compiled of the file before may have its size and, in whole seconds, its time.
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            stale.unlink()


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
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin no mutant after so many")
    parser.add_argument("--file", default="", help="only files whose path holds this")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    given = parser.parse_args()
    every = [change for file in files(given.file) for change in changes(file)]
    if given.list:
        print("\n".join(str(changed) for change in every if (changed := mutant(change)) is not None))
        return 0
    try:
        measured = measure()
    except TestsFailError as failure:
        print(f"the tests fail where nothing is changed, {failure}")
        return 2
    random.Random(given.seed).shuffle(every)  # noqa: S311
    verdicts = sample(every, measured, given.count, time.monotonic() + 60 * given.minutes)
    noticed = verdicts["killed"] + verdicts["endless"]
    whole = noticed + verdicts["SURVIVED"]
    print(
        f"{noticed} of {whole} mutants killed ({verdicts['endless']} of them ran without an end), seed {given.seed}; "
        f"{verdicts['equal']} more change nothing; {len(every):,} are possible"
    )
    return int(bool(verdicts["SURVIVED"]))


def sample(every: list[Change], measured: dict[str, Measured], count: int, deadline: float) -> Counter[str]:
    """Tries changes in their order until there are `count` of them, or the time is over."""
    verdicts: Counter[str] = Counter()
    known = equal()
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder), measured)
        for change in every:
            if verdicts.total() - verdicts["equal"] >= count or time.monotonic() > deadline:
                break
            if (changed := mutant(change)) is None:
                continue
            verdict = "equal" if changed.key in known else workshop.verdict(changed)
            verdicts[verdict] += 1
            print(f"{verdict:8} {changed}", flush=True)
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
