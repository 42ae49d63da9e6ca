"""`doctor`: whether this machine can do what is asked of it, each answer with its remedy."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from kraft_audit.commands.arguments import LAKE_PACKAGES, OutputFormat
from kraft_audit.commands.completion import Shell, completion_script
from kraft_audit.commands.ending import UsageError
from kraft_audit.commands.terminal_options import prints_tables
from kraft_audit.text.exit_codes import EXIT_FINDINGS
from kraft_audit.text.output import Format, Output, table_columns
from kraft_codec.errors import InputError

COLUMNS: Final = table_columns("status what found remedy", {"status": ""}, wide="found remedy")
LOW_DISK_BYTES: Final = 1 << 30
PIP: Final = "pip install kraft-audit"
COMPILE_REMEDY: Final = "pip install 'kraft-audit[compile]'"
LAKE_REMEDY: Final = "pip install 'kraft-audit[lake]'"
SPARK_REMEDY: Final = "pip install 'kraft-audit[spark]'"
NEEDED: Final = "every command needs it"
FOR_LAKE: Final = "`run` and every command that reads a lake need it"
FOR_SPARK: Final = "`run --engine spark` and notebooks on Spark need it"


@dataclass(frozen=True, slots=True)
class Check:
    """What was checked, and its answer; `remedy` is empty where nothing has to be done."""

    what: str
    status: Literal["ok", "warn", "fail"]
    answer: str
    remedy: str = ""


@prints_tables
def doctor(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", show_default=False, help="Also check these log dirs, archives or lakes."),
    ] = None,
    captures: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STORE",
            help="Check copies that kraft-capture wrote: age, order, gaps, missing objects. Repeatable.",
        ),
    ] = None,
    completion: Annotated[
        Shell | None,
        typer.Option(
            metavar="SHELL", show_default=False, help="Print a completion script for this shell: bash, zsh or fish."
        ),
    ] = None,
    output: OutputFormat = Format.TABLE,
) -> int:
    """Check Java, jars, packages, the kernel cache, disk space and permissions, and say how to fix each problem.

    Exit code 1 if a check fails. If Spark's packages are not installed, checks that only Spark needs are warnings. With
    --captures and no PATH, `doctor` checks only those copies.

    --completion checks nothing. It prints a script that lets your shell complete commands, options and their values.

    \b
    Examples:
      kraft-audit doctor
      kraft-audit doctor samples/elr-06-kill-13-last-replica.tgz --output json
      kraft-audit doctor --completion bash > ~/.local/share/bash-completion/completions/kraft-audit
      kraft-audit doctor --completion zsh > ~/.zfunc/_kraft-audit
    """
    if completion is not None:
        if paths or captures or output is not Format.TABLE:
            raise UsageError("--completion prints a script and checks nothing: leave out the rest")
        Output().line(completion_script(completion))
        return 0
    from kraft_audit.commands.capture_checks import capture_checks

    stored = [Check(*row) for store in captures or [] for row in capture_checks(store)]
    checks = stored if stored and not paths else all_checks(paths or []) + stored
    Output(output).rows(map(_row, checks), COLUMNS)
    return EXIT_FINDINGS if any(check.status == "fail" for check in checks) else 0


def _row(check: Check) -> dict[str, str]:
    return {"status": check.status, "what": check.what, "found": check.answer, "remedy": check.remedy}


def all_checks(paths: list[str]) -> list[Check]:
    """Every check, in the order of what a first run meets."""
    checks = [_package("pyarrow", NEEDED, PIP)]
    checks += _prebuilt() or [_package("numba", NEEDED, COMPILE_REMEDY), _kernels()]
    checks += [_package(name, FOR_LAKE, LAKE_REMEDY) for name in LAKE_PACKAGES]
    checks += [_package(name, FOR_SPARK, SPARK_REMEDY) for name in ("pyspark", "delta-spark")]
    has_spark = find_spec("pyspark") is not None
    if find_spec("pydantic") is not None:
        checks += [_java(has_spark), _jars(has_spark)]
    checks.append(_arrow(has_spark))
    checks += [_disk("working folder", Path.cwd()), _disk("temporary files", Path(tempfile.gettempdir()))]
    checks.append(_key_file())
    checks += [_input(path) for path in paths]
    return checks


def _package(name: str, needed_for: str, remedy: str) -> Check:
    try:
        return Check(name, "ok", version(name))
    except PackageNotFoundError:
        status: Literal["warn", "fail"] = "fail" if needed_for == NEEDED else "warn"
        return Check(name, status, f"not installed: {needed_for}", remedy)


def _prebuilt() -> list[Check]:
    """The compiled kernels of a platform's wheel; none where they are compiled here."""
    from kraft_audit.replay import kernels as replay
    from kraft_codec.kernels import library, native
    from kraft_codec.kernels.prebuilt import PROCESSOR

    if not native.is_prebuilt(library.NAME, library.kernel_list()):
        return []
    if not native.is_prebuilt(replay.NAME, replay.KERNELS, replay.PACKAGES):
        return []
    return [Check("kernels", "ok", f"compiled for {PROCESSOR} when this wheel was built")]


