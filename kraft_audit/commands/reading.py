"""What lies below PATH, opened once, and the key that secrets are told apart by."""

from __future__ import annotations

import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraft_audit.commands.ending import UsageError, complain, remark
from kraft_audit.lake_folder import is_lake_folder
from kraft_audit.static_configs import USED_CONFIGS, expected_of
from kraft_codec.errors import ChoiceError, InputError
from kraft_codec.file_uris import file_path
from kraft_codec.schemas import Dialect

if TYPE_CHECKING:
    from kraft_audit.replay.plan import ClusterPlan, ReplicaPlan
    from kraft_codec.random_access import Storage
    from kraft_codec.redaction import Redactor

IS_A_LAKE: Final = (
    "a lake, not log dirs: its findings are in `kraft-audit report LAKE -o DIR` and `kraft-audit tables LAKE`"
)
KEY_VARIABLE: Final = "KRAFT_AUDIT_REDACTION_KEY_FILE"


@dataclass(frozen=True, slots=True)
class Input:
    """The clusters below PATH; `open_storage` gives the storage that is open, whichever root it is asked for."""

    root: str
    storage: Storage
    plans: list[ClusterPlan]

    def open_storage(self, root: str) -> AbstractContextManager[Storage]:
        return nullcontext(self.storage)

    def plans_with(self, capture: str | None) -> list[ClusterPlan]:
        """The clusters that have a capture of that name, all for None. Raises ChoiceError where there is none."""
        from kraft_audit.replay.planning import capture_named, captures_text

        if capture is None:
            return list(self.plans)
        found = [
            plan
            for plan in self.plans
            if capture_named(capture, plan.replicas) in {replica.capture for replica in plan.replicas}
        ]
        if not found:
            there = captures_text(replica for plan in self.plans for replica in plan.replicas)
            raise ChoiceError(self.root, f"no capture {capture!r}: {there}")
        return found


@contextmanager
def opened(
    path: str,
    *,
    dialect: Dialect,
    capture: str | None = None,
    node_ids: list[int] | None = None,
    file: str | None = None,
    defaults: list[str] | None = None,
) -> Iterator[Input]:
    """Plans everything below `path`, or the part of it that the options name. Raises InputError, UsageError."""
    static = static_defaults(defaults)
    from kraft_audit.replay.damage import unread_lines
    from kraft_audit.replay.planning import plan_path
    from kraft_codec.storage import open_storage

    with open_storage(path) as storage:

        def kept(_: str) -> AbstractContextManager[Storage]:
            return nullcontext(storage)  # an archive is unpacked once

        now_ms = time.time_ns() // 1_000_000
        try:
            plans = plan_path(path, open_storage=kept, captured_at_ms=now_ms, dialect=dialect, capture=capture)
        except InputError:
            if looks_like_a_lake(path):
                raise InputError(path, IS_A_LAKE) from None
            raise
        plans = [plan for plan in (_narrowed(plan, node_ids, file) for plan in plans) if plan.replicas]
        plans = [replace(plan, defaults=static) for plan in plans]
        if not plans:
            wanted = [f"node {', '.join(map(str, node_ids))}"] if node_ids else []
            wanted += [f"file {file}"] if file else []
            raise ChoiceError(path, f"nothing there of {' and '.join(wanted)}")
        # What several clusters are told of is one place.
        for line in unread_lines(dict.fromkeys(damage for plan in plans for damage in plan.damages)):
            complain(line)
        yield Input(path, storage, plans)


def looks_like_a_lake(path: str) -> bool:
    """Whether a local folder has the ledger of a lake."""
    return is_lake_folder(file_path(path) or path)


def static_defaults(given: list[str] | None) -> tuple[tuple[str, str], ...]:
    """`NAME=VALUE` texts as pairs, by name. Raises UsageError."""
    pairs: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--default: {text!r}: expected NAME=VALUE")
        _check_is_used(name)
        if (expected := expected_of(name, value)) is not None:
            raise UsageError(f"--default: {text!r}: expected {expected}")
        pairs[name] = value
    return tuple(sorted(pairs.items()))


def _check_is_used(name: str) -> None:
    """A misspelt config would be left out of everything. Raises UsageError."""
    from kraft_audit.replay.describe import DESCRIBED_CONFIGS

    used = {*USED_CONFIGS, *DESCRIBED_CONFIGS}
    if name not in used:
        near = get_close_matches(name, used, n=1)
        hint = f", perhaps {near[0]}" if near else f"; those are {', '.join(sorted(used))}"
        raise UsageError(f"--default: {name!r}: no static config that is used here{hint}")


def _narrowed(plan: ClusterPlan, node_ids: list[int] | None, file: str | None) -> ClusterPlan:
    replicas = [replica for replica in plan.replicas if not node_ids or replica.node_id in node_ids]
    if file is not None:
        replicas = [_with_files(replica, file) for replica in replicas]
        replicas = [replica for replica in replicas if replica.files]
    return replace(plan, replicas=tuple(replicas))


def _with_files(replica: ReplicaPlan, pattern: str) -> ReplicaPlan:
    """Those files whose name, or path from its end on, is the pattern."""
    chosen = [
        file
        for file in replica.files
        if any(fnmatchcase(f"/{replica.path}/{file.name}", f"*/{one}") for one in (pattern, pattern.lstrip("./")))
    ]
    return replace(replica, files=tuple(chosen))


def redaction_key(*, shows_values: bool = True) -> bytes:
    """The key of a file that the environment names, else one of this run alone, which a command that shows values says
    on a terminal. Raises InputError.
    """
    declared = os.environ.get(KEY_VARIABLE)
    if not declared:
        if shows_values and sys.stderr.isatty():
            remark(f"secrets are fingerprinted under a key of this run; {KEY_VARIABLE} names a file for a lasting one")
        return secrets.token_bytes(32)
    from kraft_audit.spark.redaction_key import load_key

    problem = key_file_problem(Path(declared))
    if problem is not None:
        raise InputError(declared, problem)
    return load_key(Path(declared), may_create=False)


def key_file_problem(file: Path) -> str | None:
    """Why a key file cannot be trusted to be secret; None where it can, or where it is not there."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return None
    if stat.S_IMODE(mode) & 0o077:
        return f"others may read the redaction key (mode {stat.S_IMODE(mode):04o}): chmod 600 it"
    return None


def redactor(key: bytes) -> Redactor:
    """One for each cluster: short secrets are numbered within it."""
    from kraft_codec.redaction import Redactor

    return Redactor(key)
