"""`kraft-capture`: reads new batches and sends them until it is stopped, or once, or writes one archive."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kraft_capture.broker_disks import DiskReading, read_disks
from kraft_capture.capture_metrics import write_metrics
from kraft_capture.capture_state import locked
from kraft_capture.errors import EXIT_UNREADABLE, CaptureError, UsageError
from kraft_capture.incident_tar import write_tar
from kraft_capture.log_dirs import Replica, find_log_dirs, identify
from kraft_capture.options import (
    argument_parser,
    configuration_file_of,
    log_dirs_of,
    make_store,
    require_apart,
    state_folder_of,
)
from kraft_capture.replica_copier import ReplicaCopier, Schedule
from kraft_capture.stores import Store

EXIT_UNSENT = 1
EXIT_USAGE = 2
_BACKOFF_S_MAX = 60.0
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_IDLE_CLASS = 3 << 13
_SETTLE_S = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; the exit code says whether all that could be read is in the store."""
    options = argument_parser().parse_args(arguments)
    try:
        log_dirs = log_dirs_of(options)
        if not options.full_priority:
            yield_to_others()
        if options.tar:
            return write_tar(options, log_dirs, say)
        if options.hosts:
            raise UsageError("HOST needs --tar")
        store, destination = make_store(options)
        folder = state_folder_of(options)
        require_apart(folder, log_dirs, "--state")
        if "://" not in destination:
            require_apart(Path(destination), log_dirs, "--to")
        with locked(folder):
            return Copying(options, log_dirs, store, destination, folder).run()
    except UsageError as error:
        say(str(error))
        return EXIT_USAGE
    except CaptureError as error:
        say(str(error))
        return EXIT_UNREADABLE


def say(line: str) -> None:
    """A line for people and logs, on standard error."""
    print(f"kraft-capture: {line}", file=sys.stderr, flush=True)  # noqa: T201


class Copying:
    """The loop over all replicas of this host."""

    def __init__(
        self, options: argparse.Namespace, log_dirs: list[str], store: Store, destination: str, state_folder: Path
    ) -> None:
        self._options = options
        self._log_dirs = log_dirs
        self._store = store
        self._destination = destination
        self._folder = state_folder
        self._copiers: dict[str, ReplicaCopier] = {}
        self._retry_at_s: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._said: set[str] = set()
        self._said_of_disks: set[str] = set()
        self._disk_problems: dict[str, list[str]] = {}
        self._stopped = threading.Event()

    def run(self) -> int:
        """Until stopped, or once. A signal ends it after the step that runs; what is unsent is shipped then."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self._stopped.set())
        if self._options.once:
            is_read = self.look()
            if not self._options.durable and not self._stopped.wait(_SETTLE_S):
                is_read = self.look()
            return self._end(is_read, "once")
        self._stopped.wait(self._jitter_s())
        is_read = True
        while not self._stopped.is_set():
            started_s = time.monotonic()
            is_read = self.look()
            self.ship(None)
            self._write_metrics()
            self._stopped.wait(max(0.0, self._options.every - (time.monotonic() - started_s)))
        return self._end(is_read, "stop")

    def look(self) -> bool:
        """A pass over every metadata log; False where something could not be read, which is said once."""
        replica_dirs, problems = find_log_dirs(self._log_dirs)
        lines = list(problems)
        for log_dir in replica_dirs:
            try:
                replica = identify(log_dir)
                copier = self._copiers.get(log_dir)
                if copier is None or copier.replica.key != replica.key:
                    schedule = Schedule(ship_every_s=self._options.ship_every)
                    copier = ReplicaCopier(
                        replica,
                        self._store,
                        self._destination,
                        self._folder,
                        schedule=schedule,
                        durable=self._options.durable,
                        read_disks=self._read_disks,
                        configuration=configuration_file_of(self._options),
                        log=say,
                    )
                    self._copiers[log_dir] = copier
                copier.look()
                lines += copier.problems
            except CaptureError as error:
                lines.append(str(error))
        for line in lines:
            if line not in self._said:
                say(line)
        self._said = set(lines)
        return not lines

    def _read_disks(self, replica: Replica) -> DiskReading | None:
        """The small files of a broker's disks; what of them cannot be read, and what is left out, is said once."""
        limit = self._options.partitions
        reading = read_disks(replica, self._log_dirs, limit)
        if reading is None:
            return None
        left_out = reading.left_out_text(limit)
        lines = {*reading.problems, *([f"{replica.key}: {left_out}"] if left_out else [])}
        for line in sorted(lines - self._said_of_disks):
            say(line)
        self._said_of_disks = lines
        self._disk_problems[replica.key] = reading.problems
        return reading

    def ship(self, reason: str | None) -> bool:
        """Ships each replica for this reason, or where it is due; False where the store did not take all of it."""
        is_shipped = True
        for log_dir, copier in self._copiers.items():
            due = reason or copier.ship_reason()
            if due is None or (reason is None and time.monotonic() < self._retry_at_s.get(log_dir, 0.0)):
                continue
            try:
                copier.ship(due)
                self._failures[log_dir] = 0
            except CaptureError as error:
                is_shipped = False
                count = self._failures[log_dir] = self._failures.get(log_dir, 0) + 1
                self._retry_at_s[log_dir] = time.monotonic() + min(2.0**count, _BACKOFF_S_MAX)
                say(f"{copier.replica.key}: not shipped: {error}")
        return is_shipped

    def _end(self, is_read: bool, reason: str) -> int:
        is_shipped = self.ship(reason)
        self._write_metrics()
        if not is_shipped or not all(copier.is_acknowledged for copier in self._copiers.values()):
            return EXIT_UNSENT
        return 0 if is_read and not any(self._disk_problems.values()) else EXIT_UNREADABLE

    def _jitter_s(self) -> float:
        """A share of the interval by node, so that a fleet that starts together does not look and ship together."""
        replica_dirs, _ = find_log_dirs(self._log_dirs)
        names = []
        for log_dir in replica_dirs:
            try:
                names.append(identify(log_dir).key)
            except CaptureError:
                continue
        digest = hashlib.sha256(" ".join(names).encode()).digest()
        every_s: float = self._options.every
        return every_s * int.from_bytes(digest[:4], "big") / (1 << 32)

    def _write_metrics(self) -> None:
        if self._options.metrics:
            path = Path(self._options.metrics)
            write_metrics(
                path if path.suffix == ".prom" else path.with_name(path.name + ".prom"), self._copiers.values()
            )


def yield_to_others() -> None:
    """Gives this process the idle class of I/O and a low priority of processor time, so that Kafka goes first.

    A system that refuses either is left as it is.
    """
    with contextlib.suppress(OSError):
        os.nice(10)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).syscall(number, 1, 0, _IDLE_CLASS)