def _kernels() -> Check:
    from kraft_codec.kernels.cache import UnsafeFolderError, private_folder

    what = "kernel cache"
    try:
        folder = private_folder()
    except UnsafeFolderError as problem:
        remedy = (
            "chmod 700 it, or set KRAFT_AUDIT_CACHE to a folder of yours: until then each start compiles the kernels"
        )
        return Check(what, "warn", str(problem), remedy)
    count = sum(1 for file in folder.iterdir() if file.is_file() and file.name != "lock")
    return Check(what, "ok", f"{folder}, mode 0700, {count} files")


def _java(has_spark: bool) -> Check:
    from kraft_audit.lake.settings import SettingsError
    from kraft_audit.spark.session import JAVA_REMEDY, use_java

    before = os.environ.get("JAVA_HOME")
    try:
        return Check("Java", "ok", str(use_java()))
    except SettingsError as problem:
        answer = str(problem.value or "no Java 17 or 21 found")
        return Check("Java", "fail" if has_spark else "warn", answer, JAVA_REMEDY)
    finally:
        if before is None:
            os.environ.pop("JAVA_HOME", None)
        else:
            os.environ["JAVA_HOME"] = before


def _jars(has_spark: bool) -> Check:
    from kraft_audit.lake.settings import SettingsError
    from kraft_audit.spark.session import jar_settings

    try:
        settings = jar_settings()
    except SettingsError as problem:
        return Check("Delta jars", "fail", str(problem), "run `make setup`, or unset KRAFT_AUDIT_JARS")
    jars = [Path(jar) for jar in settings.get("spark.jars", "").split(",") if jar]
    if any(jar.name.startswith("delta-spark") for jar in jars):
        return Check("Delta jars", "ok", f"{len(jars)} in {jars[0].parent}")
    if jars:
        return Check("Delta jars", "fail", f"no delta-spark jar in {jars[0].parent}", "run `make setup`")
    answer = f"none installed: Spark will download {settings.get('spark.jars.packages', '')}"
    return Check(
        "Delta jars", "warn", answer, "run `make setup` on a machine with network access" if has_spark else SPARK_REMEDY
    )


def _arrow(has_spark: bool) -> Check:
    """Whether Spark takes this pyarrow and pandas: a batch goes from Arrow to Spark's types and back."""
    what = "Arrow for Spark"
    if not has_spark:
        return Check(what, "warn", "pyspark is not installed", SPARK_REMEDY)
    from kraft_audit.spark.session import arrow_problem

    problem = arrow_problem()
    if problem is None:
        return Check(what, "ok", "pyspark works with this pyarrow and pandas")
    return Check(what, "fail", problem, "pip install 'kraft-audit[spark]' in an environment of its own")


