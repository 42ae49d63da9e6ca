"""Where copies go: a folder, an HTTP prefix, or a command. Each puts a key only where it does not exist yet.

S3 is in s3_store.py. A key is a path of plain segments below the destination.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from kraft_capture.clocks import StoreClock
from kraft_capture.errors import StoreRefusedError, StoreUnavailableError
from kraft_capture.http_requests import HttpClient, Response

CREATED = "created"
EXISTS = "exists"
_TRIES = 4


@dataclass(frozen=True)
class Put:
    """How a put ended: `created`, or `exists`; `tries` above 1 means that an earlier try may have made it."""

    outcome: str
    tries: int = 1


class Store(Protocol):
    """A destination; `clock` learns from its answers."""

    clock: StoreClock

    def put(self, key: str, data: bytes) -> Put:
        """Stores bytes under a key that does not exist. Raises StoreUnavailableError, StoreRefusedError."""
        ...


class FolderStore:
    """A folder: a file gets its name when it is complete and synced."""

    def __init__(self, folder: Path) -> None:
        self.clock = StoreClock()
        self._folder = folder

    def put(self, key: str, data: bytes) -> Put:
        """By a hard link, which never replaces; by rename on file systems without links."""
        target = self._folder / key
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            if target.exists():
                return Put(EXISTS)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            return Put(_link(temporary, target))
        except OSError as error:
            raise StoreUnavailableError(f"{self._folder}: {error.strerror}") from None
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _link(temporary: Path, target: Path) -> str:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return EXISTS
    except OSError:
        if target.exists():
            return EXISTS
        temporary.rename(target)
    sync_folder(target.parent)
    return CREATED


def sync_folder(folder: Path) -> None:
    """What was created or renamed in a folder outlives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HttpStore:
    """A prefix of a web server that takes PUT (WebDAV, a signed prefix, a proxy that adds credentials)."""

    def __init__(self, prefix: str, client: HttpClient, headers: Mapping[str, str]) -> None:
        self.clock = client.clock
        self._prefix, _, query = prefix.partition("?")
        self._query = f"?{query}" if query else ""
        self._client = client
        self._headers = dict(headers)

    def put(self, key: str, data: bytes) -> Put:
        """With `If-None-Match: *`; a server that ignores it replaces an object by the same bytes."""
        url = f"{self._prefix.rstrip('/')}/{quote(key)}{self._query}"

        def once() -> Response:
            headers = {"Content-Type": "application/octet-stream", "If-None-Match": "*", **self._headers}
            return self._client.request("PUT", url, headers, data)

        return put_with_retries(once, self._client)


class PipeStore:
    """A command for each object: the bytes on its standard input, `{uri}` in its arguments; 0 acknowledges."""

    def __init__(self, destination: str, command: str, timeout_s: float) -> None:
        self.clock = StoreClock()
        self._destination = destination.rstrip("/")
        self._command = shlex.split(command)
        self._timeout_s = timeout_s

    def put(self, key: str, data: bytes) -> Put:
        """No shell is started. What the command prints goes to standard error."""
        uri = f"{self._destination}/{key}"
        command = [part.replace("{uri}", uri) for part in self._command]
        try:
            done = subprocess.run(command, input=data, stdout=2, timeout=self._timeout_s, check=False)  # noqa: S603
        except OSError as error:
            raise StoreRefusedError(f"{command[0]}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise StoreUnavailableError(f"{command[0]} took more than {self._timeout_s:g} s") from None
        if done.returncode != 0:
            raise StoreUnavailableError(f"{command[0]} ended with {done.returncode}")
        return Put(CREATED)


class _Once(Protocol):
    def __call__(self) -> Response: ...


def put_with_retries(once: _Once, client: HttpClient) -> Put:
    """Sends a conditional PUT until it is answered: 412 means that it exists, 409, 429 and 5xx ask to come again."""
    problem = StoreUnavailableError("not tried")
    for number in range(1, _TRIES + 1):
        try:
            answer = once()
        except StoreUnavailableError as error:
            problem = error
        else:
            if answer.status in (200, 201, 204):
                return Put(CREATED, number)
            if answer.status == 412:
                return Put(EXISTS, number)
            if answer.status not in (408, 409, 425, 429) and answer.status < 500:
                raise StoreRefusedError(f"{client.shown_host(answer)} answers {answer.described}")
            problem = StoreUnavailableError(f"{client.shown_host(answer)} answers {answer.described}")
        if number < _TRIES:
            client.pause(number)
    raise problem
