"""One archive of one incident: the files of each node as they lie there, meta.properties among them.

Of this host's log dirs, or of other hosts, where the same program is sent through ssh, runs from memory, and writes its
archive to its output. `kraft-audit check` reads the result.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shlex
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, Any, Callable, cast

from kraft_capture import __version__
from kraft_capture.broker_disks import DiskReading, read_disks
from kraft_capture.clocks import boot_id, wall_ms
from kraft_capture.configuration import configuration_entry
from kraft_capture.errors import EXIT_UNREADABLE, CaptureError, LogChangedError, UsageError
from kraft_capture.log_dirs import (
    SEGMENT_NAME,
    Entry,
    Replica,
    entry_json,
    errno_name,
    find_log_dirs,
    identify,
    list_entries,
    opened,
    probe_lock,
)
from kraft_capture.one_file import program_bytes
from kraft_capture.options import configuration_file_of

NOTE_NAME = "kraft-capture.json"
_TRIES = 3
_BLOCK_BYTES = 1 << 20
_READ_LAST = ("quorum-state", "meta.properties")
_NOT_COPIED = (".lock", NOTE_NAME)
_REMOTE = (
    "import os,sys;i=sys.stdin.buffer;n=int(i.readline());f=os.memfd_create('kraft-capture');"
    "os.write(f,i.read(n));sys.path.insert(0,'/proc/self/fd/%d'%f);"
    "from kraft_capture.cli import main;sys.exit(main(sys.argv[1:]))"
)


class HostError(CaptureError):
    """A host whose archive did not arrive whole."""


def write_tar(options: argparse.Namespace, log_dirs: list[str], say: Callable[[str], None]) -> int:
    """Writes the archive; 3 where anything could not be read, with a line for each."""
    problems: list[str] = []
    with _target(options.tar, log_dirs) as (file, mode), tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        if not options.hosts:
            problems += add_this_host(archive, log_dirs, options.partitions, say, configuration_file_of(options))
        for host in options.hosts:
            try:
                problems += _add_remote(archive, host, log_dirs, options)
            except (CaptureError, tarfile.TarError) as error:
                problems.append(f"{host}: {error}")
    for line in problems:
        say(line)
    return EXIT_UNREADABLE if problems else 0


@contextmanager
def _target(name: str, log_dirs: list[str]) -> Iterator[tuple[IO[bytes], str]]:
    """(a file that did not exist, how to write to it); standard output for `-`, uncompressed."""
    if name == "-":
        yield cast("IO[bytes]", sys.stdout.buffer), "w|"
        return
    mode = "w|gz" if name.endswith((".tgz", ".gz")) else "w|"
    resolved = os.path.realpath(name)
    if any(resolved.startswith(os.path.realpath(log_dir) + os.sep) for log_dir in log_dirs):
        raise UsageError(f"--tar {name} lies in a log dir, which is only read: choose a folder elsewhere")
    try:
        # It holds what the log holds: SCRAM keys, token HMACs.
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"--tar {name}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        yield file, mode


def add_this_host(
    archive: tarfile.TarFile,
    log_dirs: list[str],
    partitions_max: int,
    say: Callable[[str], None],
    configuration: str | None = None,
) -> list[str]:
    """Adds every metadata log of this host, with its configuration where one is named.

    Returns one line for each thing that could not be read.
    """
    replica_dirs, problems = find_log_dirs(log_dirs)
    for log_dir in replica_dirs:
        try:
            replica = identify(log_dir)
            disks = read_disks(replica, log_dirs, partitions_max)
            problems += _add_replica(archive, replica, disks, configuration_entry(configuration, replica))
        except CaptureError as error:
            problems.append(str(error))
            continue
        if disks is not None:
            problems += disks.problems
            left_out = disks.left_out_text(partitions_max)
            if left_out is not None:
                say(f"{replica.key}: {left_out}")
    return problems


def _add_replica(
    archive: tarfile.TarFile, replica: Replica, disks: DiskReading | None, configuration: Entry | None
) -> list[str]:
    """Files in the order in which they must be read: quorum-state after the log."""
    log_dir = replica.log_dir
    folder = f"node-{replica.node_id}-{replica.directory_id or 'none'}"
    note: dict[str, Any] = {"version": __version__, "host": socket.gethostname(), "log_dir": log_dir}
    note.update(boot_id=boot_id(), read_from_ms=wall_ms(), lock=probe_lock(log_dir))
    entries, digest = _steady_entries(log_dir)
    last = [entry for name in _READ_LAST for entry in entries if entry.name == name]
    log = hashlib.sha256()
    if disks is not None:
        member = _member(f"{folder}/{disks.name}", len(disks.content), disks.at_ms // 1000)
        archive.addfile(member, io.BytesIO(disks.content))
    if configuration is not None and configuration.content is not None:
        member = _member(f"{folder}/{configuration.path}", configuration.size, configuration.mtime_ms // 1000)
        archive.addfile(member, io.BytesIO(configuration.content))
    for entry in [each for each in entries if each not in last] + last:
        if entry.kind == "file" and entry.state == "listed" and entry.name not in _NOT_COPIED:
            _add_file(archive, log_dir, f"{folder}/{entry.path}", entry, log)
    problems = [
        f"{log_dir}/{entry.path}: {entry.errno or 'a link, which is not followed'}"
        for entry in entries
        if entry.state == "unreadable" or entry.kind == "link"
    ]
    note["is_stable"] = log.hexdigest() == digest
    if not note["is_stable"]:
        problems.append(f"{log_dir}: unstable: the log changed while it was read; copy it again")
    note.update(read_to_ms=wall_ms(), entries=[entry_json(entry) for entry in entries])
    text = json.dumps(note, indent=1).encode()
    archive.addfile(_member(f"{folder}/{NOTE_NAME}", len(text), int(time.time())), io.BytesIO(text))
    return problems


def _steady_entries(log_dir: str) -> tuple[list[Entry], str]:
    """(the listing, the hash of the log's bytes) once two readings were equal; of the last reading where none were."""
    entries, digest = list_entries(log_dir), ""
    for _ in range(_TRIES):
        digest = _log_digest(log_dir, entries)
        if digest == _log_digest(log_dir, entries):
            break
        try:
            entries = list_entries(log_dir)
        except LogChangedError:
            continue
    return entries, digest


def _log_digest(log_dir: str, entries: list[Entry]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        if entry.kind == "file" and SEGMENT_NAME.fullmatch(entry.name):
            try:
                with opened(log_dir, entry.path) as descriptor:
                    reader = _SizedReader(descriptor, entry.size, digest)
                    while reader.read(_BLOCK_BYTES):
                        pass
            except OSError:
                continue
    return digest.hexdigest()


class _SizedReader:
    """Exactly so many bytes of a descriptor, zeros where it ends earlier: a member has its header's size."""

    def __init__(self, descriptor: int, size: int, digest: Any) -> None:
        self._descriptor = descriptor
        self._size = size
        self._at = 0
        self._digest = digest

    def read(self, wanted: int = -1) -> bytes:
        """The next bytes, at most `wanted`."""
        left = self._size - self._at
        count = left if wanted < 0 else min(wanted, left)
        data = os.pread(self._descriptor, count, self._at) if count else b""
        data += bytes(count - len(data))
        self._at += count
        self._digest.update(data)
        return data


def _add_file(archive: tarfile.TarFile, log_dir: str, name: str, entry: Entry, log: Any) -> None:
    """Adds a file; `log` takes the bytes of segments."""
    try:
        with opened(log_dir, entry.path) as descriptor:
            is_segment = SEGMENT_NAME.fullmatch(entry.name) is not None
            size = entry.size if is_segment else os.fstat(descriptor).st_size
            reader = _SizedReader(descriptor, size, log if is_segment else hashlib.sha256())
            archive.addfile(_member(name, size, entry.mtime_ms // 1000), cast("IO[bytes]", reader))
            entry.state = "sent"
    except FileNotFoundError:
        entry.state = "vanished"
    except PermissionError as error:
        entry.state, entry.errno = "unreadable", errno_name(error)


def _member(name: str, size: int, mtime_s: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, mtime_s, 0o600
    return member


def _add_remote(archive: tarfile.TarFile, host: str, log_dirs: list[str], options: argparse.Namespace) -> list[str]:
    """Adds what a host sends; its own lines go to standard error. Raises HostError where its archive is cut short."""
    if host.startswith("-"):
        raise UsageError(f"{host}: expected a host name, not an option")
    searched = [option for log_dir in log_dirs for option in ("--log-dirs", log_dir)]
    remote = [*shlex.split(options.remote_python), "-c", _REMOTE, "--tar", "-", *searched]
    remote += ["--partitions", str(options.partitions)]
    configuration = configuration_file_of(options)
    remote += ["--config-copy", configuration] if configuration is not None else []
    command = [*shlex.split(options.ssh), "--", host, " ".join(map(shlex.quote, remote))]
    program = program_bytes()
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
    except OSError as error:
        raise HostError(f"{command[0]}: {error.strerror}") from None
    with process:
        stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        try:
            stdin.write(b"%d\n" % len(program) + program)
            stdin.close()
        except BrokenPipeError:
            pass
        count = _copy_members(archive, stdout, host)
        stdout.read()
    if process.returncode not in (0, EXIT_UNREADABLE) or not count:
        raise HostError(f"ended with {process.returncode} after {count} files")
    return [f"{host}: not everything could be read: see above"] if process.returncode else []


def _copy_members(archive: tarfile.TarFile, stream: IO[bytes], host: str) -> int:
    """How many files came; each goes below the host's name, links and other paths are refused."""
    count = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|") as sent:
            for member in sent:
                path = PurePosixPath(member.name)
                if not member.isreg() or path.is_absolute() or ".." in path.parts:
                    raise HostError(f"{member.name}: not a plain file")
                copied = _member(f"{_folder_name(host)}/{path}", member.size, int(member.mtime))
                archive.addfile(copied, sent.extractfile(member))
                count += 1
    except tarfile.ReadError:
        if not count:
            return 0
        raise HostError(f"its archive is cut short after {count} files") from None
    return count


def _folder_name(host: str) -> str:
    name = host.rpartition("@")[2]
    return "".join(letter if letter.isalnum() or letter in ".-_" else "_" for letter in name).lstrip(".") or "host"