def _disk(what: str, folder: Path) -> Check:
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError as problem:
        return Check(what, "fail", f"{folder}: {problem.strerror}", "create this folder, or set TMPDIR to another one")
    answer = f"{folder}, {free_bytes / 1e9:.1f} GB free"
    if not os.access(folder, os.W_OK):
        return Check(what, "warn", f"{answer}, not writable", "change to a folder that you can write to")
    if free_bytes < LOW_DISK_BYTES:
        return Check(what, "warn", answer, "free some space: archives are unpacked there, and lakes grow")
    return Check(what, "ok", answer)


def _key_file() -> Check:
    from kraft_audit.lake.redaction_key import KEY_VARIABLE, key_file_problem, load_key

    what = "redaction key"
    declared = os.environ.get(KEY_VARIABLE)
    if not declared:
        return Check(
            what,
            "ok",
            f"{KEY_VARIABLE} is not set: each command makes its own key, so fingerprints differ between commands",
        )
    file = Path(declared)
    problem = key_file_problem(file)
    if problem is not None:
        return Check(what, "fail", f"{file}: {problem}", f"chmod 600 {shlex.quote(str(file))}")
    try:
        load_key(file, may_create=False)
    except InputError as error:
        return Check(what, "fail", str(error), "`kraft-audit run` creates the key when it creates a lake")
    return Check(what, "ok", f"{file}, mode 0600")


def _lake(path: str) -> Check:
    """A lake: readable, writable, and no plan left open for long."""
    from kraft_audit.lake.delta import DeltaLake
    from kraft_audit.lake.ledger import Ledger
    from kraft_audit.lake.settings import SettingsError

    try:
        status = Ledger(DeltaLake(path.rstrip("/"))).status()
    except (InputError, SettingsError) as problem:
        return Check(path, "fail", str(problem), "check that the folder is complete and that you may read it")
    answer = f"a lake, {status.closed} plans closed"
    if not os.access(path, os.W_OK):
        return Check(
            path,
            "warn",
            f"{answer}, not writable",
            "run as the user that owns the lake; `report` only needs to read it",
        )
    if status.open:
        return Check(path, "warn", f"{answer}, plan {status.open[0]} is open", "finish it: kraft-audit run FLEET.yaml")
    return Check(path, "ok", answer)


def _input(path: str) -> Check:
    if Path(path, "plans", "_delta_log").is_dir() and all(find_spec(name) is not None for name in LAKE_PACKAGES):
        return _lake(path)
    from kraft_codec.files.discovery import discover
    from kraft_codec.storage.opener import open_storage

    try:
        with open_storage(path) as storage:
            discovery = discover(storage)
    except InputError as problem:
        return Check(path, "fail", problem.detail, "name a log dir, a node dir, or a folder or archive of them")
    if not discovery.replicas:
        return Check(path, "fail", "no metadata log", "name a log dir, a node dir, or a folder or archive of them")
    unreadable = list(_unreadable(path))
    if unreadable:
        remedy = "read it as the user that runs Kafka (snapshots are mode 0400)"
        return Check(path, "warn", f"{len(unreadable)} files cannot be read, the first is {unreadable[0]}", remedy)
    if discovery.damages:
        first = discovery.damages[0]
        return Check(
            path,
            "warn",
            f"{first.path}: {first.reason}: {first.detail}",
            f"see `kraft-audit dump {shlex.quote(path)} --table decode_errors`",
        )
    ignored = f", {discovery.ignored_count} files that are not Kafka's ignored" if discovery.ignored_count else ""
    return Check(path, "ok", f"{len(discovery.replicas)} replicas{ignored}")


def _unreadable(path: str) -> Iterator[str]:
    """Files below a local folder that this user may not read."""
    for folder, _, names in os.walk(path):
        for name in names:
            if not os.access(os.path.join(folder, name), os.R_OK):  # noqa: PTH118
                yield os.path.join(folder, name)  # noqa: PTH118
